//! What is in a folder, in the order asked for.

use std::{cmp::Ordering, os::fd::OwnedFd, time::SystemTime};

use galgo_proto::h1::Head;
use rustix::{
    fs::{AtFlags, Dir, FileType, OFlags, Stat, fstat, statat},
    io::Errno,
};

use super::{
    open::{self, Refused},
    page,
};
use crate::{
    beneath,
    body::{Body, Response},
    config,
};

/// Entries on one page; the page says so where there are more. Each costs a stat on the event loop.
pub(super) const MAX_ENTRIES: usize = 10_000;

/// A name in a folder that would be answered if it were asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) folder: bool,
    /// Bytes; of no meaning for a folder.
    pub(super) size: u64,
    pub(super) modified: Option<SystemTime>,
}

/// What a list is sorted by: `?C=N|M|S&O=A|D`, as Apache has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: Column,
    pub(super) descending: bool,
}

/// A column of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Modified,
    Size,
}

/// Lists the folder at `path` (empty or with its slash), which `fd` is.
pub(super) fn answer(
    files: &config::Files,
    head: &Head,
    path: &[u8],
    fd: OwnedFd,
) -> Result<Response, Refused> {
    let order = Order::of(head.target.query());
    let (mut entries, more) = read(files, path, fd, MAX_ENTRIES)?;
    entries.sort_unstable_by(|a, b| order.compare(a, b));
    let html = page::html(&page::Page {
        path: head.target.path(),
        is_root: path.is_empty(),
        entries: &entries,
        more,
        order,
    });
    let mut response = Response::new(200)
        .with("Content-Type", "text/html; charset=utf-8")
        // Names are chosen by whoever may write here; should one ever get through, it runs nothing.
        .with(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        );
    response.body = Body::Bytes(html.into_bytes());
    Ok(response)
}

/// The entries that can be served, at most `max`, and whether there are more.
pub(super) fn read(
    files: &config::Files,
    path: &[u8],
    fd: OwnedFd,
    max: usize,
) -> Result<(Vec<Entry>, bool), Refused> {
    let mut entries = Vec::new();
    let mut folder = Dir::new(fd)?;
    while let Some(next) = folder.read() {
        let next = next?;
        let name = next.file_name().to_bytes();
        // Dotfiles, `.` and `..`; `.well-known` is there to be known, not to be listed.
        if name.starts_with(b".") {
            continue;
        }
        let Ok(stat) = stat(files, path, &folder, name) else {
            continue;
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::RegularFile && kind != FileType::Directory {
            continue;
        }
        if entries.len() == max {
            return Ok((entries, true));
        }
        entries.push(Entry {
            name: name.to_vec(),
            folder: kind == FileType::Directory,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: open::modified(&stat),
        });
    }
    Ok((entries, false))
}

/// What `name` is; what a link leads to is looked at as a request would, so that nothing is told
/// of a file outside.
fn stat(files: &config::Files, path: &[u8], folder: &Dir, name: &[u8]) -> Result<Stat, Errno> {
    let stat = statat(folder.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Ok(stat);
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    fstat(beneath::open(&files.fd, &[path, name].concat(), flags)?)
}

impl Order {
    /// Reads a query; what is not understood is ignored.
    fn of(query: &str) -> Self {
        let mut order = Self {
            column: Column::Name,
            descending: false,
        };
        for pair in query.split(['&', ';']) {
            match pair {
                "C=N" => order.column = Column::Name,
                "C=M" => order.column = Column::Modified,
                "C=S" => order.column = Column::Size,
                "O=A" => order.descending = false,
                "O=D" => order.descending = true,
                _ => {}
            }
        }
        order
    }

    /// Folders first, then by column; names decide between equals and keep the list total.
    fn compare(self, a: &Entry, b: &Entry) -> Ordering {
        let by_name = || lower_cmp(&a.name, &b.name).then_with(|| a.name.cmp(&b.name));
        let by_column = match self.column {
            Column::Name => by_name(),
            Column::Modified => a.modified.cmp(&b.modified).then_with(by_name),
            Column::Size if a.folder => by_name(),
            Column::Size => a.size.cmp(&b.size).then_with(by_name),
        };
        let by_column = if self.descending {
            by_column.reverse()
        } else {
            by_column
        };
        b.folder.cmp(&a.folder).then(by_column)
    }
}

/// Compares letters without their case, where that is ASCII.
fn lower_cmp(a: &[u8], b: &[u8]) -> Ordering {
    let lower = u8::to_ascii_lowercase;
    a.iter().map(lower).cmp(b.iter().map(lower))
}
