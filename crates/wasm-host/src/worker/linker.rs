//! The imports that programs are offered, and the check that a program needs no others.

use galgo_wasm::code::ModuleKind;
use wasmtime::{
    Engine, InstancePre, Linker, Module,
    component::{self, Component},
};
use wasmtime_wasi::{WasiCtxBuilder, p2::bindings::CommandPre};
use wasmtime_wasi_http::p2::bindings::ProxyPre;

use super::{environ, name_lookup, state::InstanceState};

/// A program that is ready to run, and needs only its memory.
pub(super) enum LinkedProgram {
    Command(InstancePre<InstanceState>),
    Component(CommandPre<InstanceState>),
    Http(ProxyPre<InstanceState>),
}

pub(super) fn module_linker(engine: &Engine) -> wasmtime::Result<Linker<InstanceState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_async(&mut linker, |state: &mut InstanceState| {
        &mut state.preview1
    })?;
    environ::add_to_linker(&mut linker)?;
    Ok(linker)
}

pub(super) fn component_linker(
    engine: &Engine,
) -> wasmtime::Result<component::Linker<InstanceState>> {
    let mut linker = component::Linker::<InstanceState>::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    name_lookup::add_to_linker(&mut linker, |state| state.network)?;
    Ok(linker)
}

/// Checks that a module is a command, and that all its imports are offered.
pub(crate) fn check_module(engine: &Engine, module: &Module) -> wasmtime::Result<()> {
    if module.get_export("_start").is_none() {
        return Err(wasmtime::Error::msg(
            "it exports no `_start`, so it is not a program: build it as a command, not as a library (reactor)",
        ));
    }
    let mut offered = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_async(&mut offered, |context| context)?;
    let mut store = wasmtime::Store::new(engine, WasiCtxBuilder::new().build_p1());
    let unknown: Vec<_> = module
        .imports()
        .filter(|import| offered.get_by_import(&mut store, import).is_none())
        .map(|import| format!("{}.{}", import.module(), import.name()))
        .collect();
    if !unknown.is_empty() {
        let list = unknown.join(", ");
        return Err(wasmtime::Error::msg(format!(
            "it imports names that galgo does not offer: {list}"
        )));
    }
    let linker = module_linker(engine)?;
    linker.instantiate_pre(module).map(drop)
}

/// Returns the kind of a component, after a check that all its imports are offered.
pub(crate) fn component_kind(
    engine: &Engine,
    component: &Component,
) -> wasmtime::Result<ModuleKind> {
    let pre = component_linker(engine)?.instantiate_pre(component)?;
    if ProxyPre::new(pre.clone()).is_ok() {
        return Ok(ModuleKind::Http);
    }
    CommandPre::new(pre).map(|_| ModuleKind::Component).map_err(|_| {
        wasmtime::Error::msg(
            "this component exports neither wasi:cli/run nor wasi:http/incoming-handler, so it is not a program",
        )
    })
}
