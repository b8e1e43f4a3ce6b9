//! The files a template is loaded with, in memory only: nothing is installed, nothing is left
//! behind.

use super::kind::TemplateKind;
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::{Errno, write},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

/// The shim, and the language's own source: descriptors 4 and 5 of the template. Made once for each kind.
pub(super) fn files(kind: TemplateKind) -> io::Result<Vec<&'static OwnedFd>> {
    static LIBRARIES: [OnceLock<OwnedFd>; TemplateKind::ALL.len()] =
        [const { OnceLock::new() }; TemplateKind::ALL.len()];
    static SOURCES: [OnceLock<OwnedFd>; TemplateKind::ALL.len()] =
        [const { OnceLock::new() }; TemplateKind::ALL.len()];

    let library = once(&LIBRARIES[kind as usize], "galgo-shim", kind.library())?;
    // Both numbers are always taken: the shim closes them, and no file of the program's own.
    let source = match kind.source() {
        Some(source) => once(&SOURCES[kind as usize], kind.name(), source)?,
        None => library,
    };
    Ok(vec![library, source])
}

fn once(
    cell: &'static OnceLock<OwnedFd>,
    name: &str,
    bytes: &[u8],
) -> io::Result<&'static OwnedFd> {
    match cell.get() {
        Some(fd) => Ok(fd),
        None => {
            let made = sealed(name, bytes)?;
            Ok(cell.get_or_init(|| made))
        }
    }
}

/// A file in memory that cannot be changed any more.
fn sealed(name: &str, mut bytes: &[u8]) -> io::Result<OwnedFd> {
    /// MFD_EXEC: Linux 6.3, where it is the default unless `vm.memfd_noexec` says otherwise.
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
