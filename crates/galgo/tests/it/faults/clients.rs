//! To come.
pub fn tests() -> Vec<crate::harness::Test> {
    Vec::new()
}
