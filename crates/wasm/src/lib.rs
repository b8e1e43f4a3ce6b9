//! WebAssembly programs for galgo: the server's side, and what it shares with the processes that compile and run them.
//!
//! wasmtime never runs in the server, nor is it linked into it: a binary of its own, `galgo-wasm`, has it. A module is
//! compiled by a process of its own, which reads the module and writes machine code and can do nothing else, and it is
//! run by a worker process that sees the folders it was given and nothing else. The server talks to the worker as to a
//! FastCGI application, over connections that it hands to it: variables and body in, output and how it ended out.
//!
//! | module | holds |
//! |---|---|
//! | [`runtime`] | the server's side: keeps the worker up, has modules compiled, makes connections; and the keeper of a worker that runs a user's own modules |
//! | [`host`] | `galgo-wasm`: where it is found, whether it fits, how it is started |
//! | [`wire`] | what the server and the worker say to each other |
//! | [`code`] | compiled code in the cache: written, found, checked |
//! | [`module`] | what a file says about itself |
//! | [`lock`] | how locks are taken |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod code;
mod encoding;
pub mod host;
pub mod lock;
pub mod module;
mod no_code;
pub mod runtime;
pub mod wire;

pub use host::Beside;
pub use no_code::{ModuleFault, NoCode};
pub use runtime::{KILLED, Runtime, RuntimeSettings, StartFault, WorkerLease};
