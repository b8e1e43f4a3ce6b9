//! The files that a template is loaded with, in memory only: nothing is installed, nothing is left behind.

use crate::template_kind::TemplateKind;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::{Errno, write},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

/// Returns the shim and the language's own source: descriptors 4 and 5 of the template. They are made once for each kind.
pub(super) fn shim_files(kind: TemplateKind) -> io::Result<[&'static OwnedFd; 2]> {
    static FILES: [OnceLock<(OwnedFd, Option<OwnedFd>)>; TemplateKind::ALL.len()] =
        [const { OnceLock::new() }; TemplateKind::ALL.len()];

    let known = &FILES[kind as usize];
    let (library, source) = match known.get() {
        Some(made) => made,
        None => {
            let source = kind
                .source()
                .map(|source| make_sealed_file(kind.shim_name(), source));
            let made = (
                make_sealed_file("galgo-shim", kind.library())?,
                source.transpose()?,
            );
            known.get_or_init(|| made)
        }
    };
    // Both numbers are always taken: the shim closes them, and must not close a file of the program's own.
    Ok([library, source.as_ref().unwrap_or(library)])
}

/// Makes a file in memory that can no longer be changed.
fn make_sealed_file(name: &str, mut bytes: &[u8]) -> io::Result<OwnedFd> {
    /// MFD_EXEC: Linux 6.3. Files are executable by default there, unless `vm.memfd_noexec` says otherwise.
    const EXEC: MemfdFlags = MemfdFlags::from_bits_retain(0x10);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match memfd_create(name, flags | EXEC) {
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        other => other?,
    };
    while !bytes.is_empty() {
        bytes = &bytes[write(&fd, bytes)?..];
    }
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(fd.as_fd(), seals)?;
    Ok(fd)
}
