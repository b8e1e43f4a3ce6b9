//! The server's view of programs and templates that a helper runs for it, and the messages between the two.
//!
//! Neither side trusts the messages of the other: each is read by a strict grammar.

pub(crate) mod child;
pub(crate) mod connection;
pub(crate) mod deadline;
pub(crate) mod left;
pub mod message;
pub(crate) mod shortage;
pub(crate) mod template;
pub(crate) mod template_message;
