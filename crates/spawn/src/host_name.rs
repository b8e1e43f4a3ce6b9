//! Names of hosts, as they occur in folders of programs and in orders to helpers.

/// Bytes of a host's name, at most (RFC 1035, 2.3.4).
pub(crate) const HOST_MAX: usize = 253;

/// Returns whether requests can name such a host. A name that no request can have is no host's name.
pub(crate) fn is_host(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let label = |label: &str| !label.is_empty() && label.bytes().all(letter);
    name.len() <= HOST_MAX && name.split('.').all(label)
}
