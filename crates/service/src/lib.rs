//! The types that fronts and handlers share; fronts and handlers do not know each other.
//!
//! | module | holds |
//! |---|---|
//! | [`service`] | the service that answers requests, as the front sees it |
//! | [`request`], [`link`] | a request, and both ends of its connection |
//! | [`client`] | the client of a request: its body, and whether it is still there |
//! | [`body`] | the answer: status, fields, and a body |
//! | [`producer`] | the producer of a body that is sent at the same time |
//! | [`fault`] | failures, and whose fault they are: that decides status, log level and the word in the access log |
//! | [`admission`] | permits for running programs, and the queue for them |
//! | [`spool`] | waiting bytes, in memory and in files without a name |
//! | [`log`] | the access log and the error log |
//! | [`phase`] | whether the server takes requests, or is about to end |
//! | [`peer`], [`id`] | the address by which limits count; ids of requests |
//! | [`mod@lock`] | taking a lock |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod admission;
pub mod body;
pub mod client;
pub mod fault;
pub mod id;
pub mod link;
pub mod log;
pub mod peer;
pub mod phase;
pub mod producer;
pub mod request;
pub mod service;
pub mod spool;

pub use galgo_spawn::lock;
