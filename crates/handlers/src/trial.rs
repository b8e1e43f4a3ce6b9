//! What a test asks of the server that it starts, in the environment. A release build looks at nothing there.

#[cfg(debug_assertions)]
pub(crate) fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Nothing: a release has no such switch.
#[cfg(not(debug_assertions))]
pub(crate) fn asked(_name: &str) -> Option<String> {
    None
}
