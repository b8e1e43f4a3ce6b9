//! What the spawner has another process do, as it may take long: to ask the name service, to look at homes and disks. A helper is
//! such a process until it serves. It has until a deadline; then it is killed, and what else is asked of the spawner has not
//! waited for it.

use super::known::HelperKey;
use crate::remote::{
    deadline::Deadline,
    message::{OrderAnswer, REPORT, Received, receive_all, send},
    shortage::{is_short, pause},
};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags},
    process::{Pid, Signal, kill_process},
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

/// So many at once: each is a process of root's.
pub(super) const MOST: usize = 64;

/// What one is sent for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ErrandKind {
    /// It becomes a helper, in this control group.
    Helper(HelperKey, Option<PathBuf>),
    /// It reads the configuration.
    Reload,
    Listener,
    /// It looks whether the configuration is root's own.
    Upgrade,
}

/// A process that does something for the spawner, for the order of this number.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) socket: OwnedFd,
    pub(super) number: u32,
    pub(super) by: Deadline,
    pub(super) kind: ErrandKind,
    /// It was too late: it is killed, and has not ended yet.
    pub(super) is_killed: bool,
}

/// What has become of one.
pub(super) enum ErrandEvent {
    Goes,
    Done(Vec<OwnedFd>),
    Not(OrderAnswer),
}

impl Errand {
    /// What it says, if that has come.
    pub(super) fn look(&mut self) -> ErrandEvent {
        let mut buffer = [0; REPORT + 8];
        match receive_all(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::INTR | Errno::AGAIN) if self.by.has_passed() => self.is_late(),
            Err(e) if e == Errno::INTR || is_short(e) => ErrandEvent::Goes,
            Ok(Received { lacks: true, .. }) => ErrandEvent::Not(OrderAnswer::NotNow(
                "the spawner has no descriptors left".into(),
            )),
            Ok(Received { bytes, fds, .. }) => {
                match buffer.get(..bytes).and_then(OrderAnswer::decode) {
                    // Whoever asked may not wait any longer: nobody would have a use for what was made.
                    Some((_, OrderAnswer::Done)) if self.by.has_passed() => self.is_late(),
                    Some((_, OrderAnswer::Done)) => ErrandEvent::Done(fds),
                    Some((_, not)) => ErrandEvent::Not(not),
                    None => ErrandEvent::Not(OrderAnswer::Ended),
                }
            }
            Err(_) => ErrandEvent::Not(OrderAnswer::Ended),
        }
    }

    fn is_late(&mut self) -> ErrandEvent {
        let _ = kill_process(self.pid, Signal::KILL);
        self.is_killed = true;
        ErrandEvent::Not(OrderAnswer::NotNow(match &self.kind {
            ErrandKind::Helper((_, uid), _) => format!(
                "no helper for the user {uid} came in time: the name service, the home of that user or the disk hangs"
            ),
            ErrandKind::Reload | ErrandKind::Upgrade => "the spawner's process did not read the configuration in time: the name service or a disk hangs".into(),
            ErrandKind::Listener => format!(
                "no socket for a worker was made in time: {} hangs",
                std::env::temp_dir().display()
            ),
        }))
    }
}

/// Tells the spawner, in the process that was sent.
pub(super) fn tell(socket: &OwnedFd, answer: &OrderAnswer, fds: &[&OwnedFd]) -> Result<(), String> {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    loop {
        match send(
            socket.as_fd(),
            &[&answer.encode(0)],
            &fds,
            SendFlags::empty(),
        ) {
            // Until the spawner kills it for being late.
            Err(e) if is_short(e) || e == Errno::INTR => pause(),
            told => return told.map_err(|e| format!("telling the spawner: {e}")),
        }
    }
}
