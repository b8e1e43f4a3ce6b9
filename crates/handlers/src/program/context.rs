//! The context in which programs are started.

use std::{ops::Deref, sync::Arc};

use crate::{context::Context, warm::registry::Warm, wasm::Wasm};

/// Starters of programs, made by one reading of the configuration for all event loops.
#[derive(Debug)]
pub struct ProgramStarters {
    /// Programs that are kept loaded.
    pub warm: Arc<Warm>,
    /// WebAssembly programs.
    pub wasm: Arc<Wasm>,
}

/// The context of a handler that starts programs.
#[derive(Debug, Clone, Copy)]
pub struct ProgramContext<'a> {
    /// The context that every handler has.
    pub common: Context<'a>,
    /// The starters of programs.
    pub starters: &'a ProgramStarters,
}

impl<'a> Deref for ProgramContext<'a> {
    type Target = Context<'a>;

    fn deref(&self) -> &Context<'a> {
        &self.common
    }
}
