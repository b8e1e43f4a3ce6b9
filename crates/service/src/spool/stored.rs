//! Bytes of one request that wait.

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

/// The file and what it takes. The last close of a file on a disk that stalls waits as every write does.
#[derive(Debug)]
struct SpoolFile {
    /// `None`: it is being closed.
    file: Option<SpooledFile>,
    /// Those that write, read and close it; `None`: it is in memory, and that is done at once.
    threads: Option<Arc<SpoolThreads>>,
}

#[derive(Debug)]
struct SpooledFile {
    file: File,
    /// The file on a disk, opened for reading alone: to open it may take as long as to write it.
    readable: Option<OwnedFd>,
    charge: Charge,
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        if let (Some(file), Some(threads)) = (self.file.take(), &self.threads) {
            // Without a thread it is closed here.
            drop(threads.push(Box::new(move || drop(file))));
        }
    }
}

impl SpoolFile {
    fn open(&self) -> io::Result<&SpooledFile> {
        Ok(self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Writes a piece, which stands before those that come after it.
    fn write(&self, piece: &[u8], at: u64) -> Result<(), Full> {
        let end = at + piece.len() as u64;
        let SpooledFile { file, charge, .. } = self.open()?;
        if end > charge.bytes() {
            charge.grow(end - charge.bytes())?;
        }
        Ok(file.write_all_at(piece, at)?)
    }
}

impl Stored {
    /// In memory, for as many bytes as were charged.
    pub(super) fn in_memory(charge: Charge) -> io::Result<Self> {
        let file = memfd_create("galgo request body", memory_flags())?;
        fchmod(&file, folder::MODE)?;
        Ok(Self::new((file.into(), None), charge, None))
    }

    /// In a file in `folder`.
    pub(super) async fn on_disk(
        folder: PathBuf,
        charge: Charge,
        threads: &Arc<SpoolThreads>,
    ) -> Result<Self, Full> {
        let by = threads.clone();
        let made = threads.clone().run(move || {
            let (file, readable) = folder::nameless(&folder)?;
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

    /// What a program reads the bytes from, from the first one on. Whoever has it can neither write nor cut them; those in
    /// memory, nobody can any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn readable(&self) -> io::Result<OwnedFd> {
        let SpooledFile { file, readable, .. } = self.place.open()?;
        if let Some(readable) = readable {
            return readable.try_clone();
        }
        let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(file, all)?;
        match folder::reopen(file) {
            // Without /proc: a description that could be written, of what cannot.
            Err(Errno::NOENT) => Ok(file.try_clone()?.into()),
            reopened => Ok(reopened?),
        }
    }

    /// How many bytes were appended.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether bytes are written and read at once.
    pub fn is_memory(&self) -> bool {
        self.place.threads.is_none()
    }

    /// Appends `piece`, and gives its buffer back, empty.
    ///
    /// # Errors
    /// There is no room. What was appended before is still there.
    pub async fn append(&mut self, piece: Vec<u8>) -> Result<Vec<u8>, Full> {
        let len = piece.len() as u64;
        let (mut piece, wrote) = self.write(piece, self.len).await;
        wrote?;
        self.len += len;
        piece.clear();
        Ok(piece)
    }

    /// Writes `piece` at an offset, and gives it back. Where there is no room, it stands there nowhere.
    pub async fn write(&self, piece: Vec<u8>, at: u64) -> (Vec<u8>, Result<(), Full>) {
        let Some(threads) = &self.place.threads else {
            let wrote = self.place.write(&piece, at);
            return (piece, wrote);
        };
        let place = self.place.clone();
        // Shared, so that it is not lost where there is no thread.
        let piece = Arc::new(piece);
        let theirs = piece.clone();
        let wrote = threads.clone().run(move || {
            let wrote = place.write(&theirs, at);
            drop(theirs);
            wrote
        });
        let wrote = wrote.await.unwrap_or_else(|e| Err(e.into()));
        (Arc::unwrap_or_clone(piece), wrote)
    }

    /// Reads `most` bytes from an offset, fewer at the end.
    ///
    /// # Errors
    /// Those of read(2).
    pub async fn read(&self, at: u64, most: usize, mut into: Vec<u8>) -> io::Result<Vec<u8>> {
        let place = self.place.clone();
        let read = move || {
            into.resize(most, 0);
            let mut read = 0;
            while read < most {
                match place
                    .open()?
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
            Some(threads) => threads.clone().run(read).await?,
        }
    }
}

/// What files in memory are made with: nothing makes them executable, if the kernel knows that (Linux 6.3).
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
        let stored = Stored::in_memory(spool.share_of(peer).in_memory()).unwrap();
        stored.place.write(b"body", 0).unwrap();
        let mut readable = File::from(stored.readable().unwrap());
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&readable)
        );
        let mut got = String::new();
        readable.read_to_string(&mut got).unwrap();
        assert_eq!(got, "body");
        assert!(readable.write(b"more").is_err() && readable.set_len(0).is_err());
        // Also if its owner opens it once more, as root may.
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
