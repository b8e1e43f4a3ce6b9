//! Moving bytes between a client and a program: all directions watched at once.

pub mod clock;
pub mod process;
pub mod program;
pub mod stderr;
