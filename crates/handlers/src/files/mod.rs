//! Static files. Each request takes these steps: 1. method 2. open 3. conditional 4. range 5. body.
//!
//! Every decision is about the opened file, never about its name: openat2, fstat, read, close. A small file is remembered, and a
//! few large files stay open for a moment. Such a file costs one fstatat while it stays the same; replacing a file takes effect
//! at once.

mod cache;
mod entries;
mod file_settings;
mod listing;
mod open;
mod page;
mod send_file;
mod types;
mod variant;
pub mod waits;

#[cfg(test)]
mod tests;

use std::time::SystemTime;

use galgo_proto::h1::{Head, Method};

pub use self::cache::{OPEN, close_open};
pub use crate::files::file_settings::Files;
use galgo_service::body::Response;

use self::{
    listing::List,
    open::{OpenRefusal, Opened},
};

const ALLOW: &str = "GET, HEAD, OPTIONS";
/// Forgets everything that is cached for any folder: a route may be gone, and another route may get its number.
pub fn forget_cached() {
    cache::forget();
    listing::forget_listings();
}

/// Methods with a meaning in HTTP and WebDAV (RFC 9110, 9.3; RFC 5789; RFC 4918), but not for a file.
const NOT_ALLOWED: [&str; 10] = [
    "PUT",
    "DELETE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
];

const METHODS: &str = "files are for GET, HEAD and OPTIONS";
const SOURCE: &str = "its name is that of a program's source (`cgi_names`, [interpreters]), which is not shown, or of a file of passwords";
const NO_INDEX: &str = "the folder has no index, and is not listed: add one of the files that `index` names, or set `listing`";

/// Answers a request for the file at `rest`, the decoded path below the route, without a leading slash.
///
/// Takes from the target whether a folder was asked for with its slash, because `rest` is empty for the route's own folder either
/// way. `elsewhere` returns whether another route answers for an index of that name.
pub fn answer<'a>(
    files: &'a Files,
    head: &'a Head,
    rest: &[u8],
    elsewhere: impl Fn(&str) -> bool,
) -> FileAnswer<'a> {
    match head.method {
        Method::Get | Method::Head => {}
        Method::Other(ref m) if m == "OPTIONS" => {
            return FileAnswer::Now(Response::new(204).with_field("Allow", ALLOW), None);
        }
        Method::Other(ref m) if !NOT_ALLOWED.contains(&m.as_str()) => {
            return FileAnswer::Now(Response::new(501), Some(METHODS));
        }
        _ => return FileAnswer::Now(Response::new(405).with_field("Allow", ALLOW), Some(METHODS)),
    }
    // The cache does not distinguish hosts, but another route may answer for an index on some hosts.
    let leads_on =
        head.target.path().ends_with(b"/") && files.index.iter().any(|name| elsewhere(name));
    if leads_on || !cache::applies(files, head) {
        return answer_uncached(files, head, rest, elsewhere);
    }
    match cache::cached_answer(files, rest) {
        Some(response) => FileAnswer::Now(response, None),
        None => answer_and_cache(files, head, rest),
    }
}

