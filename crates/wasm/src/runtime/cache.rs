//! The folder of compiled code.

use std::{fs, io, os::unix::fs::DirBuilderExt, path::Path};

use crate::code;

/// Makes the cache, or sees that no other user can write to it.
pub(super) fn folder(cache: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(cache)?;
    code::ours(&cache.symlink_metadata()?).ok_or_else(|| {
        io::Error::other("others can write to it: give it to the server's user alone (chmod 700)")
    })
}
