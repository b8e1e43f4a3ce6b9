//! Caches files for a thread, to answer without opening them again: small files in memory, a few large files as open descriptors.
//!
//! Each cached answer is revalidated with one fstatat(2): the file under that path must still have the same inode, size and
//! times. The path was resolved beneath the route when the file was read, and an equal file is the same wherever the path leads
//! now. A file is opened again if it differs, or if it is young enough to change within the same tick of the file system's clock.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use galgo_proto::{Fields, cond, h1::Head};
use galgo_service::body::{Body, FilePart, Response};
use galgo_spawn::{FileId, trusted_path};
use rustix::fs::{AtFlags, OFlags, Stat, fstat, statat};
use tokio::sync::Notify;

use crate::{
    beneath,
    files::{file_settings::Files, send_file::SMALL},
};

/// Limits for the cached files of a thread, and for their bytes together: above either limit all are dropped.
const FILES: usize = 1024;
const BYTES: usize = 16 << 20;
/// Large files that each thread keeps open: `max_connections` leaves these descriptors free.
pub const OPEN: usize = 16;
/// Time until all open files are closed, so that a removed file does not fill its disk, and the disk can be unmounted.
const OPEN_FOR: Duration = Duration::from_secs(5);

thread_local! {
    static CACHE: RefCell<FileCache> = RefCell::default();
    static OPENED: Rc<Notify> = Rc::default();
}

#[derive(Default)]
struct FileCache {
    /// Cached files by the number of the route's folder, then by path.
    routes: HashMap<u64, HashMap<Vec<u8>, Cached>>,
    files: usize,
    bytes: usize,
    open: usize,
}

struct Cached {
    /// Path of the file below the route, including an index.
    path: Vec<u8>,
    /// Whether no other user can mount something on the way to the file. If so, one call tells its identity.
    is_closed: bool,
    identity: FileId,
    fields: Fields,
    content: Content,
}

enum Content {
    Bytes(Arc<[u8]>),
    Open(FilePart),
}

/// Returns whether the answer to `head` is the whole file, whatever else the client sent.
pub(super) fn applies(files: &Files, head: &Head) -> bool {
    !files.precompressed && !head.fields.has_any(&cond::FIELDS)
}

/// Returns the identity of the file at `path`, if this thread need not wait for its file system.
pub(super) fn file_identity(files: &Files, path: &[u8]) -> Option<FileId> {
    stat_beneath(files, path, beneath::NAME).map(|stat| FileId::from_stat(&stat))
}

fn stat_beneath(files: &Files, path: &[u8], flags: OFlags) -> Option<Stat> {
    let file = beneath::open_path(files.fd.local_descriptor().ok()?, path, flags);
    file.and_then(fstat).ok()
}

impl Cached {
    fn is_the_same(&self, files: &Files) -> bool {
        let now = if self.is_closed {
            statat(&files.fd, &self.path, AtFlags::empty())
                .ok()
                .map(|stat| FileId::from_stat(&stat))
        } else {
            file_identity(files, &self.path)
        };
        now == Some(self.identity)
    }
}

/// Returns whether no other user can mount something on the way to a file. A later look at the file would have to wait for such a
/// mount.
fn is_closed(files: &Files, path: &[u8]) -> bool {
    let mut ends = (1..=path.len()).filter(|&at| path.get(at).is_none_or(|&b| b == b'/'));
    let flags = beneath::NAME | OFlags::NOFOLLOW;
    let closed =
        |end| stat_beneath(files, &path[..end], flags).is_some_and(|s| trusted_path::is_closed(&s));
    files.fd.is_closed() && ends.all(closed)
}

/// Returns the cached answer for `rest`, if its file has not changed.
pub(super) fn cached_answer(files: &Files, rest: &[u8]) -> Option<Response> {
    CACHE.with_borrow(|cache| {
        let cached = cache.routes.get(&files.fd.number())?.get(rest)?;
        cached.is_the_same(files).then(|| Response {
            status: 200,
            reason: None,
            fields: cached.fields.clone(),
            body: cached.content.to_body(),
        })
    })
}

