//! The state folder: the account with the authority, and the obtained certificates, each in a file with its key.
//!
//! ```text
//! STATE/certificates/                      entered only by the user that started the server
//!   acme-v02.api.letsencrypt.org-directory/  owned by the user that the server becomes
//!     account.json
//!     example.org.pem                        the key, and the chain
//!     lock                                   held during an order
//! ```
//! The server opens the inner folder once, and uses that descriptor for everything in the folder. If root started the
//! server, programs of the server's user cannot reach the files: root owns the outer folder, and programs get none of the
//! server's descriptors.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use galgo_io::tls::Certificate;
use galgo_spawn::{
    identity::{Identity, effective_uid},
    trusted_path,
};
use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, fchmod, flock, fstat, mkdirat, openat},
    io::Errno,
    process::{Gid, Uid, geteuid},
};

use crate::certificates::certificate_settings::Automatic;

/// The file of the account.
pub(super) const ACCOUNT: &str = "account.json";
/// Name of a file while it is written; then it is renamed.
const NEW: &str = "new";
/// Upper limit of a file's size: no file that galgo writes is longer.
const LONGEST: u64 = 1 << 20;

/// The account and the certificates of one authority.
#[derive(Debug)]
pub struct Store {
    folder: OwnedFd,
    path: PathBuf,
}

impl Store {
    /// Opens the folder, and creates it if it is missing. A root that becomes a user gives the folder to that user.
    ///
    /// # Errors
    /// A sentence: the folder cannot be created, or another user could replace it.
    pub fn open(settings: &Automatic, becomes: Option<&Identity>) -> Result<Self, String> {
        let becomes = becomes.filter(|_| geteuid().is_root());
        let path = state_folder(settings, becomes);
        let (all, name) = (
            path.parent().unwrap_or(&path),
            authority_folder_name(settings),
        );
        let made = match becomes {
            Some(user) => make_for(all, &name, user),
            None => make_private_folder(&path),
        };
        let folder = made.map_err(|e| {
            let path = path.display();
            format!("cannot store certificates in {path}: {e}. Set another folder: `state` under [tls] automatic")
        })?;
        Ok(Self { folder, path })
    }

    /// Wraps a folder that another process of this server has opened.
    pub fn from_handover(path: PathBuf, folder: OwnedFd) -> Self {
        Self { folder, path }
    }

    /// Returns the path and the descriptor that another process needs to continue with this folder.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated.
    pub fn prepare_handover(&self) -> io::Result<(Vec<u8>, OwnedFd)> {
        let path = self.path.as_os_str().as_bytes().to_vec();
        Ok((path, self.folder.try_clone()?))
    }

    /// Whether these settings mean this folder: the authority is the same, and `state` names no other place.
    pub fn is_for(&self, settings: &Automatic) -> bool {
        let state = settings.state.as_deref();
        self.path.file_name() == Some(authority_folder_name(settings).as_ref())
            && state.is_none_or(|state| self.path.starts_with(state))
    }

    /// Takes the lock for orders from this authority, until the result is dropped. `None`: another process holds it.
    ///
    /// # Errors
    /// Errors of open(2) and flock(2).
    pub(super) fn try_lock_orders(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, "lock", flags, PRIVATE)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads a file. `None`: there is no such file.
    ///
    /// # Errors
    /// Errors of open(2) and read(2).
    pub(super) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            file => File::from(file?),
        };
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Replaces a file. Readers find either the old or the new file, complete.
    ///
    /// # Errors
    /// Errors of open(2), write(2), fsync(2) and rename(2).
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        let mut file = File::from(openat(&self.folder, NEW, flags | OFlags::CLOEXEC, PRIVATE)?);
        file.write_all(bytes)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.folder, NEW, &self.folder, name)?;
        Ok(rustix::fs::fsync(&self.folder)?)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
    }

    /// Returns the stored certificate of a host. `None`: there is none yet.
    ///
    /// # Errors
    /// A sentence: the file cannot be read or used.
    pub fn load_certificate(&self, host: &str) -> Result<Option<Certificate>, String> {
        let name = file_of(host);
        let at = |e: String| format!("{}: {e}", self.path.join(&name).display());
        let read = self.read(&name).map_err(|e| at(e.to_string()))?;
        read.map(|pem| Certificate::from_pem(&pem, &pem).map_err(at))
            .transpose()
    }

    /// Stores a certificate: its key and its chain in PEM.
    ///
    /// # Errors
    /// A sentence: the file cannot be written.
    pub(super) fn store_certificate(&self, host: &str, pem: &str) -> Result<(), String> {
        let name = file_of(host);
        let kept = self.write(&name, pem.as_bytes());
        kept.map_err(|e| format!("cannot write {}: {e}", self.path.join(&name).display()))
    }
}

