//! Small files of this thread, answered without being opened again.
//!
//! Each answer is revalidated with one fstatat(2): the file under that path must have the inode, size and
//! times it had. Its path was resolved beneath the route when it was read, and an equal file is
//! the same wherever the path leads now. Whatever differs, and whatever is young enough to
//! change within the same tick of the file system's clock, is opened.

use std::{
    cell::RefCell,
    collections::HashMap,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use galgo_proto::{Fields, h1::Head};
use rustix::fs::{AtFlags, Stat, statat};

use crate::{
    body::{Body, Response},
    config,
};

/// Files kept for each thread, and their bytes together: past either all are dropped.
const FILES: usize = 1024;
const BYTES: usize = 16 << 20;
/// A change within the same tick of the clock would leave no trace in the times (seconds).
const SETTLED: i64 = 2;

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

#[derive(Default)]
struct Cache {
    /// By route, then by path.
    routes: HashMap<RawFd, HashMap<Vec<u8>, Kept>>,
    files: usize,
    bytes: usize,
}

struct Kept {
    /// The file below the route, an index included.
    path: Vec<u8>,
    identity: Identity,
    fields: Fields,
    body: Arc<[u8]>,
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    file: (u64, u64),
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Whether the answer to `head` is the whole file, whatever the client said of itself.
pub(super) fn applies(files: &config::Files, head: &Head) -> bool {
    const ASKS: [&[u8]; 6] = [
        b"range",
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"if-range",
    ];
    let asks = |name: &[u8]| ASKS.iter().any(|ask| name.eq_ignore_ascii_case(ask));
    !files.precompressed && !head.fields.iter().any(|(name, _)| asks(name))
}

/// The identity of the file at `path` now.
pub(super) fn identity(files: &config::Files, path: &[u8]) -> Option<Identity> {
    statat(&files.fd, path, AtFlags::empty())
        .ok()
        .map(|stat| Identity::of(&stat))
}

/// The answer for `rest`, if its file is still the one that was read.
pub(super) fn answer(files: &config::Files, rest: &[u8]) -> Option<Response> {
    CACHE.with_borrow(|cache| {
        let kept = cache.routes.get(&files.fd.as_raw_fd())?.get(rest)?;
        (identity(files, &kept.path)? == kept.identity).then(|| Response {
            status: 200,
            reason: None,
            fields: kept.fields.clone(),
            body: Body::Shared(kept.body.clone()),
        })
    })
}

/// Keeps the answer for `rest`, read from `path`, whose identity was `before` it was opened.
pub(super) fn keep(
    files: &config::Files,
    rest: &[u8],
    path: Vec<u8>,
    before: Identity,
    response: &Response,
) {
    let Body::Bytes(body) = &response.body else {
        return;
    };
    let same = identity(files, &path) == Some(before);
    if response.status != 200 || !same || !before.has_settled() || before.size != length(body) {
        return;
    }
    let kept = Kept {
        path,
        identity: before,
        fields: response.fields.clone(),
        body: body.as_slice().into(),
    };
    CACHE.with_borrow_mut(|cache| cache.insert(files.fd.as_raw_fd(), rest, kept));
}

fn length(body: &[u8]) -> i64 {
    i64::try_from(body.len()).unwrap_or(i64::MAX)
}

impl Cache {
    fn insert(&mut self, route: RawFd, rest: &[u8], kept: Kept) {
        if self.files >= FILES || self.bytes + kept.body.len() > BYTES {
            *self = Self::default();
        }
        self.files += 1;
        self.bytes += kept.body.len();
        let old = self
            .routes
            .entry(route)
            .or_default()
            .insert(rest.to_vec(), kept);
        if let Some(old) = old {
            self.files -= 1;
            self.bytes -= old.body.len();
        }
    }
}

impl Identity {
    fn of(stat: &Stat) -> Self {
        Self {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            modified: (
                stat.st_mtime,
                i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
            changed: (
                stat.st_ctime,
                i64::try_from(stat.st_ctime_nsec).unwrap_or(0),
            ),
        }
    }

    fn has_settled(&self) -> bool {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.changed.0.max(self.modified.0) + SETTLED <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded() {
        let mut cache = Cache::default();
        let stat = rustix::fs::stat("/").unwrap();
        for n in 0..3 * FILES {
            let kept = Kept {
                path: Vec::new(),
                identity: Identity::of(&stat),
                fields: Fields::new(),
                body: vec![0; 20 << 10].into(),
            };
            cache.insert(3, n.to_string().as_bytes(), kept);
            let there: usize = cache.routes.values().map(HashMap::len).sum();
            assert!(cache.files == there && there <= FILES && cache.bytes <= BYTES);
        }
    }

    #[test]
    fn a_young_file_is_not_settled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        assert!(!Identity::of(&rustix::fs::stat(&path).unwrap()).has_settled());
        assert!(Identity::of(&rustix::fs::stat("/etc/passwd").unwrap()).has_settled());
    }
}
