//! Keeps the cache small: removes entries that were not used for a long time, and the oldest entries if the
//! total is too large.
//!
//! The modification time of an entry is the time of its last use: [`touch`].

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// An entry that was not used for this long is removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Drafts this old were left by a server that died.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// Limit of bytes of all entries. Beyond it the oldest entries are removed, but no entry that was used
/// lately.
const MOST: u64 = 4 << 30;
const LATELY: Duration = Duration::from_secs(3600);

struct CachedCode {
    path: PathBuf,
    bytes: u64,
    age: Duration,
}

pub(super) fn touch(entry: &Path) {
    // If this fails, the entry is made again some day.
    let _ = File::open(entry).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes entries that are too old, and the oldest entries beyond the limit. Other files are left alone.
pub(super) fn prune(cache: &Path) {
    // If the cache cannot be read, the request that needs it reports that.
    let _ = prune_to(cache, MOST, SystemTime::now());
}

fn prune_to(cache: &Path, most: u64, now: SystemTime) -> io::Result<()> {
    let mut kept = Vec::new();
    for file in fs::read_dir(cache)? {
        let file = file?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        let draft = name.starts_with("draft-");
        let metadata = file.metadata()?;
        if !metadata.is_file() || !(draft || is_entry(&name)) {
            continue;
        }
        let entry = CachedCode {
            path: file.path(),
            bytes: metadata.len(),
            age: now.duration_since(metadata.modified()?).unwrap_or_default(),
        };
        let longest = if draft { ABANDONED } else { UNUSED };
        if entry.age > longest {
            remove(&entry);
        } else {
            kept.push(entry);
        }
    }
    kept.sort_by_key(|entry| entry.age);
    let mut bytes = 0;
    for entry in kept {
        bytes += entry.bytes;
        if bytes > most && entry.age > LATELY {
            remove(&entry);
        }
    }
    Ok(())
}

/// Whether a name consists of a module's SHA-256 and an engine, as `code::entry_path` makes it.
fn is_entry(name: &str) -> bool {
    let sum = name.split_once('-').map_or("", |(sum, _)| sum);
    sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit())
}

fn remove(entry: &CachedCode) {
    // Another server may have been quicker.
    let _ = fs::remove_file(&entry.path);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn put(cache: &Path, name: &str, bytes: usize, age: Duration) -> String {
        let path = cache.join(name);
        fs::write(&path, vec![0; bytes]).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        name.to_owned()
    }

    fn entry(n: u8) -> String {
        format!("{}-wasmtime-1", format!("{n:02x}").repeat(32))
    }

    fn names(cache: &Path) -> Vec<String> {
        let files = fs::read_dir(cache).unwrap();
        let mut names: Vec<_> = files
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_nobody_asks_for_goes() {
        let cache = tempfile::tempdir().unwrap();
        let at = cache.path();
        let fresh = put(at, &entry(1), 1, 29 * DAY);
        put(at, &entry(2), 1, 31 * DAY);
        let draft = put(at, "draft-1-1", 1, DAY / 2);
        put(at, "draft-1-2", 1, 2 * DAY);
        let other = put(at, "readme", 1, 400 * DAY);
        prune(at);
        let mut left = vec![fresh, draft, other];
        left.sort();
        assert_eq!(names(at), left);
        // A new use of an entry restarts its age.
        put(at, &entry(3), 1, 31 * DAY);
        touch(&at.join(entry(3)));
        prune(at);
        assert!(names(at).contains(&entry(3)));
    }

    #[test]
    fn the_oldest_go_where_all_is_too_much() {
        let cache = tempfile::tempdir().unwrap();
        let at = cache.path();
        let [new, old] = [(1, DAY), (2, 2 * DAY)].map(|(n, age)| put(at, &entry(n), 10, age));
        put(at, &entry(3), 10, 3 * DAY);
        prune_to(at, 20, SystemTime::now()).unwrap();
        assert_eq!(names(at), [new, old]);
        // An entry in use stays, however large it is.
        put(at, &entry(4), 100, Duration::ZERO);
        prune_to(at, 20, SystemTime::now()).unwrap();
        assert_eq!(names(at), [entry(4)]);
    }
}
