//! Chooses the representation of a file that a client gets: the file itself, or a compressed sibling.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, SystemTime},
};

use galgo_proto::{Fields, coding::AcceptedCodings, coding::Coding};

use super::open::{self, OpenFile, Opened};
use crate::files::file_settings::Files;

/// Age below which a file may change again without a change of its mtime.
const SETTLED: Duration = Duration::from_secs(1);

/// The selected representation (RFC 9110, 3.2), with its validators.
#[derive(Debug)]
pub(super) struct Representation {
    pub(super) file: OpenFile,
    pub(super) coding: Coding,
    pub(super) etag: String,
    /// Last-Modified, never later than now (8.8.2.1).
    pub(super) modified: Option<SystemTime>,
}

impl Representation {
    pub(super) fn identity(file: OpenFile, now: SystemTime) -> Self {
        Self::with_coding(file, Coding::Identity, now)
    }

    /// Chooses the best among `file` and its siblings that the client accepts. If the client accepts none of them, it gets the
    /// file itself, which 12.5.3 allows and which is more use than a 406.
    pub(super) fn negotiated(
        files: &Files,
        request: &Fields,
        path: &[u8],
        file: OpenFile,
        now: SystemTime,
    ) -> Self {
        for coding in AcceptedCodings::from_fields(request).ranked() {
            if coding == Coding::Identity {
                break;
            }
            if let Some(sibling) = sibling(files, path, &file, coding) {
                return Self::with_coding(sibling, coding, now);
            }
        }
        Self::identity(file, now)
    }

    fn with_coding(file: OpenFile, coding: Coding, now: SystemTime) -> Self {
        Self {
            etag: make_etag(&file, coding, now),
            modified: file.modified().map(|m| m.min(now)),
            file,
            coding,
        }
    }
}

/// Opens the sibling of `path` in `coding`, unless the sibling is older: then it was made from another version.
fn sibling(files: &Files, path: &[u8], file: &OpenFile, coding: Coding) -> Option<OpenFile> {
    let ending = match coding {
        Coding::Brotli => ".br",
        Coding::Zstd => ".zst",
        Coding::Gzip => ".gz",
        Coding::Identity => return None,
    };
    let path = [path, ending.as_bytes()].concat();
    let Ok(Opened::File(found)) = open::open_path(&files.fd, &path) else {
        return None;
    };
    let is_good =
        found.modified() >= file.modified() && found.size() > 0 && !found.is_source(files, &path);
    is_good.then_some(found)
}

/// Makes an entity tag (8.8.3) from inode, size and mtime, hashed so that it reveals no inode numbers, and from the coding
/// (8.8.3.3). The tag is weak while the file is younger than [`SETTLED`], or from the future. A second write within one tick of
/// the clock would leave all three unchanged (8.8.1).
fn make_etag(file: &OpenFile, coding: Coding, now: SystemTime) -> String {
    let mut hasher = DefaultHasher::new();
    let s = &file.stat;
    (s.st_ino, s.st_size, s.st_mtime, s.st_mtime_nsec).hash(&mut hasher);
    let settled = match file.modified() {
        Some(m) => now.duration_since(m).is_ok_and(|age| age >= SETTLED),
        None => true,
    };
    let weak = if settled { "" } else { "W/" };
    let hash = hasher.finish();
    match coding {
        Coding::Identity => format!("{weak}\"{hash:016x}\""),
        coded => format!("{weak}\"{hash:016x}-{}\"", coded.name()),
    }
}
