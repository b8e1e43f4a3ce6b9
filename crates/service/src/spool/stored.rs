//! Bytes of one request that wait.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    path::PathBuf,
    sync::Arc,
};

use rustix::fs::MemfdFlags;

use super::{charge::Charge, folder, full::Full, threads::SpoolThreads};

/// A file without a name, in memory or on disk. It is written and read by offsets: a program that is given the
/// descriptor reads from its beginning.
#[derive(Debug)]
pub struct Stored {
    place: Arc<SpoolFile>,
    len: u64,
}

/// The file and what it takes. The last close of a file on a disk that stalls waits as every write does.
#[derive(Debug)]
struct SpoolFile {
    /// `None`: it is being closed.
    file: Option<(File, Charge)>,
    /// Those that write, read and close it; `None`: it is in memory, and that is done at once.
    threads: Option<Arc<SpoolThreads>>,
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
    fn file(&self) -> io::Result<&File> {
        let (file, _) = self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        Ok(file)
    }

    /// Writes a piece, which stands before those that come after it.
    fn write(&self, piece: &[u8], at: u64) -> Result<(), Full> {
        let end = at + piece.len() as u64;
        if let Some((_, charge)) = &self.file
            && end > charge.bytes()
        {
            charge.grow(end - charge.bytes())?;
        }
        Ok(self.file()?.write_all_at(piece, at)?)
    }
}

impl Stored {
    /// In memory, for as many bytes as were charged.
    pub(super) fn in_memory(charge: Charge) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("galgo request body", MemfdFlags::CLOEXEC)?;
        Ok(Self::new(file.into(), charge, None))
    }

    /// In a file in `folder`.
    pub(super) async fn on_disk(
        folder: PathBuf,
        charge: Charge,
        threads: &Arc<SpoolThreads>,
    ) -> Result<Self, Full> {
        let by = threads.clone();
        let made = threads.clone().run(move || {
            let file = folder::nameless(&folder)?;
            Ok::<_, io::Error>(Self::new(file, charge, Some(by)))
        });
        Ok(made.await??)
    }

    fn new(file: File, charge: Charge, threads: Option<Arc<SpoolThreads>>) -> Self {
        let file = Some((file, charge));
        Self {
            place: Arc::new(SpoolFile { file, threads }),
            len: 0,
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
                match place.file()?.read_at(&mut into[read..], at + read as u64) {
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

impl AsFd for Stored {
    /// # Panics
    /// Never: the file is there as long as this is.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.place.file {
            Some((file, _)) => file.as_fd(),
            None => unreachable!("only a file that is dropped has no descriptor"),
        }
    }
}
