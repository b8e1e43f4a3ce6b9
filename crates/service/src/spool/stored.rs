//! Waiting bytes of one request.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fchmod, fcntl_add_seals, memfd_create},
    io::Errno,
};

use super::{charge::Charge, folder, full::Full, threads::SpoolThreads};

/// A file without a name, in memory or on disk. It is written and read by offsets.
#[derive(Debug)]
pub struct Stored {
    place: Arc<SpoolFile>,
    len: u64,
}

/// The file and its charge. The last close of a file on a stalled disk waits as long as a write does.
#[derive(Debug)]
struct SpoolFile {
    /// The open file; `None`: the file is being closed.
    file: Option<SpooledFile>,
    /// The threads that write, read and close the file; `None`: the file is in memory, and the caller does that at once.
    threads: Option<Arc<SpoolThreads>>,
}

#[derive(Debug)]
struct SpooledFile {
    file: File,
    /// A read-only descriptor of a file on disk, opened early, because opening may take as long as writing.
    readable: Option<OwnedFd>,
    charge: Charge,
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        if let (Some(file), Some(threads)) = (self.file.take(), &self.threads) {
            // If there is no thread, the file is closed here.
            drop(threads.push(Box::new(move || drop(file))));
        }
    }
}

impl SpoolFile {
    fn opened_file(&self) -> io::Result<&SpooledFile> {
        Ok(self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Writes a piece at an offset, and charges for the bytes that are new.
    fn write(&self, piece: &[u8], at: u64) -> Result<(), Full> {
        let end = at + piece.len() as u64;
        let SpooledFile { file, charge, .. } = self.opened_file()?;
        if end > charge.charged_bytes() {
            charge.try_grow(end - charge.charged_bytes())?;
        }
        Ok(file.write_all_at(piece, at)?)
    }
}

impl Stored {
    /// Makes a file in memory for the charged number of bytes.
    pub(super) fn create_in_memory(charge: Charge) -> io::Result<Self> {
        let file = memfd_create("galgo request body", memory_flags())?;
        fchmod(&file, folder::NAMELESS)?;
        Ok(Self::new((file.into(), None), charge, None))
    }

    /// Makes a file in `folder`.
    pub(super) async fn create_on_disk(
        folder: PathBuf,
        charge: Charge,
        threads: &Arc<SpoolThreads>,
    ) -> Result<Self, Full> {
        let by = threads.clone();
        let made = threads.clone().run_on_thread(move || {
            let (file, readable) = folder::create_unnamed_file(&folder)?;
            let file = (file, Some(readable));
            Ok::<_, io::Error>(Self::new(file, charge, Some(by)))
        });
        Ok(made.await??)
    }

    fn new(
        (file, readable): (File, Option<OwnedFd>),
        charge: Charge,
        threads: Option<Arc<SpoolThreads>>,
    ) -> Self {
        let file = Some(SpooledFile {
            file,
            readable,
            charge,
        });
        Self {
            place: Arc::new(SpoolFile { file, threads }),
            len: 0,
        }
    }

    /// Returns a descriptor for a program to read the bytes from the first one on. The program can neither write to the
    /// file nor cut it. A file in memory is sealed: no process can change it any more.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read_only_fd(&self) -> io::Result<OwnedFd> {
        let SpooledFile { file, readable, .. } = self.place.opened_file()?;
        if let Some(readable) = readable {
            return readable.try_clone();
        }
        let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(file, all)?;
        match folder::reopen_read_only(file) {
            // Without /proc: a description that allows writing, to a sealed file.
            Err(Errno::NOENT) => Ok(file.try_clone()?.into()),
            reopened => Ok(reopened?),
        }
    }

    /// Returns the number of bytes that were appended.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `piece`, and gives its buffer back, empty.
    ///
    /// # Errors
    /// There is no room. Earlier bytes are still there.
    pub async fn append(&mut self, piece: Vec<u8>) -> Result<Vec<u8>, Full> {
        let len = piece.len() as u64;
        let (mut piece, wrote) = self.write(piece, self.len).await;
        wrote?;
        self.len += len;
        piece.clear();
        Ok(piece)
    }

    /// Writes `piece` at an offset, and gives the piece back. If there is no room, no part of it is written.
    pub async fn write(&self, piece: Vec<u8>, at: u64) -> (Vec<u8>, Result<(), Full>) {
        let Some(threads) = &self.place.threads else {
            let wrote = self.place.write(&piece, at);
            return (piece, wrote);
        };
        let place = self.place.clone();
        // Shared, so that the piece is not lost if there is no thread.
        let piece = Arc::new(piece);
        let theirs = piece.clone();
        let wrote = threads.clone().run_on_thread(move || {
            let wrote = place.write(&theirs, at);
            drop(theirs);
            wrote
        });
        let wrote = wrote.await.unwrap_or_else(|e| Err(e.into()));
        (Arc::unwrap_or_clone(piece), wrote)
    }

    /// Reads `most` bytes from an offset; fewer at the end.
    ///
    /// # Errors
    /// Errors of read(2).
    pub async fn read(&self, at: u64, most: usize, mut into: Vec<u8>) -> io::Result<Vec<u8>> {
        let place = self.place.clone();
        let read = move || {
            into.resize(most, 0);
            let mut read = 0;
            while read < most {
                match place
                    .opened_file()?
                    .file
                    .read_at(&mut into[read..], at + read as u64)
                {
                    Ok(0) => break,
                    Ok(n) => read += n,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            into.truncate(read);
            Ok(into)
        };
        match &self.place.threads {
            None => read(),
            Some(threads) => threads.clone().run_on_thread(read).await?,
        }
    }
}

/// Returns the flags of files in memory: no call can make them executable, if the kernel supports that (Linux 6.3).
fn memory_flags() -> MemfdFlags {
    static FLAGS: OnceLock<MemfdFlags> = OnceLock::new();
    *FLAGS.get_or_init(|| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let no_programs = flags | MemfdFlags::NOEXEC_SEAL;
        match memfd_create("galgo", no_programs) {
            Err(Errno::INVAL) => flags,
            _ => no_programs,
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{Read, Write};

    use rustix::fs::{Mode, OFlags, fcntl_get_seals, fstat, open};

    use super::*;
    use crate::spool::{Spool, SpoolSettings};

    #[test]
    fn nobody_changes_a_body_in_memory_that_a_program_reads() {
        let spool = Arc::new(Spool::new(&SpoolSettings::default(), None));
        let peer = crate::peer::Peer::default();
        let stored = Stored::create_in_memory(spool.share_of(peer).memory_charge()).unwrap();
        stored.place.write(b"body", 0).unwrap();
        let mut readable = File::from(stored.read_only_fd().unwrap());
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&readable)
        );
        let mut got = String::new();
        readable.read_to_string(&mut got).unwrap();
        assert_eq!(got, "body");
        assert!(readable.write(b"more").is_err() && readable.set_len(0).is_err());
        // Not even if the file's owner opens it once more, as root may.
        let _ = fchmod(&readable, Mode::RWXU);
        if let Ok(again) = open(&path, OFlags::RDWR, Mode::empty()) {
            let mut again = File::from(again);
            assert!(again.write(b"more").is_err() && again.set_len(0).is_err());
        }
        assert!(stored.place.write(b"more", 0).is_err());
        if memory_flags().contains(MemfdFlags::NOEXEC_SEAL) {
            assert_eq!(fstat(&readable).unwrap().st_mode & 0o111, 0);
            assert!(
                fcntl_get_seals(&readable)
                    .unwrap()
                    .contains(SealFlags::SEAL)
            );
        }
    }
}
