//! The life of the server.

/// Where the server is in it. One phase follows another, and none comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Phase {
    Serving,
    /// Another process accepts the new connections. An open one may bring one more request, which may be on its way already.
    HandedOver,
    /// No new connections; running requests may finish.
    Draining,
    /// Whatever still runs is ended.
    Ending,
}
