//! Switches in the environment by which a test controls the server that it starts. A release build ignores
//! them.

#[cfg(debug_assertions)]
pub(crate) fn read_switch(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns `None`, because a release has no such switch.
#[cfg(not(debug_assertions))]
pub(crate) fn read_switch(_name: &str) -> Option<String> {
    None
}
