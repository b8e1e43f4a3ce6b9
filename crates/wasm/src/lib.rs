//! WebAssembly programs for galgo.
//!
//! wasmtime never runs in the server. A module is compiled by a process of its own, which reads the
//! module and writes machine code and can do nothing else, and it is run by a worker process that
//! sees the folders it was given and nothing else. The server talks to the worker as to a FastCGI
//! application, over connections that it hands to it: variables and body in, output and how it ended out.
//!
//! | room | holds |
//! |---|---|
//! | [`runtime`] | the server's side: keeps the worker up, has modules compiled, makes connections |
//! | [`wire`] | what the two say to each other |
//! | [`worker`] | the worker process |
//! | [`compile`] | the process that compiles one module, and the one that says which engine that is for |
//! | `code` | compiled code in the cache: written, checked, loaded |
//! | `engine` | how wasmtime is configured, alike in both |
//! | `limits`, `sandbox` | what both may take of the machine, and what they give up |

mod code;
pub mod compile;
mod engine;
mod limits;
pub mod module;
pub mod runtime;
mod sandbox;
pub mod wire;
pub mod worker;

pub use runtime::{Found, KILLED, Profile, Runtime, Seat, Settings, StartFault};
