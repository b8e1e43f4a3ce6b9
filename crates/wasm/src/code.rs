//! Compiled code in the cache: written by the process that compiles, checked at each read.
//!
//! An entry is named after the SHA-256 of its module and the engine that it is for. It begins with a head: the kind of the
//! module, the module's digest, and the SHA-256 of the code. An entry that does not match counts as missing, and is made
//! again.

use std::{
    fs::{DirBuilder, File},
    io::{self, Read, Seek, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use galgo_spawn::{identity::effective_uid, trusted_path::others_account};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create, openat,
};
use sha2::{Digest, Sha256};

use crate::{module, wire::ModuleDigest};

const MAGIC: &[u8; 16] = b"galgo wasm code\n";
/// Size of the head: magic, kind, key, digest.
const HEAD: usize = 16 + 1 + 32 + 32;

/// The kind of a module, as its file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    /// A preview 1 command: exports `_start`.
    Command = 1,
    /// A preview 2 command: a component that exports `wasi:cli/run`.
    Component = 2,
    /// A component that exports `wasi:http/incoming-handler`.
    Http = 3,
}

/// Returns the name of a module's code.
pub fn module_digest(module: &[u8]) -> ModuleDigest {
    Sha256::digest(module).into()
}

pub(crate) fn entry_path(cache: &Path, key: &ModuleDigest, tag: &str) -> PathBuf {
    cache.join(entry_name(key, tag))
}

fn entry_name(key: &ModuleDigest, tag: &str) -> String {
    let mut name: String = key.iter().map(|b| format!("{b:02x}")).collect();
    name.push('-');
    name.push_str(tag);
    name
}

/// Writes an entry.
///
/// # Errors
/// Errors of the system.
pub fn write_entry(
    mut to: impl Write,
    kind: ModuleKind,
    key: &ModuleDigest,
    code: &[u8],
) -> io::Result<()> {
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(MAGIC);
    head.push(kind as u8);
    head.extend_from_slice(key);
    head.extend_from_slice(&begin_digest(kind, key).chain_update(code).finalize());
    to.write_all(&head)?;
    to.write_all(code)
}

/// Begins the digest of an entry, without its code.
fn begin_digest(kind: ModuleKind, key: &ModuleDigest) -> Sha256 {
    Sha256::new().chain_update([kind as u8]).chain_update(key)
}

/// Verified code from the cache or from the keeper: only [`read_entry`] and [`read_sealed_entry`] make it.
#[derive(Debug)]
pub struct Code {
    kind: ModuleKind,
    bytes: Vec<u8>,
}

/// Reads an entry and checks it. `None`: there is no entry, or no server of this user has written it.
pub fn read_entry(cache: &Path, key: &ModuleDigest, tag: &str) -> Option<Code> {
    let mut bytes = Vec::new();
    let kind = check_entry(cache, key, tag, |code| bytes.extend_from_slice(code))?;
    Some(Code { kind, bytes })
}

/// Whether there is such an entry. The check holds one piece of it in memory at a time.
pub(crate) fn has_entry(cache: &Path, key: &ModuleDigest, tag: &str) -> bool {
    check_entry(cache, key, tag, |_| {}).is_some()
}

/// Checks an entry; `take` gets its code, piece by piece, before the check is complete.
fn check_entry(
    cache: &Path,
    key: &ModuleDigest,
    tag: &str,
    take: impl FnMut(&[u8]),
) -> Option<ModuleKind> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(cache, flags, Mode::empty()).ok()?);
    check_ownership(&folder.metadata().ok()?)?;
    // In the folder that was checked, even if its name leads elsewhere by now.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(&folder, entry_name(key, tag), flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    check_ownership(&metadata)?;
    check_content(file, key, take)
}

/// With these seals, no process can change the memory any more.
const SEALS: SealFlags = SealFlags::WRITE
    .union(SealFlags::GROW)
    .union(SealFlags::SHRINK);

/// Makes an empty file in memory for an entry that goes to another process.
pub(crate) fn create_memory_file() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(memfd_create("galgo-code", flags)?.into())
}

/// Seals the file against all changes; returns whether it is an entry of that name then.
pub(crate) fn seal_entry(file: &File, key: &ModuleDigest) -> bool {
    fcntl_add_seals(file, SEALS | SealFlags::SEAL).is_ok()
        && check_whole_entry(file, key, |_| {}).is_some()
}

/// Reads an entry that the keeper has sent. `None`: the file is no entry of that name, or can still be changed.
pub fn read_sealed_entry(file: OwnedFd, key: &ModuleDigest) -> Option<Code> {
    let file = File::from(file);
    if !fcntl_get_seals(&file).ok()?.contains(SEALS) {
        return None;
    }
    let mut bytes = Vec::new();
    let kind = check_whole_entry(&file, key, |code| bytes.extend_from_slice(code))?;
    Some(Code { kind, bytes })
}