/// Returns the stored certificate of a host, if there is one, for `galgo check`.
///
/// # Errors
/// A sentence: the file cannot be read, or is no certificate.
pub fn load_stored(
    settings: &Automatic,
    becomes: Option<&Identity>,
    host: &str,
) -> Result<Option<Certificate>, String> {
    let path = state_folder(settings, becomes).join(file_of(host));
    match fs::read(&path) {
        Ok(pem) => Certificate::from_pem(&pem, &pem).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
    .map_err(|e| format!("{}: {e}", path.display()))
}

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

fn file_of(host: &str) -> String {
    format!("{host}.pem")
}

/// Returns the name of an authority's folder, so that certificates of another authority are not used for this one.
fn authority_folder_name(settings: &Automatic) -> String {
    let url = settings.authority.trim_start_matches("https://");
    let odd = |c: char| !c.is_ascii_alphanumeric() && c != '.';
    url.trim_matches(['/', '.']).replace(odd, "-")
}

/// Returns the state folder: the configured one; else systemd's, the user's own or the system's.
pub fn state_folder(settings: &Automatic, becomes: Option<&Identity>) -> PathBuf {
    let var = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let own = || {
        if geteuid().is_root() || becomes.is_some() {
            None
        } else {
            var("XDG_DATA_HOME").or_else(|| Some(var("HOME")?.join(".local/share")))
        }
    };
    let system = || var("STATE_DIRECTORY").or_else(|| Some(own()?.join("galgo")));
    let state = settings.state.clone().or_else(system);
    let state = state.unwrap_or_else(|| "/var/lib/galgo".into());
    state
        .join("certificates")
        .join(authority_folder_name(settings))
}

fn make_private_folder(path: &Path) -> io::Result<OwnedFd> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let meta = fs::metadata(path)?;
    if meta.uid() != effective_uid() {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(rustix::fs::open(path, FOLDER, Mode::empty())?)
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Creates, as root, `all`, which stays root's and which no other user can enter, and in it the user's own folder.
fn make_for(all: &Path, name: &str, user: &Identity) -> io::Result<OwnedFd> {
    let state = all.parent().unwrap_or(all);
    let above = open_trusted_folder(state)?;
    let all = open_or_create_folder(&above, "certificates")?;
    if fstat(&all)?.st_uid != 0 {
        return Err(io::Error::other("root must own its folder `certificates`"));
    }
    fchmod(&all, Mode::RWXU)?;
    let own = open_or_create_folder(&all, name)?;
    // The folder may belong to the user that the server became before.
    let owner = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
    rustix::fs::fchown(&own, owner.0, owner.1)?;
    fchmod(&own, Mode::RWXU)?;
    for entry in Dir::read_from(&own)?.flatten() {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&own, entry.file_name(), flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_nlink == 1 {
            rustix::fs::chownat(&file, "", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
        }
    }
    Ok(own)
}

/// Opens or creates a folder that only root can replace.
fn open_trusted_folder(state: &Path) -> io::Result<OwnedFd> {
    let others = || io::Error::other("users other than root can change this path");
    let place = trusted_path::locate_for_root(state)?.ok_or_else(others)?;
    if place.entry.is_none() {
        mkdirat(&place.folder, &place.name, Mode::from_raw_mode(0o755))?;
    }
    let made = openat(&place.folder, &place.name, FOLDER, Mode::empty())?;
    match fstat(&made)? {
        stat if stat.st_uid == 0 && stat.st_mode & 0o022 == 0 => Ok(made),
        _ => Err(others()),
    }
}

fn open_or_create_folder(above: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(above, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(openat(above, name, FOLDER, Mode::empty())?),
        Err(e) => Err(e.into()),
    }
}

/// Returns how many more days a certificate is valid.
pub fn days_left(certificate: &Certificate, now: SystemTime) -> u64 {
    let left = certificate.facts().not_after.duration_since(now);
    left.unwrap_or_default().as_secs() / (24 * 3600)
}
