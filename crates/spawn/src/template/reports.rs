//! What a template tells until it has stopped.

use super::search::SearchPath;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use std::{
    collections::BTreeSet, ffi::OsStr, io, os::fd::OwnedFd, os::unix::ffi::OsStrExt, path::PathBuf,
};

/// A program made of more than this, in bytes of file names, is not kept in memory.
const MOST: usize = 4 << 20;

/// A message counts for so much at least, bytes: one that sends nothing but small ones would keep an event loop, which
/// reads until there is none.
const EACH: usize = 1 << 10;

/// A template that has stopped.
#[derive(Debug, Default)]
pub struct LoadedTemplate {
    /// The files it was made from: it is stale when one of them changes. Of a folder what stands in it counts.
    pub files: BTreeSet<PathBuf>,
    /// Files that it looked for and did not find: it is stale when one of them comes.
    pub absent: BTreeSet<PathBuf>,
    /// What it holds in memory, its share of what it shares with others included, bytes; 0 where that is not known.
    pub memory: u64,
    /// What stands in the way of using it, in words for the log.
    pub obstacle: Option<String>,
    /// Where it looks for modules.
    pub search: SearchPath,
    /// Learned modules that do more than load, or fail: each child loads them for itself.
    pub left: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) loaded: LoadedTemplate,
    size: usize,
    /// Nothing of the program itself has run.
    pub(super) holds: bool,
}

impl Reports {
    /// Reads what is there. Whether the template has stopped.
    pub(super) fn read(&mut self, control: &OwnedFd) -> io::Result<bool> {
        let mut message = vec![0u8; 64 << 10];
        let mut reset = false;
        loop {
            let length = match recv(control, &mut message[..], RecvFlags::DONTWAIT) {
                // It ended before it had read what it was sent. The kernel says that first, once: what it has told comes
                // behind.
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
                b'F' => self.loaded.files.extend(paths(text)),
                b'A' => self.loaded.absent.extend(paths(text)),
                b'N' => {
                    self.loaded.obstacle = Some(String::from_utf8_lossy(text).into_owned());
                }
                b'S' => self.loaded.search.tell(text),
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

/// Absolute paths, one a line.
fn paths(text: &[u8]) -> impl Iterator<Item = PathBuf> {
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
