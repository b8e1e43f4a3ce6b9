//! Lists the entries of a folder in the requested order.

use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::{BTreeSet, VecDeque},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use galgo_proto::{
    cond::{self, CondOutcome, Validators},
    h1::Head,
};
use galgo_service::body::{Body, Response};
use galgo_spawn::{FileId, trusted_path};
use rustix::{
    fs::{AtFlags, Dir, FileType, Stat, fstat, statat},
    io::Errno,
};
use tokio::{sync::Mutex, time::Instant};

use super::{
    entries::{Column, Listed, ListingEntry, MAX_ENTRIES, PAGE, SortOrder},
    open::{self, OpenRefusal},
    page,
};
use crate::{beneath, files::file_settings::Files};

/// Entries to look at before the event loop goes on: some tenths of a millisecond.
const PIECE: usize = 64;
/// Time that a list is reused unless the folder itself has changed: sizes and times of files may be this much out of date.
const FRESH: Duration = Duration::from_secs(1);
/// Lists that each thread keeps for that time, of up to 3 MB each.
const FOLDERS: usize = 4;

/// A folder to list.
#[derive(Debug)]
pub struct List<'a> {
    pub(super) files: &'a Files,
    pub(super) head: &'a Head,
    /// Path of the folder below the route, empty or with its slash.
    pub(super) path: Vec<u8>,
    /// Descriptor of the folder.
    pub(super) fd: OwnedFd,
}

impl List<'_> {
    pub(super) async fn into_response(
        self,
        room: impl Future<Output = ()>,
    ) -> Result<Response, OpenRefusal> {
        // A list exists, but has no version.
        let current = Validators {
            etag: None,
            modified: None,
        };
        match cond::evaluate(&self.head.method, &self.head.fields, Some(current)) {
            CondOutcome::Failed => return Ok(Response::new(412)),
            CondOutcome::NotModified => return Ok(Response::new(304)),
            CondOutcome::Proceed => {}
        }
        let query = self.head.target.query();
        let order = SortOrder::from_query(query);
        let listed = load_listing(self.files, &self.path, self.fd).await?;
        room.await;
        let html = render_page((self.head, &self.path), &listed, order, page_number(query));
        let mut response = Response::new(200)
            .with_field("Content-Type", "text/html; charset=utf-8")
            // The users that may write here choose the names. If a name ever gets through the escaping, it still runs nothing.
            .with_field(
                "Content-Security-Policy",
                "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
            );
        response.body = Body::Shared(html);
        Ok(response)
    }
}

/// Returns a page of the list of the folder at `path` below the route.
fn render_page(
    (head, path): (&Head, &[u8]),
    listed: &Listed,
    order: SortOrder,
    number: usize,
) -> Arc<[u8]> {
    let asked = (head.target.path().to_vec(), order, number);
    if let Some((known, html)) = &*listed.last.borrow()
        && *known == asked
    {
        return html.clone();
    }
    let all = listed.ordered(order);
    let number = number.min(all.len().div_ceil(PAGE)).max(1);
    let entries: Vec<_> = all
        .into_iter()
        .skip((number - 1) * PAGE)
        .take(PAGE)
        .collect();
    let html = page::render_html(&page::Page {
        path: head.target.path(),
        is_root: path.is_empty(),
        entries: &entries,
        folder: listed,
        number,
        order,
    });
    let html: Arc<[u8]> = html.into_bytes().into();
    listed.last.replace(Some((asked, html.clone())));
    html
}

/// Identifies a state of a folder. Targets of links are opened beneath the route, so that the same folder has another list on
/// another route.
#[derive(Debug, PartialEq, Eq)]
struct ListingKey {
    route: RawFd,
    path: Vec<u8>,
    folder: FileId,
}

thread_local! {
    static CACHED: RefCell<VecDeque<(ListingKey, Instant, Rc<Listed>)>> = RefCell::default();
    /// Serializes reading: a request that waits for the same folder finds its list cached.
    static READING: Rc<Mutex<()>> = Rc::default();
}

/// Returns whether this thread may look at everything in the folder: no mount of another user can make it wait.
pub(super) fn is_at_hand(files: &Files, folder: &OwnedFd) -> Result<bool, OpenRefusal> {
    Ok(beneath::may_wait() || files.fd.is_closed() && trusted_path::is_closed(&fstat(folder)?))
}

/// Returns the entries of the folder, at most [`FRESH`] old.
async fn load_listing(files: &Files, path: &[u8], fd: OwnedFd) -> Result<Rc<Listed>, OpenRefusal> {
    let key = || -> Result<ListingKey, OpenRefusal> {
        Ok(ListingKey {
            route: files.fd.as_fd().as_raw_fd(),
            path: path.to_vec(),
            folder: FileId::from_stat(&fstat(&fd)?),
        })
    };
    if let Some(listed) = cached_listing(&key()?, Instant::now()) {
        return Ok(listed);
    }
    let reading = READING.with(Rc::clone);
    let _one = reading.lock().await;
    // Take the key before reading: a change meanwhile makes another key.
    let key = key()?;
    if let Some(listed) = cached_listing(&key, Instant::now()) {
        return Ok(listed);
    }
    let listed = Rc::new(read(files, path, fd, MAX_ENTRIES).await?);
    cache_listing(key, Instant::now(), listed.clone());
    Ok(listed)
}

