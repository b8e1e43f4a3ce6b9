//! Moves bytes between a client and a program, watching all directions at the same time.

pub(crate) mod clock;
pub(crate) mod pipes;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod pump;
pub(crate) mod spill;
pub(crate) mod stderr;
pub(crate) mod stdin;
mod transfer;
