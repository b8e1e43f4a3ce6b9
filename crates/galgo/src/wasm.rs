//! WebAssembly programs: what the rest of the server asks of `galgo_wasm`, and what it is told where
//! that was left out (Cargo feature `wasm`).

#[cfg(feature = "wasm")]
mod on;
#[cfg(feature = "wasm")]
pub use on::{Code, Seat, Wasm, descriptors, examine, prepare_cache};

#[cfg(not(feature = "wasm"))]
mod off;
#[cfg(not(feature = "wasm"))]
pub use off::{Code, Seat, Wasm, descriptors, examine, prepare_cache};

/// Endings of the names of modules.
const ENDINGS: [&[u8]; 2] = [b".wasm", b".wcgi"];

/// Whether a file is a module by its name.
pub fn is_name(name: &[u8]) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}
