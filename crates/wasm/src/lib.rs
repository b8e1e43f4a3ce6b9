//! WebAssembly programs for galgo: the server's side, and code shared with the processes that compile and run modules.
//!
//! wasmtime never runs in the server, and the server does not link it: a separate binary, `galgo-wasm`, contains it. A separate
//! process compiles each module: it reads the module, writes machine code, and can do nothing else. A worker process runs
//! modules, and sees only the folders that it was given. The server talks to the worker as to a FastCGI application, over
//! connections that it hands over. Variables and the body go in, output and the exit status come out.
//!
//! | module | holds |
//! |---|---|
//! | [`runtime`] | the server's side: keeps the worker up, has modules compiled, makes connections; and the keeper of a worker that runs a user's own modules |
//! | [`host`] | `galgo-wasm`: finding it, checking it, starting it |
//! | [`wire`] | messages between the server and the worker |
//! | [`code`] | compiled code in the cache: written, found, checked |
//! | [`module`] | the header of a module's file |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod code;
mod encoding;
pub mod host;
pub mod module;
mod no_code;
pub mod runtime;
pub mod wire;

pub use host::Beside;
pub use no_code::{ModuleFault, NoCode};
pub use runtime::{KILLED, Runtime, RuntimeSettings, StartFault, WorkerLease};
