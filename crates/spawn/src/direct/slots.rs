//! Three low descriptor numbers through which a child receives its standard input, output and error.
//!
//! A plain vfork copies the whole descriptor table: its cost grows with the server's connections. With CLONE_FILES nothing is
//! copied: the child takes a private copy of the low part only, by `close_range(.., CLOSE_RANGE_UNSHARE)`. The descriptors that
//! the child needs must lie in that low part: in the slots.
//!
//! Between starts a slot holds /dev/null, so that its number never becomes free. No other file can get the number, and `dup3`
//! onto it never meets a half-open descriptor (EBUSY).

use rustix::{
    fs::{Mode, OFlags, open},
    io::{DupFlags, dup3, fcntl_dupfd_cloexec},
};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
};

#[derive(Debug)]
pub(super) struct StdioSlots {
    null: Arc<OwnedFd>,
    fds: [OwnedFd; 3],
}

/// Opens /dev/null, which a slot holds between starts.
pub(super) fn open_null() -> io::Result<Arc<OwnedFd>> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Arc::new(null))
}

impl StdioSlots {
    /// Takes the lowest free numbers from 3 on: the child's 0, 1 and 2 must not be slots themselves.
    pub(super) fn new(null: &Arc<OwnedFd>) -> io::Result<Self> {
        let slot = || fcntl_dupfd_cloexec(null, 3);
        let fds = [slot()?, slot()?, slot()?];
        let null = null.clone();
        Ok(Self { null, fds })
    }

    /// Puts the descriptors of a program into the slots. On an error the slots may hold some of them.
    pub(super) fn place_descriptors(&mut self, stdio: &[BorrowedFd<'_>; 3]) -> io::Result<()> {
        for (slot, fd) in self.fds.iter_mut().zip(stdio) {
            dup3(fd, slot, DupFlags::CLOEXEC)?;
        }
        Ok(())
    }

    /// Empties the slots: if a pipe's end stayed here, its other end would never see the end of file.
    pub(super) fn release_descriptors(&mut self) -> io::Result<()> {
        let null = &self.null;
        self.fds
            .iter_mut()
            .try_for_each(|slot| dup3(&**null, slot, DupFlags::CLOEXEC))?;
        Ok(())
    }

    pub(super) fn numbers(&self) -> [RawFd; 3] {
        self.fds.each_ref().map(AsRawFd::as_raw_fd)
    }
}