/// An answer, or a task that takes longer.
#[derive(Debug)]
pub enum FileAnswer<'a> {
    /// A response, and the reason of a refusal if the log is to tell it.
    Now(Response, Option<&'static str>),
    /// A folder to list.
    List(List<'a>),
    /// The folder's index is this file, but another route answers for it.
    Elsewhere(&'a str),
    /// Another thread has to look ([`waits::answer`]).
    Waits,
}

impl<'a> FileAnswer<'a> {
    /// Returns the answer if it needs no waiting: a response, or the name of an index that another route answers for.
    ///
    /// # Errors
    /// The answer needs waiting: call [`FileAnswer::response`].
    pub fn into_immediate(self) -> Result<Result<(Response, Option<&'static str>), &'a str>, Self> {
        match self {
            Self::Now(response, cause) => Ok(Ok((response, cause))),
            Self::Elsewhere(name) => Ok(Err(name)),
            later => Err(later),
        }
    }

    /// Returns the answer, and the reason if it is a refusal. A list is made once there is `room` for it.
    ///
    /// # Errors
    /// Another route answers, for the index of this name; `None`: another thread has to look.
    pub async fn response(
        self,
        room: impl Future<Output = ()>,
    ) -> Result<(Response, Option<&'static str>), Option<&'a str>> {
        match self {
            Self::Now(response, cause) => Ok((response, cause)),
            Self::List(list) => {
                let page = Box::pin(list.into_response(room)).await;
                let cause = page
                    .as_ref()
                    .err()
                    .and_then(|refused| refused.reason_to_log());
                Ok((page.unwrap_or_else(OpenRefusal::response), cause))
            }
            Self::Elsewhere(name) => Err(Some(name)),
            Self::Waits => Err(None),
        }
    }
}

/// Does the same as [`answer_uncached`], and caches the answer for the next request if the cache accepts it.
fn answer_and_cache<'a>(files: &'a Files, head: &'a Head, rest: &[u8]) -> FileAnswer<'a> {
    let mut path = rest.to_vec();
    if head.target.path().ends_with(b"/") {
        // Cache only the first index: an index before it in the list may appear at any time.
        path.extend_from_slice(files.index.first().map_or("", String::as_str).as_bytes());
    }
    let before = if open::may_be_seen(rest) && !path.is_empty() && !path.ends_with(b"/") {
        cache::file_identity(files, &path)
    } else {
        None
    };
    let answered = answer_uncached(files, head, rest, |_| false);
    if let (Some(before), FileAnswer::Now(response, _)) = (before, &answered) {
        cache::cache_answer(files, rest, path, before, response);
    }
    answered
}

/// Answers with the file at `rest` that a program hands over, as `media_type` if the program named one. `None`: the file does not
/// exist, or may not be seen.
///
/// # Errors
/// Another thread has to look.
pub(crate) fn send_for_program(
    files: &Files,
    head: &Head,
    rest: &[u8],
    media_type: Option<String>,
) -> Result<Option<Response>, Waits> {
    if !open::may_be_seen(rest) {
        return Ok(None);
    }
    match open::open_path(&files.fd, rest) {
        Ok(Opened::File(file)) if !file.is_source(files, rest) => {
            Ok(
                send_file::answer_with_file(files, head, rest, file, media_type, SystemTime::now())
                    .ok(),
            )
        }
        Err(OpenRefusal::Waits) => Err(Waits),
        Ok(_) | Err(_) => Ok(None),
    }
}

/// Another thread has to look, because looking may have to wait for a file system.
#[derive(Debug)]
pub struct Waits;

fn answer_uncached<'a>(
    files: &'a Files,
    head: &'a Head,
    rest: &[u8],
    elsewhere: impl Fn(&str) -> bool,
) -> FileAnswer<'a> {
    let refused = |why: OpenRefusal| match why {
        OpenRefusal::Waits => FileAnswer::Waits,
        why => FileAnswer::Now(why.response(), why.reason_to_log()),
    };
    find_answer(files, head, rest, elsewhere).unwrap_or_else(refused)
}

/// Returns whether the route answers for `below` with a file. If `below` ends in `/`: with a folder's index or list.
///
/// # Errors
/// Another thread has to look.
pub fn has_file(files: &Files, below: &[u8]) -> Result<bool, Waits> {
    let open = |path: &[u8]| match open::open_path(&files.fd, path) {
        Err(OpenRefusal::Waits) => Err(Waits),
        opened => Ok(opened.ok()),
    };
    let is_file = |path: &[u8]| Ok(matches!(open(path)?, Some(Opened::File(_))));
    if !open::may_be_seen(below) {
        return Ok(false);
    }
    let Some(folder) = below
        .strip_suffix(b"/")
        .or(below.is_empty().then_some(below))
    else {
        return is_file(below);
    };
    match open(folder)? {
        Some(Opened::Folder(_)) if files.listing => Ok(true),
        Some(Opened::Folder(_)) => {
            let mut index = files
                .index
                .iter()
                .map(|name| [below, name.as_bytes()].concat());
            // Find the first index that is a file, or that this thread cannot look at.
            let found =
                index.find_map(|path| is_file(&path).map(|is| is.then_some(true)).transpose());
            found.unwrap_or(Ok(false))
        }
        _ => Ok(false),
    }
}

fn find_answer<'a>(
    files: &'a Files,
    head: &'a Head,
    rest: &[u8],
    elsewhere: impl Fn(&str) -> bool,
) -> Result<FileAnswer<'a>, OpenRefusal> {
    if !open::may_be_seen(rest) {
        return Err(OpenRefusal::NotFound);
    }
    if head.target.path().ends_with(b"/") {
        return answer_folder(files, head, rest, elsewhere);
    }
    match open::open_path(&files.fd, rest)? {
        Opened::File(file) if file.is_source(files, rest) => Err(OpenRefusal::Forbidden(SOURCE)),
        Opened::File(file) => answer_whole_file(files, head, rest, file),
        Opened::Folder(_) => Ok(FileAnswer::Now(redirect_to_slash(head), None)),
    }
}

