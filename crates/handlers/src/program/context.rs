//! What programs are started with.

use std::{ops::Deref, sync::Arc};

use crate::{context::Context, warm::registry::Warm, wasm::Wasm};

/// What one reading of the configuration has made for the programs of all event loops.
#[derive(Debug)]
pub struct ProgramStarters {
    /// Programs that are kept loaded.
    pub warm: Arc<Warm>,
    /// WebAssembly programs.
    pub wasm: Arc<Wasm>,
}

/// What every handler may use, and what starts programs.
#[derive(Debug, Clone, Copy)]
pub struct ProgramContext<'a> {
    /// What every handler may use.
    pub common: Context<'a>,
    /// What starts programs.
    pub starters: &'a ProgramStarters,
}

impl<'a> Deref for ProgramContext<'a> {
    type Target = Context<'a>;

    fn deref(&self) -> &Context<'a> {
        &self.common
    }
}
