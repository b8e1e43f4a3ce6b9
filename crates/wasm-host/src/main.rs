//! `galgo-wasm`: compiles and runs WebAssembly programs for galgo, which finds the binary in its own folder and starts it.
//!
//! The first argument is the command ([`galgo_wasm::host`]), the second the version of the server.
//!
//! | module | holds |
//! |---|---|
//! | [`worker`] | the worker process |
//! | [`compile`] | the process that compiles one module, and the process that names its engine |
//! | [`engine`] | the configuration of wasmtime, the same in both |
//! | [`load`] | loading compiled code from the cache |
//! | [`limits`], [`sandbox`] | resource limits of both, and rights that they give up |
//! | [`say`] | messages on standard error |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod compile;
mod engine;
mod limits;
mod load;
mod sandbox;
mod say;
mod worker;

use std::{fs::File, io::Read, os::fd::OwnedFd, process::ExitCode};

use galgo_spawn::take_inherited;

use galgo_wasm::{
    host::{self, COMPILE, ENGINE, HostProgram, MODULES, OWN_WORKER, WORKER},
    runtime::keep as keep_worker,
    wire::Message,
};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os()
        .skip(1)
        .map(|argument| argument.into_string().unwrap_or_default());
    let (command, server) = (arguments.next(), arguments.next());
    let command = command.as_deref().unwrap_or_default();
    // The process was executed by a descriptor, whose number would be its name.
    let _ = rustix::thread::set_name(host::NAME);
    let done = match (command, host::version_objection(server.as_deref())) {
        // The server compares the version itself.
        (ENGINE, _) => compile::print_engine_name(),
        (COMPILE | WORKER | MODULES | OWN_WORKER, Some(why)) => Err(why),
        (COMPILE, None) => compile::compile_stdin(),
        (WORKER, None) => {
            worker::serve_cached_modules().map_err(|why| say::with_worker_prefix(&why))
        }
        (MODULES, None) => run_keeper(),
        (OWN_WORKER, None) => {
            worker::serve_own_modules().map_err(|why| say::with_worker_prefix(&why))
        }
        _ => {
            say::write_line(&format!(
                "this is galgo-wasm {}: galgo starts it, to compile and run WebAssembly programs, and looks for it beside itself",
                host::version()
            ));
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say::write_line(&why);
            ExitCode::FAILURE
        }
    }
}

/// Runs the keeper of a worker for a user's own modules. A helper has started it, with this program as descriptor 3, and the
/// worker's setup as descriptor 4.
fn run_keeper() -> Result<(), String> {
    let given = take_inherited(2).map_err(|e| e.to_string())?;
    let given = <[OwnedFd; 2]>::try_from(given);
    let [own, setup] = given.map_err(|_| "descriptors are missing")?;
    let mut said = Vec::new();
    let read = File::from(setup).read_to_end(&mut said);
    read.map_err(|e| e.to_string())?;
    match Message::decode(&said) {
        Some(Message::Own(setup)) => keep_worker(&HostProgram::from_executable(own), setup),
        _ => Err("the setup is invalid".into()),
    }
}
