//! WebAssembly programs: what the rest of the server asks of `galgo_wasm`, and what it is told where
//! that was left out (Cargo feature `wasm`).

#[cfg(feature = "wasm")]
mod on;
#[cfg(feature = "wasm")]
pub use on::{Code, Wasm, examine, prepare_cache};

#[cfg(not(feature = "wasm"))]
mod off;
#[cfg(not(feature = "wasm"))]
pub use off::{Code, Wasm, examine, prepare_cache};

use std::os::fd::BorrowedFd;

use galgo_spawn::EnvBlock;

use crate::config::Cgi;

/// Endings of the names of modules.
const ENDINGS: [&[u8]; 2] = [b".wasm", b".wcgi"];

/// Whether a file is a module by its name.
pub fn is_name(name: &[u8]) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// An instance about to be started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Its code.
    pub code: Code,
    /// Its route.
    pub cgi: &'a Cgi,
    /// SCRIPT_NAME, its `argv[0]`.
    pub script_name: &'a [u8],
    /// Its variables.
    pub env: &'a EnvBlock,
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
}
