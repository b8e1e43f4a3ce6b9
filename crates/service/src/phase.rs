//! The life of the server.

/// Where the server is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Phase {
    Serving,
    /// No new connections; running requests may finish.
    Draining,
    /// Whatever still runs is ended.
    Ending,
}
