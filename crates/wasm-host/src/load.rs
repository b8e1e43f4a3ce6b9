//! Code from the cache, made ready to run.

use galgo_wasm::code::Code;
use wasmtime::{Engine, Module, Result, component::Component};

/// The code of a command.
///
/// # Errors
/// It is for another engine, or no such code.
#[allow(unsafe_code)] // the one exception outside crates/spawn: see CONTRIBUTING.md
pub(crate) fn module(engine: &Engine, code: &Code) -> Result<Module> {
    // SAFETY: the bytes must be what wasmtime made. `Code` comes from `galgo_wasm::code::read` alone, which saw that
    // folder and file can be written by this user (or root) only, and that the digest stored with
    // them fits; or from `galgo_wasm::code::received`, in memory that the keeper alone could write to before it was sealed:
    // so they were written by `compile` and are whole. They are in our own memory, where
    // no other code changes them. wasmtime itself compares its version and configuration.
    unsafe { Module::deserialize(engine, code.bytes()) }
}

/// The code of a component.
///
/// # Errors
/// As [`module`].
#[allow(unsafe_code)] // as above
pub(crate) fn component(engine: &Engine, code: &Code) -> Result<Component> {
    // SAFETY: as in `module`.
    unsafe { Component::deserialize(engine, code.bytes()) }
}
