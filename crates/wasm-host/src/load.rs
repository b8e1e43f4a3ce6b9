//! Loads code from the cache.

use galgo_wasm::code::Code;
use wasmtime::{Engine, Module, Result, component::Component};

/// Loads the code of a command.
///
/// # Errors
/// The code is for another engine, or is malformed.
#[allow(unsafe_code)] // the one exception outside crates/spawn: see CONTRIBUTING.md
pub(crate) fn load_module(engine: &Engine, code: &Code) -> Result<Module> {
    // SAFETY: the bytes must be what wasmtime made. `Code` comes from two functions alone. `galgo_wasm::code::read_entry` has
    // checked that only this user (or root) can write to the folder and the file, and that the digest stored with the bytes
    // fits. `galgo_wasm::code::read_sealed_entry` reads memory that the keeper alone could write to before it was sealed. So
    // `compile` wrote the bytes, and they are complete. They are in our own memory, where no other code changes them.
    // wasmtime itself compares its version and configuration.
    unsafe { Module::deserialize(engine, code.as_bytes()) }
}

/// Loads the code of a component.
///
/// # Errors
/// See [`module`].
#[allow(unsafe_code)] // as above
pub(crate) fn load_component(engine: &Engine, code: &Code) -> Result<Component> {
    // SAFETY: as in `load_module`.
    unsafe { Component::deserialize(engine, code.as_bytes()) }
}