/// Answers with the first index that is a file, else with a list of the folder. The folder itself is opened only for the list:
/// thus the usual folder costs as much as a file, and need not be readable.
fn answer_folder<'a>(
    files: &'a Files,
    head: &'a Head,
    rest: &[u8],
    elsewhere: impl Fn(&str) -> bool,
) -> Result<FileAnswer<'a>, OpenRefusal> {
    let mut path = Vec::with_capacity(rest.len() + 16);
    path.extend_from_slice(rest);
    if !rest.is_empty() && !rest.ends_with(b"/") {
        path.push(b'/');
    }
    let base = path.len();
    for name in &files.index {
        path.truncate(base);
        path.extend_from_slice(name.as_bytes());
        match open::open_path(&files.fd, &path) {
            Ok(Opened::File(_)) if elsewhere(name) => return Ok(FileAnswer::Elsewhere(name)),
            Ok(Opened::File(file)) if file.is_source(files, &path) => {
                return Err(OpenRefusal::Forbidden(SOURCE));
            }
            Ok(Opened::File(file)) => return answer_whole_file(files, head, &path, file),
            Ok(Opened::Folder(_)) | Err(OpenRefusal::NotFound) => {}
            Err(refused) => return Err(refused),
        }
    }
    path.truncate(base);
    match open::open_path(&files.fd, &path)? {
        // Entries that other users put into the folder may be on another file system.
        Opened::Folder(fd) if files.listing && !listing::is_at_hand(files, &fd)? => {
            Err(OpenRefusal::Waits)
        }
        Opened::Folder(fd) if files.listing => Ok(FileAnswer::List(List {
            files,
            head,
            path,
            fd,
        })),
        Opened::Folder(_) => Err(OpenRefusal::Forbidden(NO_INDEX)),
        Opened::File(_) => Err(OpenRefusal::NotFound),
    }
}

fn answer_whole_file<'a>(
    files: &Files,
    head: &Head,
    path: &[u8],
    file: open::OpenFile,
) -> Result<FileAnswer<'a>, OpenRefusal> {
    let response = send_file::answer_with_file(files, head, path, file, None, SystemTime::now())?;
    Ok(FileAnswer::Now(response, None))
}

/// Redirects to the same target with a slash at its end. Dot segments are resolved; the rest stays as it came.
///
/// The new path has one slash in front and no backslash: browsers take `//evil.example/` and `/\evil.example/` for other sites.
pub fn redirect_to_slash(head: &Head) -> Response {
    let raw = head.target.request_uri();
    let (path, query) = raw.split_at(raw.find('?').unwrap_or(raw.len()));
    let path = path.trim_start_matches('/').replace('\\', "%5C");
    Response::new(301).with_field("Location", format!("/{path}/{query}"))
}