fn cache_listing(key: ListingKey, now: Instant, listed: Rc<Listed>) {
    CACHED.with_borrow_mut(|cached| {
        cached.truncate(FOLDERS - 1);
        cached.push_front((key, now, listed));
    });
}

fn cached_listing(key: &ListingKey, now: Instant) -> Option<Rc<Listed>> {
    CACHED.with_borrow_mut(|cached| {
        cached.retain(|(_, since, _)| now.saturating_duration_since(*since) < FRESH);
        let found = cached.iter().find(|(k, ..)| k == key);
        found.map(|(.., listed)| listed.clone())
    })
}

/// Forgets the cached lists: a route may be gone, and another route may get its number.
pub(super) fn forget_listings() {
    CACHED.take();
}

/// Reads the entries that can be served, at most `max`. The event loop goes on between pieces.
pub(super) async fn read(
    files: &Files,
    path: &[u8],
    fd: OwnedFd,
    max: usize,
) -> Result<Listed, OpenRefusal> {
    let mut all = BTreeSet::new();
    let mut more = false;
    let mut folder = Dir::new(fd)?;
    let mut looked: usize = 0;
    while let Some(next) = folder.read() {
        looked += 1;
        if looked.is_multiple_of(PIECE) {
            tokio::task::yield_now().await;
        }
        let Some(entry) = listing_entry(files, path, &folder, next?.file_name().to_bytes()) else {
            continue;
        };
        if all.len() == max {
            more = true;
            break;
        }
        all.insert(entry);
    }
    Ok(Listed {
        folders: all.iter().take_while(|entry| entry.folder).count(),
        entries: all.into_iter().collect(),
        more,
        last: RefCell::default(),
    })
}

/// Returns the entry of a name; `None` if the list leaves it out.
fn listing_entry(files: &Files, path: &[u8], folder: &Dir, name: &[u8]) -> Option<ListingEntry> {
    // Skip dotfiles, `.` and `..`. Clients know `.well-known` without a list.
    if name.starts_with(b".") {
        return None;
    }
    let stat = stat_entry(files, path, folder, name).ok()?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let size = match kind {
        FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0),
        FileType::Directory => 0,
        _ => return None,
    };
    Some(ListingEntry {
        name: name.to_vec(),
        folder: kind == FileType::Directory,
        size,
        modified: open::modified(&stat),
    })
}

/// Returns the status of `name`. A link is followed as for a request, so that the list reveals nothing about a file outside.
fn stat_entry(files: &Files, path: &[u8], folder: &Dir, name: &[u8]) -> Result<Stat, Errno> {
    let stat = statat(folder.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Ok(stat);
    }
    let path = [path, name].concat();
    fstat(beneath::open_path(&files.fd, &path, beneath::NAME)?)
}

impl Column {
    pub(super) fn query_letter(self) -> char {
        match self {
            Self::Name => 'N',
            Self::Modified => 'M',
            Self::Size => 'S',
        }
    }
}

impl SortOrder {
    pub(super) fn direction(self) -> char {
        if self.descending { 'D' } else { 'A' }
    }

    /// Reads a query and ignores whatever it does not understand.
    fn from_query(query: &str) -> Self {
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
}

impl Listed {
    /// Returns the entries, folders first, then by column, then by name.
    fn ordered(&self, order: SortOrder) -> Vec<&ListingEntry> {
        let mut all: Vec<_> = self.entries.iter().collect();
        let (folders, files) = all.split_at_mut(self.folders);
        for part in [folders, files] {
            // The entries come sorted by name, and the sort is stable.
            match order.column {
                Column::Name => {}
                Column::Modified => part.sort_by_key(|e| e.modified),
                Column::Size => part.sort_by_key(|e| e.size),
            }
            if order.descending {
                part.reverse();
            }
        }
        all
    }
}

/// Returns the number of the page that a query asks for; 1 if there is no valid number.
fn page_number(query: &str) -> usize {
    let mut pairs = query.split(['&', ';']);
    let page = |pair: &str| {
        let number = pair.strip_prefix("page=")?;
        let digits = number.bytes().all(|b| b.is_ascii_digit());
        digits.then_some(number)?.parse().ok()
    };
    pairs.find_map(page).unwrap_or(1)
}

/// Sorts folders first, then by name, ignoring the case of ASCII letters. No two entries of a folder have the same name.
impl Ord for ListingEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        let folders_first = other.folder.cmp(&self.folder);
        let [own, others] =
            [self, other].map(|entry| entry.name.iter().map(u8::to_ascii_lowercase));
        let by_name = || own.cmp(others).then_with(|| self.name.cmp(&other.name));
        folders_first.then_with(by_name)
    }
}

impl PartialOrd for ListingEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_for_a_second_and_few_are() {
        let key = |route| ListingKey {
            route,
            path: Vec::new(),
            folder: FileId::from_stat(&rustix::fs::stat("/").unwrap()),
        };
        let now = Instant::now();
        let listed = Listed::default;
        for route in 0..10 {
            cache_listing(key(route), now, Rc::new(listed()));
        }
        assert_eq!(CACHED.with_borrow(VecDeque::len), FOLDERS);
        assert!(cached_listing(&key(9), now + FRESH / 2).is_some());
        assert!(cached_listing(&key(5), now + FRESH / 2).is_none());
        assert!(cached_listing(&key(9), now + FRESH).is_none());
        cache_listing(key(9), now, Rc::new(listed()));
        forget_listings();
        assert!(cached_listing(&key(9), now).is_none());
    }
}
