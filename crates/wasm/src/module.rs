//! What a file says about itself.

use std::{
    io::{self, Read},
    os::fd::AsFd,
};

/// The first bytes of every binary WebAssembly file.
pub const MAGIC: [u8; 4] = *b"\0asm";

/// Endings of the names of modules.
pub const ENDINGS: [&str; 2] = [".wasm", ".wcgi"];

/// Whether a name is that of a module.
pub fn is_name(name: &[u8]) -> bool {
    ENDINGS.iter().any(|e| name.ends_with(e.as_bytes()))
}

/// Whether an open file begins as a module does; its offset stays.
pub fn is_module(file: impl AsFd) -> bool {
    let mut head = [0; MAGIC.len()];
    matches!(rustix::io::pread(file, &mut head, 0), Ok(4)) && head == MAGIC
}

/// Largest file that is compiled.
pub const MAX_BYTES: u64 = 256 << 20;

/// Reads a module.
///
/// # Errors
/// The file cannot be read, or is larger than [`MAX_BYTES`].
pub fn read(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("it is larger than {} MiB", MAX_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

/// What is wrong with the first bytes of a module, in words; `None`: nothing.
pub(crate) fn complaint(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [] => Some("the file is empty"),
        b if !b.starts_with(&MAGIC) => {
            Some("it is no WebAssembly module: its first bytes are not \\0asm")
        }
        b if b.len() < 8 => Some("the file is cut off within its first 8 bytes"),
        _ => None,
    }
}

/// Whether the file is a component; otherwise it is a core module (the layer field of the binary
/// format of the component model).
pub(crate) fn is_component(bytes: &[u8]) -> bool {
    bytes.get(6..8) == Some(&[1, 0])
}
