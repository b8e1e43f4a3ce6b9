//! Users and groups by name.

use std::path::PathBuf;

pub use galgo_spawn::identity::{Identity, lookup as identity};

use galgo_spawn::identity::{IdentityError, home_of};

/// The home of a user.
pub(super) fn home(user: &str) -> Result<PathBuf, IdentityError> {
    home_of(user)?.ok_or_else(|| IdentityError::NoUser(user.to_owned()))
}
