//! A program that runs, at the helper that has started it: what the server is told of it, and has done to it.

use super::{
    connection::HelperEnd,
    message::{LOWER, Report},
};
use crate::{Child, Direct, LaunchOutcome, StartError};
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
pub(super) struct Running {
    child: Child,
    pub(super) socket: HelperEnd,
    told: Told,
}

/// What the server knows of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Nothing; it was launched then.
    Nothing(Instant),
    /// It runs.
    Runs,
    /// It has ended, and has left others behind.
    Ended,
}

/// What has become of a program.
pub(super) enum Turn {
    Goes,
    /// It has ended, and has left nothing behind: its connection is free.
    Ended,
    /// It was not started, or nobody wants it any more: its connection closes.
    Gone,
}

impl Turn {
    fn goes_if(goes: bool) -> Self {
        match goes {
            true => Self::Goes,
            false => Self::Gone,
        }
    }
}

impl Running {
    /// One that was launched.
    pub(super) fn launched(child: Child, socket: HelperEnd) -> Self {
        Self {
            child,
            socket,
            told: Told::Nothing(Instant::now()),
        }
    }

    /// A template's child, of which was told.
    pub(super) fn begun((child, socket): (Child, HelperEnd)) -> Self {
        Self {
            child,
            socket,
            told: Told::Runs,
        }
    }

    pub(super) fn wait_for<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        fds.push(PollFd::new(&self.socket, PollFlags::IN));
        if self.told != Told::Ended {
            fds.push(PollFd::new(&self.child, PollFlags::IN));
        }
    }

    /// When something is to be told, or looked at, though nothing has come.
    pub(super) fn left(&self) -> Duration {
        match self.told {
            Told::Nothing(since) => SOON.saturating_sub(since.elapsed()),
            Told::Runs => Duration::MAX,
            Told::Ended => LOOK,
        }
    }

    /// Goes on where there is something to do. `ready` says what of [`wait_for`](Self::wait_for) is; `own_ids`: the server
    /// knows it by another number.
    pub(super) fn turn(
        &mut self,
        ready: &mut impl Iterator<Item = bool>,
        direct: &mut Direct,
        own_ids: bool,
    ) -> Turn {
        let asked = ready.next().unwrap_or_default();
        let exited = self.told != Told::Ended && ready.next().unwrap_or_default();
        if asked && !self.signals() {
            return Turn::Gone;
        }
        match self.told {
            Told::Ended => Turn::goes_if(self.child.group_remains()),
            Told::Nothing(_) if exited => self.ends_soon(direct, own_ids),
            Told::Nothing(since) if since.elapsed() >= SOON => self.begins(direct, own_ids),
            Told::Runs if exited => self.ends(own_ids),
            Told::Nothing(_) | Told::Runs => Turn::Goes,
        }
    }

    /// Passes on signals; false: the server wants no more of it.
    fn signals(&mut self) -> bool {
        loop {
            let mut order = [0];
            match self.socket.receive(&mut order) {
                Err(Errno::AGAIN) => return true,
                Ok((1, _)) => match LOWER.iter().position(|lower| *lower == order[0]) {
                    Some(more) => self.child.lower(more > 0),
                    None => drop(self.child.signal_group(i32::from(order[0]))),
                },
                _ => return false,
            }
        }
    }

    /// Tells of the end of one of which nothing was told, or why it was not started. Then the server meets the end of its output.
    fn ends_soon(&mut self, direct: &mut Direct, own_ids: bool) -> Turn {
        let turn = match direct.failure(&self.child) {
            Some(e) => {
                self.socket.tell(&failed(&e).encode(), &[]);
                Turn::Gone
            }
            None => self.ends(own_ids),
        };
        direct.outcome(&self.child);
        turn
    }

    /// Tells that it runs, or why it was not started.
    fn begins(&mut self, direct: &mut Direct, own_ids: bool) -> Turn {
        match direct.outcome(&self.child) {
            LaunchOutcome::UnderWay => {
                self.told = Told::Nothing(Instant::now());
                Turn::Goes
            }
            LaunchOutcome::Failed(e) => {
                self.socket.tell(&failed(&e.error).encode(), &[]);
                Turn::Gone
            }
            LaunchOutcome::Started => Turn::goes_if(self.tell_start(own_ids)),
        }
    }

    fn tell_start(&mut self, own_ids: bool) -> bool {
        self.told = Told::Runs;
        let named: Vec<_> = own_ids.then(|| self.child.as_fd()).into_iter().collect();
        let started = Report::Started(self.child.pid()).encode();
        self.socket.tell(&started, &named)
    }

    /// Tells of the end; and what others it has left are called by, where that was not told: of one that is reaped there is
    /// no other number.
    fn ends(&mut self, own_ids: bool) -> Turn {
        let Ok(exit) = self.child.reap_alone() else {
            return Turn::Gone;
        };
        let left = self.child.left_others();
        if left && self.told != Told::Runs && !own_ids && !self.tell_start(false) {
            return Turn::Gone;
        }
        self.told = Told::Ended;
        match self.socket.tell(&Report::Exited(exit, left).encode(), &[]) {
            true if left => Turn::Goes,
            true => Turn::Ended,
            false => Turn::Gone,
        }
    }
}

/// Why there is no program.
pub(super) fn failed(e: &StartError) -> Report {
    Report::Failed(e.stage, e.source.raw_os_error().unwrap_or_default())
}
