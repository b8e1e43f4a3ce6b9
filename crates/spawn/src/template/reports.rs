//! Reads a template's reports until it has stopped.

use super::search::SearchPath;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use std::{
    collections::BTreeSet, ffi::OsStr, io, os::fd::OwnedFd, os::unix::ffi::OsStrExt, path::PathBuf,
};

/// The limit of reported file names, bytes. A program made of more is not kept in memory.
const MOST: usize = 4 << 20;

/// The least that a message counts for, bytes. Otherwise a template that sends only small messages would keep an event loop
/// busy, because the loop reads until there is none.
const EACH: usize = 1 << 10;

/// A template that has stopped, and its reports.
#[derive(Debug, Default)]
pub struct LoadedTemplate {
    /// The files that the template was made from: it is stale when one changes. A folder counts as its entries.
    pub files: BTreeSet<PathBuf>,
    /// Files that the template looked for and did not find: it is stale when one appears.
    pub absent: BTreeSet<PathBuf>,
    /// Bytes that the template holds in memory, including its share of memory that it shares with others; 0 if not known.
    pub memory: u64,
    /// The obstacle to using the template, in words for the log.
    pub obstacle: Option<String>,
    /// The template's search path for modules.
    pub search: SearchPath,
    /// Learned modules that do more than load, or fail: each child loads them for itself.
    pub left: Vec<String>,
    /// The learned modules were checked for this template; if not, another template will get them.
    pub knows_modules: bool,
    /// The value of [`count_renewals`](crate::standard_ruleset::count_renewals) before the template was started: programs that
    /// are started later may write to other files.
    pub(super) renewals: u64,
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) loaded: LoadedTemplate,
    size: usize,
    /// Whether the template has reported that no code of the program itself has run.
    pub(super) holds: bool,
}

impl Reports {
    /// Reads the reports that are there. Returns whether the template has stopped.
    pub(super) fn read(&mut self, control: &OwnedFd) -> io::Result<bool> {
        let mut message = vec![0u8; 64 << 10];
        let mut reset = false;
        loop {
            let length = match recv(control, &mut message[..], RecvFlags::DONTWAIT) {
                // The template ended before it had read all messages. The kernel reports that once, first; the template's own
                // messages follow.
                Err(Errno::CONNRESET) if !reset => {
                    reset = true;
                    continue;
                }
                Ok((0, _)) | Err(Errno::CONNRESET) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok((n, _)) => n,
                Err(Errno::AGAIN) => return Ok(false),
                Err(e) => return Err(e.into()),
            };
            self.size += length.max(EACH);
            if self.size > MOST {
                return Err(io::Error::other(
                    "it names more files than a program is made of",
                ));
            }
            let text = &message[1..length];
            match message[0] {
                b'F' => self.loaded.files.extend(parse_paths(text)),
                b'A' => self.loaded.absent.extend(parse_paths(text)),
                b'N' => {
                    self.loaded.obstacle = Some(String::from_utf8_lossy(text).into_owned());
                }
                b'S' => self.loaded.search.add_report(text),
                b'L' => self.loaded.left.extend(
                    text.split(|&b| b == b'\n')
                        .filter(|name| !name.is_empty())
                        .map(|name| String::from_utf8_lossy(name).into_owned()),
                ),
                b'B' => self.holds = true,
                b'R' => {
                    self.holds = true;
                    return Ok(true);
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// Returns absolute paths, one a line.
fn parse_paths(text: &[u8]) -> impl Iterator<Item = PathBuf> {
    text.split(|&b| b == b'\n')
        .filter(|path| path.starts_with(b"/"))
        .map(|path| PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    #[test]
    fn what_was_told_counts_though_the_rest_was_not_read() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        send(&ours, b"M", SendFlags::NOSIGNAL).unwrap();
        send(&theirs, b"B", SendFlags::NOSIGNAL).unwrap();
        drop(theirs);
        let mut reports = Reports::default();
        let ended = reports.read(&ours).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        assert!(reports.holds);
    }

    #[test]
    fn a_template_that_never_stops_telling_is_heard_out_for_a_while_only() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let mut reports = Reports::default();
        let mut told = 0;
        while reports.read(&ours).is_ok() {
            told += 1;
            assert!(told <= MOST / EACH + 1, "it is still heard");
            send(&theirs, b"F", SendFlags::empty()).unwrap();
        }
        assert_eq!(told, MOST / EACH + 1);
    }
}
