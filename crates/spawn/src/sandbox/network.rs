//! The network that programs in a strict sandbox may use.

use super::kernel::kernel;

/// The network that confined programs may use, besides Unix sockets that they find in the file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    /// No connections, neither to machines nor to programs.
    #[default]
    None,
    /// Connections among each other, over loopback addresses of their own, not the machine's. Without namespaces: no
    /// connections.
    Loopback,
    /// Connections to any address, but no listening on TCP ports.
    Out,
    /// No restrictions.
    All,
}

impl Network {
    /// Every variant, with the name that a configuration uses.
    pub const NAMES: [(&str, Self); 4] = [
        ("none", Self::None),
        ("loopback", Self::Loopback),
        ("out", Self::Out),
        ("all", Self::All),
    ];

    /// Returns the name that a configuration uses.
    pub fn config_name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, network)| *network == self);
        found.map_or("", |(name, _)| name)
    }

    /// Returns the variant that this kernel can provide.
    pub(super) fn as_supported(self) -> Self {
        match self {
            Self::Loopback if !kernel().networks => Self::None,
            other => other,
        }
    }
}
