//! The waist: what fronts and handlers share, which do not know each other.
//!
//! | module | holds |
//! |---|---|
//! | [`service`] | what answers requests, as the front sees it |
//! | [`request`], [`link`] | what is asked, and both ends of the connection that it came by |
//! | [`client`] | the client of a request: its body, and whether it is still there |
//! | [`body`] | what answers it: status, fields, and a body |
//! | [`producer`] | what produces a body while it is sent |
//! | [`fault`] | what went wrong, and who is to blame: that decides status, log level and the word in the access log |
//! | [`admission`] | permits for running programs, and the queue for them |
//! | [`spool`] | bytes that wait, in memory and in files without a name |
//! | [`log`] | the access log and the error log |
//! | [`phase`] | whether the server takes requests, or is about to end |
//! | [`peer`], [`id`] | the address that limits count by; ids of requests |
//! | [`mod@lock`] | how a lock is taken |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod admission;
pub mod body;
pub mod client;
pub mod fault;
pub mod id;
pub mod link;
pub mod lock;
pub mod log;
pub mod peer;
pub mod phase;
pub mod producer;
pub mod request;
pub mod service;
pub mod spool;
