//! The process that compiles one module: it reads the module from standard input, and writes the code to standard
//! output. On standard error it describes a problem of the module in one sentence. It reads and writes nothing else.

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

/// Limit of address space in bytes.
const MEMORY: u64 = 4 << 30;
/// Limit of code in bytes.
const CODE: u64 = 1 << 30;
/// Limit of descriptors: three streams, and files that the runtime opens to learn about the machine.
const DESCRIPTORS: u64 = 32;
/// The process's priority below the server's (nice(2)).
const NICE: i32 = 10;

/// Writes the version of this build to standard output, and a name for all engines whose code is interchangeable
/// with the output of [`run`]. The server asks once.
///
/// # Errors
/// A sentence: wasmtime does not start, or the server does not read.
pub(crate) fn print_engine_name() -> Result<(), String> {
    confine()?;
    let engine = engine::create_compiler(false).map_err(describe_start_failure)?;
    let answer = host::format_answer(&engine::compatibility_tag(&engine));
    std::io::stdout()
        .write_all(answer.as_bytes())
        .map_err(|e| e.to_string())
}

fn describe_start_failure(e: wasmtime::Error) -> String {
    format!("starting wasmtime: {e:#}")
}

/// Gives up all rights that compiling does not need.
fn confine() -> Result<(), String> {
    limits::lower_limits(&[
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
/// A sentence about the problem of the module, or of this process.
pub(crate) fn compile_stdin() -> Result<(), String> {
    confine()?;
    let mut module = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut module)
        .map_err(|e| format!("it cannot be read: {e}"))?;
    if let Some(wrong) = module::header_complaint(&module) {
        return Err(wrong.into());
    }
    // Made here, once. If its threads cannot be started, this thread does all the work. Made later, the failure
    // would be a panic.
    let parallel = rayon::ThreadPoolBuilder::new().build_global().is_ok();
    let engine = engine::create_compiler(parallel).map_err(describe_start_failure)?;
    let (kind, code) = compile(&engine, &module).map_err(|e| format_causes(&e))?;
    let stdout = rustix::io::dup(std::io::stdout()).map_err(|e| e.to_string())?;
    code::write_entry(
        File::from(stdout),
        kind,
        &code::module_digest(&module),
        &code,
    )
    .map_err(|e| format!("its code cannot be kept: {e}"))
}

/// Compiles a module, and checks that the host offers all its imports.
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

/// Formats an error of wasmtime with its causes, on one line.
fn format_causes(e: &wasmtime::Error) -> String {
    let causes: Vec<String> = e.chain().map(ToString::to_string).collect();
    causes.join(": ").replace('\n', " ")
}
