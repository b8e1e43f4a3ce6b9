//! The process that compiles one module: standard input is the module, standard output the code,
//! standard error says what is wrong with the module, one sentence. It reads and writes nothing else.

use std::{
    fs::File,
    io::{Read, Write},
};

use galgo_wasm::{
    code::{self, ModuleKind},
    host::{self, CPU},
    module,
};
use rustix::process::Resource;
use wasmtime::{Engine, Module, component::Component};

use crate::{engine, limits, sandbox::WorkerSandbox, worker};

/// Address space, bytes.
const MEMORY: u64 = 4 << 30;
/// Bytes of code.
const CODE: u64 = 1 << 30;
/// Its three streams, and what the runtime opens to learn of the machine.
const DESCRIPTORS: u64 = 32;
/// How much later than the server it gets its turn (nice(2)).
const NICE: i32 = 10;

/// Writes to standard output which build this is, and what engines are named whose code is interchangeable with what
/// [`run`] makes. The server asks once.
///
/// # Errors
/// wasmtime does not start, or the server does not read; in words.
pub(crate) fn name() -> Result<(), String> {
    confine()?;
    let engine = engine::compiler(false).map_err(unable)?;
    let answer = host::answer(&engine::tag(&engine));
    std::io::stdout()
        .write_all(answer.as_bytes())
        .map_err(|e| e.to_string())
}

fn unable(e: wasmtime::Error) -> String {
    format!("starting wasmtime: {e:#}")
}

/// Gives up all that compiling does not take.
fn confine() -> Result<(), String> {
    limits::lower(&[
        (Resource::Cpu, CPU),
        (Resource::As, MEMORY),
        (Resource::Fsize, CODE),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Core, 0),
    ])?;
    let _ = rustix::process::setpriority_process(None, NICE);
    WorkerSandbox::default().enter().map(drop)
}

/// Compiles standard input to standard output.
///
/// # Errors
/// What is wrong with the module, or with this process; in words.
pub(crate) fn run() -> Result<(), String> {
    confine()?;
    let mut module = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut module)
        .map_err(|e| format!("it cannot be read: {e}"))?;
    if let Some(wrong) = module::complaint(&module) {
        return Err(wrong.into());
    }
    // Made here, once: where its threads cannot be had this one does all of it. Made later they would be a panic.
    let parallel = rayon::ThreadPoolBuilder::new().build_global().is_ok();
    let engine = engine::compiler(parallel).map_err(unable)?;
    let (kind, code) = compile(&engine, &module).map_err(|e| words(&e))?;
    let stdout = rustix::io::dup(std::io::stdout()).map_err(|e| e.to_string())?;
    code::write(File::from(stdout), kind, &code::key(&module), &code)
        .map_err(|e| format!("its code cannot be kept: {e}"))
}

/// Compiles, and sees that everything the module imports is there.
fn compile(engine: &Engine, bytes: &[u8]) -> wasmtime::Result<(ModuleKind, Vec<u8>)> {
    if module::is_component(bytes) {
        let component = Component::from_binary(engine, bytes)?;
        let kind = worker::component_kind(engine, &component)?;
        return Ok((kind, component.serialize()?));
    }
    let module = Module::from_binary(engine, bytes)?;
    worker::check_module(engine, &module)?;
    Ok((ModuleKind::Command, module.serialize()?))
}

/// An error of wasmtime with its causes, on one line.
fn words(e: &wasmtime::Error) -> String {
    let causes: Vec<String> = e.chain().map(ToString::to_string).collect();
    causes.join(": ").replace('\n', " ")
}