/// Caches the answer for `rest`, read from `path`. `before` is the file's identity from before it was opened.
pub(super) fn cache_answer(
    files: &Files,
    rest: &[u8],
    path: Vec<u8>,
    before: FileId,
    response: &Response,
) {
    let content = match &response.body {
        Body::Bytes(bytes) => Content::Bytes(bytes.as_slice().into()),
        Body::File(part) if part.len > SMALL => Content::Open(part.clone()),
        _ => return,
    };
    let same = file_identity(files, &path) == Some(before);
    let whole =
        response.status == 200 && Ok(before.file_size()) == i64::try_from(response.body.len());
    if !whole || !same || !before.has_settled() {
        return;
    }
    let cached = Cached {
        is_closed: is_closed(files, &path),
        path,
        identity: before,
        fields: response.fields.clone(),
        content,
    };
    if matches!(cached.content, Content::Open(..)) {
        OPENED.with(|opened| opened.notify_one());
    }
    CACHE.with_borrow_mut(|cache| cache.insert(files.fd.number(), rest, cached));
}

/// Forgets everything, because the routes may be gone.
pub(super) fn forget() {
    CACHE.with_borrow_mut(|cache| *cache = FileCache::default());
}

/// Closes open files after a while; never returns.
pub async fn close_open() {
    let opened = OPENED.with(Rc::clone);
    loop {
        opened.notified().await;
        tokio::time::sleep(OPEN_FOR).await;
        CACHE.with_borrow_mut(FileCache::close_open);
    }
}

impl FileCache {
    fn insert(&mut self, folder: u64, rest: &[u8], cached: Cached) {
        let bytes = cached.content.byte_count();
        if self.files >= FILES || self.bytes + bytes > BYTES {
            *self = Self::default();
        }
        if self.open + cached.content.open_file_count() > OPEN {
            self.close_open();
        }
        self.files += 1;
        self.bytes += bytes;
        self.open += cached.content.open_file_count();
        let files = self.routes.entry(folder).or_default();
        if let Some(old) = files.insert(rest.to_vec(), cached) {
            self.files -= 1;
            self.bytes -= old.content.byte_count();
            self.open -= old.content.open_file_count();
        }
    }

    fn close_open(&mut self) {
        for files in self.routes.values_mut() {
            files.retain(|_, cached| cached.content.open_file_count() == 0);
        }
        self.files -= self.open;
        self.open = 0;
    }
}

impl Content {
    fn to_body(&self) -> Body {
        match self {
            Self::Bytes(bytes) => Body::Shared(bytes.clone()),
            Self::Open(part) => Body::File(part.clone()),
        }
    }

    fn byte_count(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Open(..) => 0,
        }
    }

    fn open_file_count(&self) -> usize {
        usize::from(matches!(self, Self::Open(..)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn it_is_bounded() {
        let mut cache = FileCache::default();
        let stat = rustix::fs::stat("/").unwrap();
        let file: Arc<OwnedFd> = Arc::new(std::fs::File::open("/etc/passwd").unwrap().into());
        let part = FilePart {
            file: file.clone(),
            offset: 0,
            len: 100 << 10,
        };
        for n in 0..3 * FILES {
            let cached = Cached {
                path: Vec::new(),
                is_closed: true,
                identity: FileId::from_stat(&stat),
                fields: Fields::new(),
                content: match n % 5 {
                    0 => Content::Open(part.clone()),
                    _ => Content::Bytes(vec![0; 20 << 10].into()),
                },
            };
            cache.insert(3, n.to_string().as_bytes(), cached);
            let there: usize = cache.routes.values().map(HashMap::len).sum();
            assert!(cache.files == there && there <= FILES && cache.bytes <= BYTES);
            assert_eq!(cache.open, Arc::strong_count(&file) - 2);
            assert!(cache.open <= OPEN);
        }
        cache.close_open();
        assert_eq!((cache.open, Arc::strong_count(&file)), (0, 2));
    }

    #[test]
    fn nothing_is_kept_for_another_configuration() {
        let cached = Cached {
            path: Vec::new(),
            is_closed: true,
            identity: FileId::from_stat(&rustix::fs::stat("/").unwrap()),
            fields: Fields::new(),
            content: Content::Bytes(vec![0].into()),
        };
        CACHE.with_borrow_mut(|cache| cache.insert(3, b"a", cached));
        forget();
        CACHE.with_borrow(|cache| {
            assert!(cache.routes.is_empty());
            assert_eq!((cache.files, cache.bytes, cache.open), (0, 0, 0));
        });
    }

    #[test]
    fn a_young_file_is_not_settled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        assert!(!FileId::from_stat(&rustix::fs::stat(&path).unwrap()).has_settled());
        assert!(
            FileId::from_stat(&rustix::fs::stat(env!("CARGO_MANIFEST_DIR")).unwrap()).has_settled()
        );
    }
}
