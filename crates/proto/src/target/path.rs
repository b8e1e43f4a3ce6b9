//! The path of a target: 1. decode  2. remove dot segments  3. take runs of slashes as one.
//!
//! Whatever decides about a request looks at the result, so that no spelling leads round a rule. Runs of
//! slashes are kept beside it for PATH_INFO: hgweb and fossil give them a meaning.

use memchr::{memchr, memmem, memrchr};

use super::error::{DOT_SEGMENT, PERCENT};
use crate::{digits::percent, head_error::HeadError};

/// A decoded path without dot segments, twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlPath<'p> {
    /// With runs of slashes as one: what routes, rules and files are found by.
    pub clean: &'p [u8],
    /// With the slashes that came.
    pub came: &'p [u8],
}

impl<'p> UrlPath<'p> {
    /// A path that is known to be clean, as that of a file which was found by listing folders.
    pub fn plain(path: &'p [u8]) -> Self {
        Self {
            clean: path,
            came: path,
        }
    }

    /// SCRIPT_NAME, the first `length` bytes of the clean path, and PATH_INFO: what came behind them, with
    /// all its slashes (`//b//c` of `//a//b//c`). Where SCRIPT_NAME is empty, the run that the path begins with
    /// belongs to the root, and is one: a program that redirects to its own path names no other host.
    /// `None`: the path is shorter.
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

/// Decodes a path once. An encoded slash is a segment's text for some and a separator for the file system:
/// it is refused, unless `slashes` has it count as a separator for everybody. `None`: nothing is encoded.
pub(super) fn decode(path: &[u8], slashes: bool) -> Result<Option<Vec<u8>>, HeadError> {
    if memchr(b'%', path).is_none() {
        return Ok(None);
    }
    let mut rest = path;
    let mut out = Vec::with_capacity(path.len());
    while let Some(at) = memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let b = percent(&rest[at + 1..]).ok_or(PERCENT)?;
        if (b == b'/' && !slashes) || b.is_ascii_control() {
            return Err(PERCENT);
        }
        out.push(b);
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Ok(Some(out))
}

/// Whether a decoded path holds a segment `.` or `..`.
pub(super) fn has_dots(path: &[u8]) -> bool {
    // Nearly every dot is one in the name of a file.
    memmem::find(path, b"/.").is_some()
        && path.split(|&b| b == b'/').any(|s| s == b"." || s == b"..")
}

/// A decoded path without its dot segments (RFC 3986, 5.2.4), where a run of slashes counts as one. One `..`
/// too many is refused: RFC 3986 would drop it, and no honest client sends it.
pub(super) fn without_dots(path: &[u8]) -> Result<Vec<u8>, HeadError> {
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

/// The path with runs of slashes as one; `None` where it has none.
pub(super) fn merged(path: &[u8]) -> Option<Vec<u8>> {
    memmem::find(path, b"//")?;
    let mut out = path.to_vec();
    out.dedup_by(|b, before| *b == b'/' && *before == b'/');
    Some(out)
}

/// A path as a target would have it: percent-encoded is whatever may not stand in a path (RFC 3986, 3.3).
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
