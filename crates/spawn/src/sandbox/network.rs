//! Whom programs in a strict sandbox may speak with.

use super::kernel::kernel;

/// Whom confined programs may speak with, beside Unix sockets that they find in the file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    /// No machine and no program.
    #[default]
    None,
    /// Each other, over loopback addresses that are their own and not the machine's. Without namespaces none.
    Loopback,
    /// Anybody, but they listen on no TCP port.
    Out,
    /// Anybody.
    All,
}

impl Network {
    /// All of them, as they are written in a configuration.
    pub const NAMES: [(&str, Self); 4] = [
        ("none", Self::None),
        ("loopback", Self::Loopback),
        ("out", Self::Out),
        ("all", Self::All),
    ];

    /// As it is written in a configuration.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, network)| *network == self);
        found.map_or("", |(name, _)| name)
    }

    /// What this kernel can make of it.
    pub(super) fn here(self) -> Self {
        match self {
            Self::Loopback if !kernel().networks => Self::None,
            other => other,
        }
    }
}
