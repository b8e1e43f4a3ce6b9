//! The path of a target. It is decoded, then dot segments are removed, then runs of slashes become one slash.
//!
//! All decisions about a request use the result, so that no spelling leads round a rule. Runs of slashes are
//! kept beside it for PATH_INFO: hgweb and fossil give them a meaning.

use memchr::{memchr, memmem, memrchr};

use crate::{
    digits::parse_percent,
    head_error::HeadError,
    target::target_error::{DOT_SEGMENT, PERCENT},
};

/// A decoded path without dot segments, in two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlPath<'p> {
    /// With runs of slashes as one. Routes, rules and files are found by this form.
    pub clean: &'p [u8],
    /// With the slashes that came.
    pub came: &'p [u8],
}

impl<'p> UrlPath<'p> {
    /// Makes a path that is known to be clean, such as that of a file found by listing folders.
    pub fn from_clean(path: &'p [u8]) -> Self {
        Self {
            clean: path,
            came: path,
        }
    }

    /// Splits the path into SCRIPT_NAME, the first `length` bytes of the clean path, and PATH_INFO, the rest
    /// with all the slashes that came (`//b//c` of `//a//b//c`). If SCRIPT_NAME is empty, the first run of
    /// slashes belongs to the root, and becomes one. So a program that redirects to its own path names no other
    /// host. `None`: the path is shorter.
    pub fn split_at(self, length: usize) -> Option<(&'p [u8], &'p [u8])> {
        let (script_name, rest) = self.clean.split_at_checked(length)?;
        if self.clean.len() == self.came.len() {
            return Some((script_name, rest));
        }
        let (mut at, mut seen) = (0, 0);
        while seen < length.max(1) {
            let within_run = self.came[at..].starts_with(b"//");
            seen += usize::from(!within_run);
            at += 1;
        }
        Some((script_name, &self.came[at - usize::from(length == 0)..]))
    }
}

/// Decodes a path once. Some programs take an encoded slash for text of a segment, but the file system for a
/// separator. So it is refused, unless `slashes` makes it a separator everywhere. `None`: nothing is encoded.
pub(super) fn decode(path: &[u8], slashes: bool) -> Result<Option<Vec<u8>>, HeadError> {
    if memchr(b'%', path).is_none() {
        return Ok(None);
    }
    let mut rest = path;
    let mut out = Vec::with_capacity(path.len());
    while let Some(at) = memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let b = parse_percent(&rest[at + 1..]).ok_or(PERCENT)?;
        if (b == b'/' && !slashes) || b.is_ascii_control() {
            return Err(PERCENT);
        }
        out.push(b);
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Ok(Some(out))
}

/// Returns whether a decoded path holds a segment `.` or `..`.
pub(super) fn has_dots(path: &[u8]) -> bool {
    // Nearly every dot is inside the name of a file.
    memmem::find(path, b"/.").is_some()
        && path.split(|&b| b == b'/').any(|s| s == b"." || s == b"..")
}

/// Removes the dot segments of a decoded path (RFC 3986, 5.2.4), where a run of slashes counts as one. A
/// surplus `..` is refused: RFC 3986 would drop it, and no honest client sends it.
pub(super) fn remove_dots(path: &[u8]) -> Result<Vec<u8>, HeadError> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut rest = path;
    while !rest.is_empty() {
        let run = rest.iter().take_while(|&&b| b == b'/').count();
        let end = memchr(b'/', &rest[run..]).map_or(rest.len(), |at| run + at);
        let (segment, behind) = (&rest[run..end], &rest[end..]);
        match segment {
            b".." => {
                let parent = memrchr(b'/', &out).ok_or(DOT_SEGMENT)?;
                out.truncate(parent);
                let run = out.iter().rev().take_while(|&&b| b == b'/').count();
                out.truncate(out.len() - run);
            }
            b"." => {}
            _ => out.extend_from_slice(&rest[..end]),
        }
        // `/a/.` and `/a/b/..` are the folder `/a/`.
        if behind.is_empty() && matches!(segment, b"." | b"..") {
            out.push(b'/');
        }
        rest = behind;
    }
    Ok(out)
}

/// Returns the path with runs of slashes as one; `None` if it has no runs.
pub(super) fn merge_slashes(path: &[u8]) -> Option<Vec<u8>> {
    memmem::find(path, b"//")?;
    let mut out = path.to_vec();
    out.dedup_by(|b, before| *b == b'/' && *before == b'/');
    Some(out)
}

/// Encodes a path for a target: all bytes that may not stand in a path (RFC 3986, 3.3) are percent-encoded.
pub(super) fn encode(path: &[u8]) -> String {
    const PLAIN: &[u8] = b"/-._~!$&'()*+,;=:@";
    let mut out = String::with_capacity(path.len());
    for &b in path {
        match b {
            b if b.is_ascii_alphanumeric() || PLAIN.contains(&b) => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}
