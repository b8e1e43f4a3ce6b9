//! Reads the beginning of a file, which tells its format.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Reads the first bytes of a file: all that the kernel looks at, and the program headers of an ELF file.
pub(super) fn read_head(path: &Path) -> io::Result<Vec<u8>> {
    read_beginning(path, 4096)
}

/// Reads at most `most` bytes from the beginning of a file.
pub(super) fn read_beginning(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // If a pipe has taken the file's place, opening it must not wait for a writer.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let mut head = Vec::new();
    file.take(most).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns whether further formats have been registered with the kernel (binfmt_misc).
pub(super) fn has_other_formats() -> bool {
    let known = |name: &std::ffi::OsStr| name == "register" || name == "status";
    std::fs::read_dir("/proc/sys/fs/binfmt_misc")
        .is_ok_and(|entries| entries.flatten().any(|e| !known(&e.file_name())))
}
