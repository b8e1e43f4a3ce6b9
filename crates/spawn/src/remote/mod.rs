//! What a process knows of the programs and templates that a helper has for it, and what both say to each other.
//!
//! The messages are believed on neither side: each is read by a strict grammar.

pub(crate) mod child;
pub(crate) mod connection;
pub(crate) mod deadline;
pub mod message;
pub(crate) mod shortage;
pub(crate) mod template;
pub(crate) mod template_message;
