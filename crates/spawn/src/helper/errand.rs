//! Errands: processes that do for the spawner work that may take long, such as asking the name service or looking at homes and
//! disks. A helper is an errand until it serves. An errand is killed at its deadline, and other orders to the spawner do not
//! wait for it.

use crate::{
    owners::known::HelperKey,
    remote::{
        deadline::Deadline,
        message::{OrderAnswer, REPORT, Received, receive_all, send_message},
        shortage::{is_short, pause_for_shortage},
    },
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

/// Limit of errands that run at once: each is a process of root.
pub(crate) const MOST: usize = 64;

/// The purpose of an errand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ErrandKind {
    /// The process becomes a helper, in this control group.
    Helper(HelperKey, Option<PathBuf>),
    /// The process reads the configuration.
    Reload,
    Listener,
    /// The process checks that the configuration is root's own.
    Upgrade,
}

/// A process that works on the order with this number, for the spawner.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) socket: OwnedFd,
    pub(crate) number: u32,
    pub(crate) by: Deadline,
    pub(crate) kind: ErrandKind,
    /// The process was too late: it has been killed, and has not ended yet.
    pub(crate) is_killed: bool,
}

/// The new state of an errand.
pub(crate) enum ErrandEvent {
    Goes,
    Done(Vec<OwnedFd>),
    Not(OrderAnswer),
}

impl Errand {
    /// Reads the errand's answer, if it has come.
    pub(crate) fn read_answer(&mut self) -> ErrandEvent {
        let mut buffer = [0; REPORT + 8];
        match receive_all(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::INTR | Errno::AGAIN) if self.by.has_passed() => self.kill_late(),
            Err(e) if e == Errno::INTR || is_short(e) => ErrandEvent::Goes,
            Ok(Received { lacks: true, .. }) => ErrandEvent::Not(OrderAnswer::NotNow(
                "the spawner has no descriptors left".into(),
            )),
            Ok(Received { bytes, fds, .. }) => {
                match buffer.get(..bytes).and_then(OrderAnswer::decode) {
                    // The server no longer waits for this answer, and would not use the result.
                    Some((_, OrderAnswer::Done)) if self.by.has_passed() => self.kill_late(),
                    Some((_, OrderAnswer::Done)) => ErrandEvent::Done(fds),
                    Some((_, not)) => ErrandEvent::Not(not),
                    None => ErrandEvent::Not(OrderAnswer::Ended),
                }
            }
            Err(_) => ErrandEvent::Not(OrderAnswer::Ended),
        }
    }

    fn kill_late(&mut self) -> ErrandEvent {
        let _ = kill_process(self.pid, Signal::KILL);
        self.is_killed = true;
        ErrandEvent::Not(OrderAnswer::NotNow(match &self.kind {
            ErrandKind::Helper((_, uid), _) => format!(
                "the helper for the user {uid} was not ready in time: the name service, the home of that user or the disk hangs"
            ),
            ErrandKind::Reload | ErrandKind::Upgrade => "the spawner's process did not read the configuration in time: the name service or a disk hangs".into(),
            ErrandKind::Listener => format!(
                "the socket for a worker was not ready in time: {} hangs",
                std::env::temp_dir().display()
            ),
        }))
    }
}

/// Sends an answer to the spawner, from the errand's process.
pub(crate) fn send_answer(
    socket: &OwnedFd,
    answer: &OrderAnswer,
    fds: &[&OwnedFd],
) -> Result<(), String> {
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    loop {
        match send_message(
            socket.as_fd(),
            &[&answer.encode(0)],
            &fds,
            SendFlags::empty(),
        ) {
            // Retry until the spawner kills this process for being late.
            Err(e) if is_short(e) || e == Errno::INTR => pause_for_shortage(),
            told => return told.map_err(|e| format!("telling the spawner: {e}")),
        }
    }
}
