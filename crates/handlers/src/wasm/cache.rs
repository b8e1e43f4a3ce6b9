//! The cache of compiled code.

use std::{
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use galgo_spawn::{
    identity::{Identity, effective_uid},
    trusted_path,
};
use rustix::{
    fs::{Access, AtFlags, CWD, Mode, OFlags, accessat},
    process::{Gid, Uid, geteuid},
};

/// Returns the folder of the cache: `configured`, else systemd's CACHE_DIRECTORY, else the user's cache folder, else the
/// system's.
pub fn folder(configured: Option<&Path>, becomes: Option<&Identity>) -> PathBuf {
    if let Some(cache) = configured {
        return cache.to_owned();
    }
    let var = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let own = || {
        if geteuid().is_root() || becomes.is_some() {
            None
        } else {
            var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")))
        }
    };
    let base = var("CACHE_DIRECTORY").or_else(|| Some(own()?.join("galgo")));
    base.unwrap_or_else(|| "/var/cache/galgo".into())
}

/// Tells in words why modules cannot be kept in an existing cache, for a process that has become the server's user.
pub fn doubt(folder: &Path) -> Option<String> {
    let account = trusted_path::others_account(folder, effective_uid());
    let is_there = folder.symlink_metadata();
    let usable = match &is_there {
        _ if account.is_some() => Err(io::Error::other("another account can change its path")),
        Ok(_) => accessat(
            CWD,
            folder,
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        )
        .map_err(io::Error::from),
        // The cache is made at the start.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(io::Error::from(e.kind())),
    };
    usable.err().map(|e| {
        format!("the server's user cannot use it: {e}. Modules are compiled again after each start (try: chown it, and chmod 700)")
    })
}

/// Makes the cache while the server is still root, for the user that it becomes.
pub fn prepare(folder: &Path, becomes: Option<&Identity>) {
    let Some(identity) = becomes.filter(|_| geteuid().is_root()) else {
        return;
    };
    // An existing cache is its owner's choice; errors are reported when the cache is needed.
    let _ = make(folder, identity);
}

/// Makes the cache. Root does so only if no other user can change the path to it.
fn make(cache: &Path, user: &Identity) -> io::Result<()> {
    if trusted_path::others_account(cache, user.uid).is_some() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let Some(place) = trusted_path::locate_for_root(cache)? else {
        return user.with_file_rights(|| std::fs::DirBuilder::new().mode(0o700).create(cache));
    };
    if place.entry.is_some() {
        return Ok(());
    }
    rustix::fs::mkdirat(&place.folder, &place.name, Mode::RWXU)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&place.folder, &place.name, flags, Mode::empty())?;
    let (user, group) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::fs::chownat(&made, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt, lchown, symlink},
        sync::atomic::{AtomicBool, Ordering},
    };

    /// The folder's owner puts links in place of the cache that root makes there.
    #[test]
    fn root_gives_nothing_away_but_the_cache() {
        if !geteuid().is_root() {
            eprintln!("skipped root_gives_nothing_away_but_the_cache: it needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        rustix::fs::chmod(folder.path(), Mode::from_raw_mode(0o755)).unwrap();
        let nobody = galgo_spawn::identity::resolve_identity("nobody", None).unwrap();
        let [theirs, secret] = ["theirs", "secret"].map(|name| folder.path().join(name));
        fs::create_dir(&theirs).unwrap();
        lchown(&theirs, Some(nobody.uid), Some(nobody.gid)).unwrap();
        fs::write(&secret, "").unwrap();
        let (cache, link) = (theirs.join("cache"), theirs.join("link"));
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    symlink(&secret, &link).unwrap();
                    // Put the link in place of the folder once that is gone.
                    let _ = fs::remove_dir(&cache);
                    fs::rename(&link, &cache)
                        .or_else(|_| fs::remove_file(&link))
                        .unwrap();
                    let _ = fs::remove_file(&cache);
                }
            });
            for _ in 0..10_000 {
                let _ = make(&cache, &nobody);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::metadata(&secret).unwrap().uid(), 0);
        let own = folder.path().join("own");
        make(&own, &nobody).unwrap();
        let made = fs::metadata(&own).unwrap();
        assert_eq!((made.uid(), made.mode() & 0o777), (nobody.uid, 0o700));
    }
}
