//! The sockets that a server listens on: bound by itself, passed by a service manager, or taken over from the server before.

pub(crate) mod handover;
pub(crate) mod inherited;
pub(crate) mod listening;
pub(crate) mod socket_file;