fn check_whole_entry(
    mut file: &File,
    key: &ModuleDigest,
    take: impl FnMut(&[u8]),
) -> Option<ModuleKind> {
    file.rewind().ok()?;
    check_content(file, key, take)
}

/// Checks the content of an entry.
fn check_content(
    mut file: impl Read,
    key: &ModuleDigest,
    mut take: impl FnMut(&[u8]),
) -> Option<ModuleKind> {
    let mut head = [0; HEAD];
    file.read_exact(&mut head).ok()?;
    let (magic, rest) = head.split_at(MAGIC.len());
    let (kind, rest) = rest.split_first()?;
    let kind = [ModuleKind::Command, ModuleKind::Component, ModuleKind::Http]
        .into_iter()
        .find(|k| *k as u8 == *kind)?;
    if magic != MAGIC || rest[..32] != key[..] {
        return None;
    }
    let mut digest = begin_digest(kind, key);
    module::for_each_piece(file, |piece| {
        digest.update(piece);
        take(piece);
    })
    .ok()?;
    let found: [u8; 32] = digest.finalize().into();
    (rest[32..] == found).then_some(kind)
}

/// Refuses a cache if another account decides where its path leads.
pub(crate) fn check_cache_path(cache: &Path) -> io::Result<()> {
    match others_account(cache, effective_uid()) {
        None => Ok(()),
        Some(_) => Err(io::Error::other(
            "another account can change its path: choose a folder of root or of the server's user",
        )),
    }
}

/// Makes the cache, or checks that no other user can write to it.
pub(crate) fn create_cache(cache: &Path) -> io::Result<()> {
    check_cache_path(cache)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(cache)?;
    check_ownership(&cache.symlink_metadata()?).ok_or_else(|| {
        io::Error::other("others can write to it: give it to the server's user alone (chmod 700)")
    })
}

/// Whether the file belongs to this user or to root, and no other user may write to it.
fn check_ownership(metadata: &std::fs::Metadata) -> Option<()> {
    let owner = metadata.uid();
    let mine = [0, effective_uid()].contains(&owner);
    (mine && metadata.mode() & 0o022 == 0).then_some(())
}

impl Code {
    /// Returns the kind of the code's module.
    pub fn kind(&self) -> ModuleKind {
        self.kind
    }

    /// Returns the code.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn entry() -> (tempfile::TempDir, PathBuf, ModuleDigest) {
        let cache = tempfile::tempdir().unwrap();
        let key = module_digest(b"module");
        let at = entry_path(cache.path(), &key, "t");
        write_entry(
            File::create(&at).unwrap(),
            ModuleKind::Command,
            &key,
            b"code",
        )
        .unwrap();
        (cache, at, key)
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let (cache, _, key) = entry();
        let code = read_entry(cache.path(), &key, "t").unwrap();
        assert_eq!(
            (code.kind, &code.bytes[..]),
            (ModuleKind::Command, &b"code"[..])
        );
        assert!(read_entry(cache.path(), &key, "other").is_none());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let (cache, at, key) = entry();
        let good = fs::read(&at).unwrap();
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            fs::write(&at, bad).unwrap();
            assert!(
                read_entry(cache.path(), &key, "t").is_none(),
                "byte {index}"
            );
            fs::write(&at, &good[..index]).unwrap();
            assert!(
                read_entry(cache.path(), &key, "t").is_none(),
                "cut at {index}"
            );
        }
    }

    #[test]
    fn what_a_keeper_sends_is_sealed_and_whole() {
        let key = module_digest(b"module");
        let made = || {
            let file = create_memory_file().unwrap();
            write_entry(&file, ModuleKind::Command, &key, b"code").unwrap();
            file
        };
        let sealed = made();
        assert!(seal_entry(&sealed, &key));
        assert!((&sealed).write_all(b"more").is_err());
        let code = read_sealed_entry(sealed.into(), &key).unwrap();
        assert_eq!(
            (code.kind, &code.bytes[..]),
            (ModuleKind::Command, &b"code"[..])
        );
        assert!(
            read_sealed_entry(made().into(), &key).is_none(),
            "not sealed"
        );
        assert!(!seal_entry(&made(), &[0; 32]), "another's");
        let other = made();
        assert!(seal_entry(&other, &key));
        assert!(
            read_sealed_entry(other.into(), &[0; 32]).is_none(),
            "another's"
        );
    }

    #[test]
    fn what_others_can_write_to_is_foreign() {
        let (cache, at, key) = entry();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&at, 0o620);
        assert!(read_entry(cache.path(), &key, "t").is_none());
        mode(&at, 0o600);
        mode(cache.path(), 0o777);
        assert!(read_entry(cache.path(), &key, "t").is_none());
        mode(cache.path(), 0o700);
        assert!(read_entry(cache.path(), &key, "t").is_some());
    }
}
