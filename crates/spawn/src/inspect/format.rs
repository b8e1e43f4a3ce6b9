//! What tells the format of a file.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// The first bytes of a file: all that the kernel looks at, and the program headers of an ELF file.
pub(super) fn head(path: &Path) -> io::Result<Vec<u8>> {
    begin(path, 4096)
}

/// At most so many of the first bytes of a file.
pub(super) fn begin(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Should a pipe have taken the file's place, this must not wait for a writer.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut head = Vec::new();
    file.take(most).read_to_end(&mut head)?;
    Ok(head)
}

/// Whether the kernel was told of further formats (binfmt_misc).
pub(super) fn other_formats() -> bool {
    let known = |name: &std::ffi::OsStr| name == "register" || name == "status";
    std::fs::read_dir("/proc/sys/fs/binfmt_misc")
        .is_ok_and(|entries| entries.flatten().any(|e| !known(&e.file_name())))
}
