//! Sites for the binary of this package.

pub(crate) const GALGO: &str = env!("CARGO_BIN_EXE_galgo");

/// A site with an empty `cgi-bin`.
pub(crate) fn new_site() -> galgo_testkit::Site {
    galgo_testkit::Site::new(GALGO)
}
