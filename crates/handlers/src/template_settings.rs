//! Limits of the programs that are kept loaded.

use std::time::Duration;

/// Programs kept loaded for warm starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateSettings {
    /// Templates at once. Each program has two.
    pub count: usize,
    /// Limit of their memory together in bytes. A template that is being loaded may go beyond it.
    pub memory: u64,
    /// A program without requests is unloaded after this time.
    pub idle: Duration,
    /// Requests wait for a template that is being loaded: for tests and `galgo check`, not for servers.
    pub wait: bool,
}

impl Default for TemplateSettings {
    fn default() -> Self {
        Self {
            count: 64,
            memory: 1 << 30,
            idle: Duration::from_secs(600),
            wait: false,
        }
    }
}
