//! Moving bytes between a client and a program: all directions watched at once.

pub mod clock;
mod errors;
pub mod process;
pub mod program;
pub mod speaker;
pub mod spill;
pub mod stderr;
pub mod tend;
mod way;
