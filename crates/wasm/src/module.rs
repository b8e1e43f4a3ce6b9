//! The header of a module's file, and its digest.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

use crate::wire::ModuleDigest;

/// The first bytes of every binary WebAssembly file.
pub const MAGIC: [u8; 4] = *b"\0asm";

/// Size of the largest file that is compiled.
pub const MAX_BYTES: u64 = 256 << 20;

/// Size of a read.
const PIECE: usize = 8 << 10;

/// Passes all of a file to `take`, a piece at a time.
pub(crate) fn for_each_piece(mut file: impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(n) => take(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The server's view of a module, whose bytes it never holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ModuleInfo {
    pub(crate) key: ModuleDigest,
    /// The complaint about the first bytes, if any.
    pub(crate) wrong: Option<&'static str>,
}

/// Reads a module's header and digest.
///
/// # Errors
/// The file cannot be read, or is larger than [`MAX_BYTES`].
pub(crate) fn inspect_module(file: impl Read) -> io::Result<ModuleInfo> {
    let (mut digest, mut length, mut first) = (Sha256::new(), 0, Vec::with_capacity(FIRST));
    for_each_piece(file.take(MAX_BYTES + 1), |piece| {
        digest.update(piece);
        length += piece.len() as u64;
        let missing = FIRST - first.len();
        first.extend_from_slice(&piece[..missing.min(piece.len())]);
    })?;
    if length > MAX_BYTES {
        let message = format!("it is larger than {} MiB", MAX_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(ModuleInfo {
        key: digest.finalize().into(),
        wrong: header_complaint(&first),
    })
}

/// Number of bytes that tell the kind of a module: magic, version and layer.
const FIRST: usize = 8;

/// Returns a complaint about the first bytes of a module, in words; `None`: they are fine.
pub fn header_complaint(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [] => Some("the file is empty"),
        b if !b.starts_with(&MAGIC) => {
            Some("it is not a WebAssembly module: its first bytes are not \\0asm")
        }
        b if b.len() < FIRST => Some("the file is cut off within its first 8 bytes"),
        _ => None,
    }
}

/// Whether the file is a component; otherwise it is a core module (the layer field of the binary
/// format of the component model).
pub fn is_component(bytes: &[u8]) -> bool {
    bytes.get(6..8) == Some(&[1, 0])
}
