//! The helper's side of a running program: reports to the server, and signals from it.

use crate::{
    Child, Direct, Exit, LaunchOutcome, StartError,
    helper::listed::ListedFiles,
    remote::{
        connection::HelperEnd,
        left::{LEFTOVERS, LeftProcesses},
        message::{ProgramReport, priority_from_byte},
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

/// Time after the launch at which a program that has not ended is reported as running.
const SOON: Duration = Duration::from_millis(5);

/// Interval for checking whether a program's leftover processes are gone.
const LOOK: Duration = Duration::from_millis(20);

/// A running program and its connection.
pub(crate) struct SupervisedProgram {
    child: Child,
    pub(crate) socket: HelperEnd,
    told: ReportedState,
}

/// State of a program as reported to the server.
#[derive(Clone, Copy)]
enum ReportedState {
    /// Nothing is reported yet. The program was launched at this time.
    Nothing(Instant),
    /// The program is running.
    Runs,
    /// The program has ended like this, and has left other processes of its group running.
    Ended(Exit),
    /// The program has ended. Processes outside of its group may still write its response.
    EndedAlone,
}

impl ReportedState {
    fn has_ended(self) -> bool {
        matches!(self, Self::Ended(_) | Self::EndedAlone)
    }
}

/// The new state of a program.
pub(crate) enum ProgramEvent {
    Goes,
    /// The program has ended without leftover processes: its connection is free.
    Ended,
    /// The program was not started, or the server has given it up: its connection closes.
    Gone,
}

impl ProgramEvent {
    fn goes_if(goes: bool) -> Self {
        if goes { Self::Goes } else { Self::Gone }
    }
}

impl SupervisedProgram {
    /// Supervises a program that was just launched.
    pub(crate) fn from_launch(child: Child, socket: HelperEnd) -> Self {
        Self {
            child,
            socket,
            told: ReportedState::Nothing(Instant::now()),
        }
    }

    /// Supervises a template's child that was already reported as running.
    pub(crate) fn from_template_child((child, socket): (Child, HelperEnd)) -> Self {
        Self {
            child,
            socket,
            told: ReportedState::Runs,
        }
    }

    pub(crate) fn wait_for<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        fds.push(PollFd::new(&self.socket, PollFlags::IN));
        if !self.told.has_ended() {
            fds.push(PollFd::new(&self.child, PollFlags::IN));
        }
    }

    /// Returns the time until there is something to report or to check, even without an event.
    pub(crate) fn time_left(&self) -> Duration {
        match self.told {
            ReportedState::Nothing(since) => SOON.saturating_sub(since.elapsed()),
            ReportedState::Runs | ReportedState::EndedAlone => Duration::MAX,
            ReportedState::Ended(_) => LOOK,
        }
    }

    /// Handles events of the program. `ready` says which descriptors of [`wait_for`](Self::wait_for) are ready. `own_ids`: the
    /// server knows the program by another number.
    pub(crate) fn handle_events(
        &mut self,
        ready: &mut impl Iterator<Item = bool>,
        direct: &mut Direct,
        listed: &mut ListedFiles,
        own_ids: bool,
    ) -> ProgramEvent {
        let asked = ready.next().unwrap_or_default();
        let exited = !self.told.has_ended() && ready.next().unwrap_or_default();
        if asked && !self.forward_signals() {
            return ProgramEvent::Gone;
        }
        match self.told {
            ReportedState::Ended(exit) if !self.child.group_remains() => {
                self.tell_end(exit, LeftProcesses::Outside)
            }
            ReportedState::Nothing(_) if exited => self.report_early_end(direct, listed, own_ids),
            ReportedState::Nothing(since) if since.elapsed() >= SOON => {
                self.report_start(direct, listed, own_ids)
            }
            ReportedState::Runs if exited => self.report_end(own_ids),
            _ => ProgramEvent::Goes,
        }
    }

    /// Passes on signals. Returns false if the server has closed the connection.
    fn forward_signals(&mut self) -> bool {
        loop {
            let mut order = [0];
            match self.socket.receive(&mut order) {
                Err(Errno::AGAIN) => return true,
                Ok((1, _)) => match (order[0], priority_from_byte(order[0])) {
                    (_, Some(priority)) => self.child.lower_priority(priority),
                    (byte, None) => match LEFTOVERS.iter().position(|one| *one == byte) {
                        Some(stay) => self.child.let_leftovers_stay(stay == 1),
                        None => drop(self.child.signal_group(i32::from(byte))),
                    },
                },
                _ => return false,
            }
        }
    }

    /// Reports the end, or the failed start, of a program with no report so far. Only after this report does the server see the
    /// end of the program's output.
    fn report_early_end(
        &mut self,
        direct: &mut Direct,
        listed: &mut ListedFiles,
        own_ids: bool,
    ) -> ProgramEvent {
        let turn = match direct.failure(&self.child) {
            Some(e) => self.report_failed_start(&e, listed),
            None => self.report_end(own_ids),
        };
        direct.outcome(&self.child);
        turn
    }

    /// Reports that the program runs, or why it was not started.
    fn report_start(
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
            LaunchOutcome::Failed(e) => self.report_failed_start(&e.error, listed),
            LaunchOutcome::Started => ProgramEvent::goes_if(self.tell_start(own_ids)),
        }
    }

    fn report_failed_start(&self, e: &StartError, listed: &mut ListedFiles) -> ProgramEvent {
        let report = listed.refusal(failure_report(e));
        self.socket.send_report(&report.encode(), &[]);
        ProgramEvent::Gone
    }

    fn tell_start(&mut self, own_ids: bool) -> bool {
        self.told = ReportedState::Runs;
        tell_start(&self.socket, &self.child, own_ids)
    }

    /// Reports the end of the program. If it left processes and no start was reported, reports the start first: that report
    /// names their process group by the program's number. Once the program is reaped, no other number is known.
    fn report_end(&mut self, own_ids: bool) -> ProgramEvent {
        let Ok((exit, has_others)) = self.child.reap_and_find_others() else {
            return ProgramEvent::Gone;
        };
        let left = match (self.child.has_left_others(), has_others) {
            (true, _) => LeftProcesses::Group,
            (false, true) => LeftProcesses::Outside,
            (false, false) => LeftProcesses::None,
        };
        let was_told = matches!(self.told, ReportedState::Runs);
        let names_group = left == LeftProcesses::Group && !was_told && !own_ids;
        if names_group && !self.tell_start(false) {
            return ProgramEvent::Gone;
        }
        self.tell_end(exit, left)
    }

    fn tell_end(&mut self, exit: Exit, left: LeftProcesses) -> ProgramEvent {
        self.told = match left {
            LeftProcesses::Group => ReportedState::Ended(exit),
            _ => ReportedState::EndedAlone,
        };
        let report = ProgramReport::Exited(exit, left).encode();
        match self.socket.send_report(&report, &[]) {
            true if left == LeftProcesses::None => ProgramEvent::Ended,
            sent => ProgramEvent::goes_if(sent),
        }
    }
}

/// Reports that a program runs. Returns whether the server can still hear it. `own_ids`: the server knows the program by
/// another number, which the pidfd tells.
pub(crate) fn tell_start(socket: &HelperEnd, child: &Child, own_ids: bool) -> bool {
    let named: Vec<_> = own_ids.then(|| child.as_fd()).into_iter().collect();
    socket.send_report(&ProgramReport::Started(child.pid()).encode(), &named)
}

/// Converts the error of a start into a report.
pub(crate) fn failure_report(e: &StartError) -> ProgramReport {
    ProgramReport::Failed(e.stage, e.source.raw_os_error().unwrap_or_default())
}
