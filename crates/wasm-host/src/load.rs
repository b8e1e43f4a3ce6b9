//! Code from the cache, made ready to run.

use galgo_wasm::code::{Code, ModuleKind};
use wasmtime::{Engine, Module, Result, component::Component};

#[derive(Debug)]
pub(crate) enum LoadedCode {
    Module(Module),
    Component(Component),
    Http(Component),
}

/// Makes it ready to run.
///
/// # Errors
/// It is for another engine.
pub(crate) fn load(code: &Code, engine: &Engine) -> Result<LoadedCode> {
    Ok(match code.kind() {
        ModuleKind::Command => LoadedCode::Module(module(engine, code)?),
        ModuleKind::Component => LoadedCode::Component(component(engine, code)?),
        ModuleKind::Http => LoadedCode::Http(component(engine, code)?),
    })
}

#[allow(unsafe_code)] // the one exception outside crates/spawn: see CONTRIBUTING.md
fn module(engine: &Engine, code: &Code) -> Result<Module> {
    // SAFETY: the bytes must be what wasmtime made. `Code` comes from `galgo_wasm::code::read` alone, which saw that
    // folder and file can be written by this user (or root) only, and that the digest stored with
    // them fits; or from `galgo_wasm::code::received`, in memory that the keeper alone could write to before it was sealed:
    // so they were written by `compile` and are whole. They are in our own memory, where
    // no other code changes them. wasmtime itself compares its version and configuration.
    unsafe { Module::deserialize(engine, code.bytes()) }
}

#[allow(unsafe_code)] // as above
fn component(engine: &Engine, code: &Code) -> Result<Component> {
    // SAFETY: as in `module`.
    unsafe { Component::deserialize(engine, code.bytes()) }
}
