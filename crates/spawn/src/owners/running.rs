//! A program that runs, at the helper that has started it: what the server is told of it, and has done to it.

use super::listed::ListedFiles;
use crate::{
    Child, Direct, LaunchOutcome, StartError,
    remote::{
        connection::HelperEnd,
        message::{ProgramReport, lowered},
    },
};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
};
use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// A program that has not ended by then is said to run.
const SOON: Duration = Duration::from_millis(5);

/// So often it is looked whether what a program has left running is gone.
const LOOK: Duration = Duration::from_millis(20);

/// A program that runs, and its connection.
pub(super) struct SupervisedProgram {
    child: Child,
    pub(super) socket: HelperEnd,
    told: ReportedState,
}

/// What the server knows of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReportedState {
    /// Nothing; it was launched then.
    Nothing(Instant),
    /// It runs.
    Runs,
    /// It has ended, and has left others behind.
    Ended,
}

/// What has become of a program.
pub(super) enum ProgramEvent {
    Goes,
    /// It has ended, and has left nothing behind: its connection is free.
    Ended,
    /// It was not started, or the server has given it up: its connection closes.
    Gone,
}

impl ProgramEvent {
    fn goes_if(goes: bool) -> Self {
        if goes { Self::Goes } else { Self::Gone }
    }
}

impl SupervisedProgram {
    /// One that was launched.
    pub(super) fn launched(child: Child, socket: HelperEnd) -> Self {
        Self {
            child,
            socket,
            told: ReportedState::Nothing(Instant::now()),
        }
    }

    /// A template's child, of which was told.
    pub(super) fn begun((child, socket): (Child, HelperEnd)) -> Self {
        Self {
            child,
            socket,
            told: ReportedState::Runs,
        }
    }

    pub(super) fn wait_for<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        fds.push(PollFd::new(&self.socket, PollFlags::IN));
        if self.told != ReportedState::Ended {
            fds.push(PollFd::new(&self.child, PollFlags::IN));
        }
    }

    /// When something is to be told, or looked at, though nothing has come.
    pub(super) fn left(&self) -> Duration {
        match self.told {
            ReportedState::Nothing(since) => SOON.saturating_sub(since.elapsed()),
            ReportedState::Runs => Duration::MAX,
            ReportedState::Ended => LOOK,
        }
    }

    /// Goes on where there is something to do. `ready` says what of [`wait_for`](Self::wait_for) is; `own_ids`: the server
    /// knows it by another number.
    pub(super) fn turn(
        &mut self,
        ready: &mut impl Iterator<Item = bool>,
        direct: &mut Direct,
        listed: &mut ListedFiles,
        own_ids: bool,
    ) -> ProgramEvent {
        let asked = ready.next().unwrap_or_default();
        let exited = self.told != ReportedState::Ended && ready.next().unwrap_or_default();
        if asked && !self.signals() {
            return ProgramEvent::Gone;
        }
        match self.told {
            ReportedState::Ended => ProgramEvent::goes_if(self.child.group_remains()),
            ReportedState::Nothing(_) if exited => self.ends_soon(direct, listed, own_ids),
            ReportedState::Nothing(since) if since.elapsed() >= SOON => {
                self.begins(direct, listed, own_ids)
            }
            ReportedState::Runs if exited => self.ends(own_ids),
            ReportedState::Nothing(_) | ReportedState::Runs => ProgramEvent::Goes,
        }
    }

    /// Passes on signals; false: the server wants no more of it.
    fn signals(&mut self) -> bool {
        loop {
            let mut order = [0];
            match self.socket.receive(&mut order) {
                Err(Errno::AGAIN) => return true,
                Ok((1, _)) => match lowered(order[0]) {
                    Some(priority) => self.child.lower(priority),
                    None => drop(self.child.signal_group(i32::from(order[0]))),
                },
                _ => return false,
            }
        }
    }

    /// Tells of the end of one of which nothing was told, or why it was not started. Then the server meets the end of its output.
    fn ends_soon(
        &mut self,
        direct: &mut Direct,
        listed: &mut ListedFiles,
        own_ids: bool,
    ) -> ProgramEvent {
        let turn = match direct.failure(&self.child) {
            Some(e) => self.not_started(&e, listed),
            None => self.ends(own_ids),
        };
        direct.outcome(&self.child);
        turn
    }

    /// Tells that it runs, or why it was not started.
    fn begins(
        &mut self,
        direct: &mut Direct,
        listed: &mut ListedFiles,
        own_ids: bool,
    ) -> ProgramEvent {
        match direct.outcome(&self.child) {
            LaunchOutcome::UnderWay => {
                self.told = ReportedState::Nothing(Instant::now());
                ProgramEvent::Goes
            }
            LaunchOutcome::Failed(e) => self.not_started(&e.error, listed),
            LaunchOutcome::Started => ProgramEvent::goes_if(self.tell_start(own_ids)),
        }
    }

    fn not_started(&self, e: &StartError, listed: &mut ListedFiles) -> ProgramEvent {
        let report = listed.refusal(failed(e));
        self.socket.tell(&report.encode(), &[]);
        ProgramEvent::Gone
    }

    fn tell_start(&mut self, own_ids: bool) -> bool {
        self.told = ReportedState::Runs;
        tell_start(&self.socket, &self.child, own_ids)
    }

    /// Tells of the end; and what others it has left are called by, where that was not told: of one that is reaped there is
    /// no other number.
    fn ends(&mut self, own_ids: bool) -> ProgramEvent {
        let Ok(exit) = self.child.reap_alone() else {
            return ProgramEvent::Gone;
        };
        let left = self.child.left_others();
        if left && self.told != ReportedState::Runs && !own_ids && !self.tell_start(false) {
            return ProgramEvent::Gone;
        }
        self.told = ReportedState::Ended;
        match self
            .socket
            .tell(&ProgramReport::Exited(exit, left).encode(), &[])
        {
            true if left => ProgramEvent::Goes,
            true => ProgramEvent::Ended,
            false => ProgramEvent::Gone,
        }
    }
}

/// Tells that a program runs; whether the server can hear it still. `own_ids`: it knows it by another number, which the pidfd
/// tells.
pub(super) fn tell_start(socket: &HelperEnd, child: &Child, own_ids: bool) -> bool {
    let named: Vec<_> = own_ids.then(|| child.as_fd()).into_iter().collect();
    socket.tell(&ProgramReport::Started(child.pid()).encode(), &named)
}

/// Why there is no program.
pub(super) fn failed(e: &StartError) -> ProgramReport {
    ProgramReport::Failed(e.stage, e.source.raw_os_error().unwrap_or_default())
}
