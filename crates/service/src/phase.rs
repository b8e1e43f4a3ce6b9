//! The phases of the server.

/// A phase of the server's life. Phases follow each other, and none comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Phase {
    Serving,
    /// Another process accepts the new connections. An open connection may bring one more request, which may be on its way
    /// already.
    HandedOver,
    /// No new connections; running requests may finish.
    Draining,
    /// Requests and programs that still run are ended.
    Ending,
}
