//! The server's side of a program that a helper has started.

use crate::{
    exit::{Exit, Status},
    remote::{
        connection::ProgramConnection,
        left::{LEFTOVERS, LeftProcesses},
        message::{ProgramReport, REPORT, Received, priority_byte},
        shortage::is_short,
    },
    start::{FailedLaunch, Launch, LaunchOutcome, Priority},
    start_error::{StartError, StartStage},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// A program that a helper has started or will start. Closing its connection ends it.
#[derive(Debug)]
pub(crate) struct RemoteChild {
    connection: ProgramConnection,
    launch: Mutex<Option<Launch>>,
    pid: OnceLock<i32>,
    /// Exit of the program, and what it left running.
    end: OnceLock<(Exit, LeftProcesses)>,
    /// The processes of its group that the program left are gone.
    alone: bool,
    leftovers_stay: bool,
}

impl RemoteChild {
    /// Creates the child for a launch that is under way. Without a `launch`, the child is a waiting process that is being given
    /// its request: see [`has_begun`](Self::has_begun).
    pub(crate) fn new(connection: ProgramConnection, launch: Option<Launch>) -> Self {
        Self {
            connection,
            launch: Mutex::new(launch),
            pid: OnceLock::new(),
            end: OnceLock::new(),
            alone: false,
            leftovers_stay: false,
        }
    }

    /// Returns the result of the start. Reports a failure only once.
    pub(crate) fn outcome(&self) -> LaunchOutcome {
        let mut launch = self.launch.lock().unwrap_or_else(PoisonError::into_inner);
        if launch.is_none() {
            return LaunchOutcome::Started;
        }
        let Some(started) = self.read_start() else {
            return LaunchOutcome::UnderWay;
        };
        match (started, launch.take()) {
            (Err(error), Some(launch)) => {
                LaunchOutcome::Failed(Box::new(FailedLaunch { error, launch }))
            }
            _ => LaunchOutcome::Started,
        }
    }

    /// Whether a waiting process has received its request.
    ///
    /// # Errors
    /// The process will never receive the request.
    pub(crate) fn has_begun(&self) -> io::Result<bool> {
        if self.pid.get().is_some() {
            return Ok(true);
        }
        let started = self.read_start().transpose().map_err(io::Error::other)?;
        Ok(started.is_some())
    }

    /// Returns whether the program was started; `None` if that is not known yet.
    fn read_start(&self) -> Option<Result<(), StartError>> {
        Some(match self.read_report() {
            Err(Errno::AGAIN) => return None,
            Ok(Some(ProgramReport::Started(pid))) => {
                let _ = self.pid.set(pid);
                Ok(())
            }
            Ok(Some(ProgramReport::Exited(exit, left))) => {
                self.note_end(exit, left);
                Ok(())
            }
            Ok(Some(ProgramReport::Failed(stage, errno))) => {
                Err(StartError::from_errno(stage, errno))
            }
            Ok(Some(ProgramReport::Denied(why))) => Err(StartError {
                stage: StartStage::Denied,
                source: io::Error::other(why),
            }),
            // The helper has closed the connection, because it had no room for the descriptors of the order.
            Ok(_) | Err(_) if !self.connection.helper.is_over() => Err(StartError::from_errno(
                StartStage::Descriptors,
                libc::EMFILE,
            )),
            // The helper has ended, with the program or before its start.
            Ok(_) | Err(_) => Err(StartError::from_errno(StartStage::Helper, libc::ECONNRESET)),
        })
    }

    /// Reads the next report, without waiting; `None` at the end, or if the report cannot be understood.
    fn read_report(&self) -> Result<Option<ProgramReport>, Errno> {
        let mut buffer = [0; REPORT];
        let received = self.connection.receive_all(&mut buffer);
        let Received { bytes, lacks, fds } =
            received.map_err(|e| if is_short(e) { Errno::AGAIN } else { e })?;
        let report = buffer.get(..bytes).and_then(ProgramReport::decode);
        Ok(match (report, fds.first()) {
            (Some(ProgramReport::Started(_)), Some(pidfd)) => {
                Some(ProgramReport::Started(pid_of_pidfd(pidfd)))
            }
            // The number is unknown, because this process had no room for the descriptor that tells it.
            (Some(ProgramReport::Started(_)), None) if lacks => Some(ProgramReport::Started(0)),
            (report, _) => report,
        })
    }

    /// Whether the end of the program is known.
    pub(crate) fn is_known(&self) -> bool {
        self.end.get().is_some()
    }

    /// Whether there was no report about the program.
    pub(crate) fn is_unheard_of(&self) -> bool {
        self.pid.get().is_none() && !self.is_known()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.get().copied().unwrap_or_default()
    }

    /// Returns how the program ended, once its report has come, or no report will come any more.
    pub(crate) fn read_exit(&self) -> Option<Exit> {
        while self.end.get().is_none() {
            let lost = Exit {
                status: Status::Signal(libc::SIGKILL),
                user: Duration::ZERO,
                system: Duration::ZERO,
                max_rss: 0,
            };
            match self.read_report() {
                Err(Errno::AGAIN | Errno::INTR) => return None,
                Ok(Some(ProgramReport::Started(pid))) => drop(self.pid.set(pid)),
                Ok(Some(ProgramReport::Exited(exit, left))) => self.note_end(exit, left),
                // The helper has ended, and its programs with it.
                Ok(_) | Err(_) => drop(self.end.set((lost, LeftProcesses::None))),
            }
        }
        self.end.get().map(|(exit, _)| *exit)
    }

    fn note_end(&self, exit: Exit, left: LeftProcesses) {
        let _ = self.end.set((exit, left));
        if left == LeftProcesses::None {
            self.connection.mark_over();
        }
    }

    pub(crate) fn let_leftovers_stay(&mut self, stay: bool) {
        let left = self.end.get().map(|(_, left)| *left);
        if stay != self.leftovers_stay && left != Some(LeftProcesses::None) {
            self.leftovers_stay = stay;
            // The helper is busy; if this message is lost, they are ended.
            let _ = self.connection.send_byte(LEFTOVERS[usize::from(stay)]);
        }
    }

    pub(crate) fn wait(&self) -> Exit {
        loop {
            if let Some(exit) = self.read_exit() {
                return exit;
            }
            let _ = poll(&mut [PollFd::new(&self.connection, PollFlags::IN)], None);
        }
    }

    pub(crate) fn has_left_others(&self) -> bool {
        let left = self.end.get().map(|(_, left)| *left);
        !self.alone && left == Some(LeftProcesses::Group)
    }

    /// Whether processes of the group that the program left are still there. The helper reports once they are gone.
    pub(crate) fn group_remains(&mut self) -> bool {
        let gone = || !matches!(self.read_report(), Err(Errno::AGAIN | Errno::INTR));
        self.alone = self.alone || (self.has_left_others() && gone());
        self.has_left_others()
    }

    /// Asks the helper to lower the program's priority.
    pub(crate) fn lower_priority(&self, to: Priority) {
        if let Some(order) = priority_byte(to) {
            // The helper is busy; losing this message is harmless.
            let _ = self.connection.send_byte(order);
        }
    }

    /// Asks the helper to send a signal to the program's group.
    pub(crate) fn signal_group(&self, signal: i32) -> io::Result<()> {
        let signal = u8::try_from(signal).map_err(|_| io::ErrorKind::InvalidInput)?;
        let sent = self.connection.send_byte(signal);
        sent.map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Returns this process's number for a process in another PID namespace (pidfd_open(2)); 0 if that process has ended.
pub(crate) fn pid_of_pidfd(pidfd: &OwnedFd) -> i32 {
    let info = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let info = std::fs::read_to_string(info).unwrap_or_default();
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid = pid.and_then(|pid| pid.trim().parse().ok());
    pid.filter(|pid| *pid > 0).unwrap_or_default()
}

impl AsFd for RemoteChild {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
