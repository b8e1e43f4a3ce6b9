//! Holds output that the client has not taken yet: a little in memory, more in a file. Thus a program ends and gives its permit
//! back while a slow client still receives the response.

use std::{collections::VecDeque, io};

use galgo_io::{out::Out, pool, sock::Sock};
use galgo_service::{
    fault::Fault,
    producer::{OutputEvent, wait_until_slow},
    spool::{Charge, Full, SpoolShare, Stored, Task},
};

/// Limit for a response's output in a file; the rest stays with the program.
const MOST: u64 = 4 << 20;
/// Pieces that wait in memory before one goes to the file.
const HELD: usize = 2;
/// Memory for one response: the waiting pieces, a piece that is being written, and a piece that is being sent.
const MEMORY: u64 = (HELD as u64 + 2) * pool::SIZE as u64;
/// Output between a program and its client. The oldest is in `front`, the next in the file, the rest in `back`.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    /// Share of the spool that makes the file; `None` if no output may wait.
    pub(crate) spool: Option<SpoolShare>,
    /// The response's share of the memory for waiting output.
    charge: Option<Charge>,
    front: Vec<u8>,
    file: SpillFile,
    back: VecDeque<Vec<u8>>,
    /// Whether the file takes no more.
    full: bool,
    /// Whether the client reads slower than output comes.
    pub(super) slow: bool,
}

#[derive(Debug, Default)]
struct SpillFile {
    stored: Option<Stored>,
    /// Pending operation on the file; it holds `stored` meanwhile.
    task: Option<Task<(Option<Stored>, FileEvent)>>,
    read: u64,
    written: u64,
}

enum FileEvent {
    Wrote(Vec<u8>, Result<(), Full>),
    Read(io::Result<Vec<u8>>),
}

impl Spill {
    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.file.is_empty() && self.back.iter().all(Vec::is_empty)
    }

    /// Notes whether the client took all output at once.
    pub(crate) fn sent_at_once(&mut self, at_once: bool) {
        self.slow = !(at_once && self.is_empty());
    }

    /// Reserves memory for this response's waiting output, and for `more` bytes. Returns false if all responses together are at
    /// their limit.
    pub(crate) fn reserve(&mut self, more: usize) -> bool {
        let Some(spool) = &self.spool else {
            return false;
        };
        let charge = self.charge.get_or_insert_with(|| spool.memory_charge());
        charge.grow_to(MEMORY + more as u64)
    }

    /// Reads output while the client lets a write wait. Returns the number of bytes; 0 if the output has ended. A caller may drop
    /// this future and call again.
    pub(super) async fn gather_output(&mut self, from: Option<&Sock>) -> io::Result<usize> {
        let from = self.await_spilling(from).await;
        from.read_later(self.back_buffer()).await
    }

    /// Waits until output from `from` should wait here, and can.
    pub(crate) async fn await_spilling<'s>(&mut self, from: Option<&'s Sock>) -> &'s Sock {
        let (Some(from), true) = (from, self.spool.is_some()) else {
            return std::future::pending().await;
        };
        if !self.slow {
            wait_until_slow().await;
            self.slow = true;
        }
        if !self.reserve(0) {
            return std::future::pending().await;
        }
        self.await_room().await;
        from
    }

    /// Returns the buffer for the next output.
    pub(crate) fn back_buffer(&mut self) -> &mut Vec<u8> {
        if self.is_back_full() {
            self.back.push_back(pool::take_buffer());
        }
        let last = self.back.len().saturating_sub(1);
        &mut self.back[last]
    }

    fn is_back_full(&self) -> bool {
        self.back.back().is_none_or(pool::is_full)
    }

    /// Waits until there is room for more; forever if only the client can make room.
    async fn await_room(&mut self) {
        while self.back.len() >= HELD && self.is_back_full() {
            if self.file.task.is_none() && !self.write() {
                return std::future::pending().await;
            }
            // An error shows again when the piece is sent.
            let _ = self.await_file().await;
        }
    }

    /// Starts to write the oldest piece of `back`. Returns false if the file has no room for it.
    fn write(&mut self) -> bool {
        let room = |piece: &Vec<u8>| self.file.written + piece.len() as u64 <= MOST;
        let (Some(spool), false, true) =
            (&self.spool, self.full, self.back.front().is_some_and(room))
        else {
            return false;
        };
        let piece = self.back.pop_front().unwrap_or_default();
        let (spool, stored, at) = (spool.clone(), self.file.stored.take(), self.file.written);
        self.file.task = Some(Task::new(async move {
            let stored = match stored {
                Some(stored) => stored,
                None => match spool.create_file().await {
                    Ok(stored) => stored,
                    Err(full) => return (None, FileEvent::Wrote(piece, Err(full))),
                },
            };
            let (piece, wrote) = stored.write(piece, at).await;
            (Some(stored), FileEvent::Wrote(piece, wrote))
        }));
        true
    }

    fn read(&mut self) -> io::Result<()> {
        let stored = self.file.stored.take();
        let stored = stored.ok_or(io::ErrorKind::NotFound)?;
        let at = self.file.read;
        let left = usize::try_from(self.file.written - at).unwrap_or(pool::SIZE);
        self.file.task = Some(Task::new(async move {
            let read = stored
                .read(at, left.min(pool::SIZE), pool::take_buffer())
                .await;
            (Some(stored), FileEvent::Read(read))
        }));
        Ok(())
    }

    /// Waits for the pending operation on the file.
    async fn await_file(&mut self) -> io::Result<()> {
        let Some(task) = &mut self.file.task else {
            return Ok(());
        };
        let (stored, done) = task.await;
        (self.file.task, self.file.stored) = (None, stored);
        match done {
            FileEvent::Wrote(piece, Ok(())) => {
                self.file.written += piece.len() as u64;
                pool::return_buffer(piece);
            }
            FileEvent::Wrote(piece, Err(_full)) => {
                // No output is lost: the piece is sent from memory, and the program waits for its client.
                self.full = true;
                self.back.push_front(piece);
            }
            FileEvent::Read(piece) => {
                let piece = piece?;
                if piece.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.file.read += piece.len() as u64;
                self.front = piece;
            }
        }
        Ok(())
    }

    /// Moves the oldest piece into `out`, which is empty. A caller may drop this future and call again.
    pub(crate) async fn pull_piece(&mut self, out: &mut Out) -> Result<OutputEvent, Fault> {
        while self.front.is_empty() && !self.file.is_empty() {
            let read = async {
                if self.file.task.is_none() {
                    self.read()?;
                }
                self.await_file().await
            };
            read.await.map_err(|e| {
                Fault::Internal(format!(
                    "stored output could not be read back from its file: {e}"
                ))
            })?;
        }
        if self.front.is_empty() {
            self.front = self.back.pop_front().unwrap_or_default();
        }
        if self.file.is_empty() {
            // The whole file was read: reuse its room.
            (self.file.read, self.file.written) = (0, 0);
        }
        *out = Out::from_bytes(std::mem::take(&mut self.front));
        Ok(OutputEvent::Output)
    }
}

impl SpillFile {
    fn is_empty(&self) -> bool {
        self.task.is_none() && self.read == self.written
    }
}
