//! A program that a helper has started for this process.

use crate::{
    error::{StartError, StartStage},
    exit::{Exit, Status},
    remote::{
        connection::ProgramConnection,
        message::{ProgramReport, REPORT, Received, lower},
        shortage::is_short,
    },
    start::{FailedLaunch, Launch, LaunchOutcome, Priority},
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

/// A program that a helper has started, or is to start. Closing its connection ends it.
#[derive(Debug)]
pub(crate) struct RemoteChild {
    connection: ProgramConnection,
    launch: Mutex<Option<Launch>>,
    pid: OnceLock<i32>,
    /// How it ended, and whether it has left others behind.
    end: OnceLock<(Exit, bool)>,
    /// They are gone.
    alone: bool,
}

impl RemoteChild {
    /// One that is launched; without a `launch` one that waited for its request, and is being given it:
    /// [`began`](Self::began).
    pub(crate) fn new(connection: ProgramConnection, launch: Option<Launch>) -> Self {
        Self {
            connection,
            launch: Mutex::new(launch),
            pid: OnceLock::new(),
            end: OnceLock::new(),
            alone: false,
        }
    }

    /// What has become of the start. A failure is told once.
    pub(crate) fn outcome(&self) -> LaunchOutcome {
        let mut launch = self.launch.lock().unwrap_or_else(PoisonError::into_inner);
        if launch.is_none() {
            return LaunchOutcome::Started;
        }
        let Some(started) = self.started() else {
            return LaunchOutcome::UnderWay;
        };
        match (started, launch.take()) {
            (Err(error), Some(launch)) => {
                LaunchOutcome::Failed(Box::new(FailedLaunch { error, launch }))
            }
            _ => LaunchOutcome::Started,
        }
    }

    /// Whether one that waited for its request has it.
    ///
    /// # Errors
    /// It has not, and will not.
    pub(crate) fn began(&self) -> io::Result<bool> {
        if self.pid.get().is_some() {
            return Ok(true);
        }
        let started = self.started().transpose().map_err(io::Error::other)?;
        Ok(started.is_some())
    }

    /// Whether it was started; `None`: that is not known yet.
    fn started(&self) -> Option<Result<(), StartError>> {
        Some(match self.report() {
            Err(Errno::AGAIN) => return None,
            Ok(Some(ProgramReport::Started(pid))) => {
                let _ = self.pid.set(pid);
                Ok(())
            }
            Ok(Some(ProgramReport::Exited(exit, left))) => {
                self.ended(exit, left);
                Ok(())
            }
            Ok(Some(ProgramReport::Failed(stage, errno))) => Err(StartError::errno(stage, errno)),
            Ok(Some(ProgramReport::Denied(why))) => Err(StartError {
                stage: StartStage::Denied,
                source: io::Error::other(why),
            }),
            // It has closed the connection: it had no room for the order's descriptors.
            Ok(_) | Err(_) if !self.connection.helper.is_over() => {
                Err(StartError::errno(StartStage::Descriptors, libc::EMFILE))
            }
            // It has ended, with the program or before.
            Ok(_) | Err(_) => Err(StartError::errno(StartStage::Helper, libc::ECONNRESET)),
        })
    }

    /// What comes next, without waiting; `None` at the end, and where it makes no sense.
    fn report(&self) -> Result<Option<ProgramReport>, Errno> {
        let mut buffer = [0; REPORT];
        let received = self.connection.receive_all(&mut buffer);
        let Received { bytes, lacks, fds } =
            received.map_err(|e| if is_short(e) { Errno::AGAIN } else { e })?;
        let report = buffer.get(..bytes).and_then(ProgramReport::decode);
        Ok(match (report, fds.first()) {
            (Some(ProgramReport::Started(_)), Some(pidfd)) => {
                Some(ProgramReport::Started(number(pidfd)))
            }
            // Its number here is not known: this process had no room for the descriptor that tells it.
            (Some(ProgramReport::Started(_)), None) if lacks => Some(ProgramReport::Started(0)),
            (report, _) => report,
        })
    }

    /// Whether it is known how it ended.
    pub(crate) fn is_known(&self) -> bool {
        self.end.get().is_some()
    }

    /// Whether nothing was told of it.
    pub(crate) fn is_unheard_of(&self) -> bool {
        self.pid.get().is_none() && !self.is_known()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.get().copied().unwrap_or_default()
    }

    /// How it ended, once that has come, or nothing more will.
    pub(crate) fn exit(&self) -> Option<Exit> {
        while self.end.get().is_none() {
            let lost = Exit {
                status: Status::Signal(libc::SIGKILL),
                user: Duration::ZERO,
                system: Duration::ZERO,
                max_rss: 0,
            };
            match self.report() {
                Err(Errno::AGAIN | Errno::INTR) => return None,
                Ok(Some(ProgramReport::Started(pid))) => drop(self.pid.set(pid)),
                Ok(Some(ProgramReport::Exited(exit, left))) => self.ended(exit, left),
                // The helper has ended, and its programs with it.
                Ok(_) | Err(_) => drop(self.end.set((lost, false))),
            }
        }
        self.end.get().map(|(exit, _)| *exit)
    }

    fn ended(&self, exit: Exit, left: bool) {
        let _ = self.end.set((exit, left));
        if !left {
            self.connection.end();
        }
    }

    pub(crate) fn wait(&self) -> Exit {
        loop {
            if let Some(exit) = self.exit() {
                return exit;
            }
            let _ = poll(&mut [PollFd::new(&self.connection, PollFlags::IN)], None);
        }
    }

    pub(crate) fn left_others(&self) -> bool {
        !self.alone && self.end.get().is_some_and(|(_, left)| *left)
    }

    /// Whether they are there still: the helper closes the socket once they are not.
    pub(crate) fn group_remains(&mut self) -> bool {
        let gone = || !matches!(self.report(), Err(Errno::AGAIN | Errno::INTR));
        self.alone = self.alone || (self.left_others() && gone());
        self.left_others()
    }

    /// Has the helper lower its priority.
    pub(crate) fn lower(&self, to: Priority) {
        if let Some(order) = lower(to) {
            // One that does not take it has other things to do than to start programs.
            let _ = self.connection.send(order);
        }
    }

    /// Has the helper send a signal to the group.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        let signal = u8::try_from(signal).map_err(|_| io::ErrorKind::InvalidInput)?;
        let sent = self.connection.send(signal);
        sent.map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// The number by which this process knows one of another PID namespace (pidfd_open(2)); 0: it has ended.
pub(crate) fn number(pidfd: &OwnedFd) -> i32 {
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
