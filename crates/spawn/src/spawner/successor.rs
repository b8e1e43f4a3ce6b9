//! An upgrade: starting a successor, another server that takes the place of the spawner's own server.
//!
//! The server may be under an attacker's control, and the successor begins as root. So the server can only ask for a successor.
//! The spawner knows from its own start what to execute, with which arguments, variables and folder. The two servers talk over
//! a pair of sockets that the spawner has made, and the successor does not trust the server's messages there. The successor
//! tells the spawner directly when it serves. Until then the spawner ends the successor if the server asks for that, if the
//! server ends, or if the successor takes too long.

use crate::{
    Child,
    exit::{Status, reap_process},
    owners::remit::Remit,
    remote::message::socket_pair,
    words::describe_status,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// Time for the successor to serve: longer than the server waits for it.
const SERVES_WITHIN: Duration = Duration::from_secs(90);

/// Time for the successor to end if it can no longer tell that it serves.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Time to wait for the end of a killed successor.
const KILLED_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Services that the spawner's program provides to the spawner.
pub trait SpawnerBackend {
    /// Reads in the configuration which programs may be started.
    ///
    /// # Errors
    /// The configuration cannot be used, or users other than root may change it. The error is a sentence for the log.
    fn read_remits(&mut self) -> Result<Vec<Arc<Remit>>, String>;

    /// Returns the remit for one host, derived from `sites`, the remit for the folders of all hosts.
    ///
    /// # Errors
    /// `host` is no host name. The error is a sentence for the log.
    fn derive_remit(&mut self, sites: &Remit, host: &str) -> Result<Remit, String>;

    /// Opens the program that runs WebAssembly modules.
    ///
    /// # Errors
    /// A sentence for the log.
    fn open_module_host(&mut self) -> Result<OwnedFd, String>;

    /// Starts another server. `line` is its socket to the server that asks. The new server writes a byte to `tells` once it
    /// serves. The new server may outlive this process.
    ///
    /// # Errors
    /// The server was not started, or users other than root may change its files. The error is a sentence for the log.
    fn start_server(
        &mut self,
        line: BorrowedFd<'_>,
        tells: BorrowedFd<'_>,
    ) -> Result<Child, String>;
}

/// The upgrade: only one runs at a time, and none is started after an upgrade that has succeeded.
#[derive(Debug, Default)]
pub(crate) struct Upgrade {
    /// The successor, while it runs.
    server: Option<SuccessorProcess>,
    /// A successor serves, or has served.
    serves: bool,
    /// Status of the last successor that ended by itself before it served.
    ended: Option<Status>,
}

#[derive(Debug)]
struct SuccessorProcess {
    pid: Pid,
    pidfd: OwnedFd,
    /// Pipe on which the successor tells that it serves; `None` if it has told so, or never will.
    tells: Option<OwnedFd>,
    until: Instant,
}

impl SuccessorProcess {
    /// Kills the successor, and waits for its end, which comes soon after SIGKILL. Returns whether it still existed.
    fn kill_and_reap(self) -> bool {
        let was_there = kill_process(self.pid, Signal::KILL).is_ok();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&KILLED_WITHIN));
        let _ = reap_process(self.pidfd.as_fd(), libc::WNOHANG);
        was_there
    }
}

impl Upgrade {
    /// Starts the successor, after the configuration was found to be root's own. Returns a socket to the successor, and its
    /// pidfd.
    ///
    /// # Errors
    /// A sentence for the log.
    pub(crate) fn start_successor(
        &mut self,
        host: &mut impl SpawnerBackend,
        now: Instant,
    ) -> Result<Vec<OwnedFd>, String> {
        self.check_successor(now);
        if self.serves {
            return Err("another galgo has taken over already".into());
        }
        if self.server.is_some() {
            return Err("an upgrade is already running".into());
        }
        let words = |e: Errno| format!("no sockets for the new galgo: {}", io::Error::from(e));
        let (ours, theirs) = socket_pair().map_err(words)?;
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (told, tells) = pipe_with(flags).map_err(words)?;
        let child = host.start_server(theirs.as_fd(), tells.as_fd())?;
        let pid = Pid::from_raw(child.pid());
        // From here on this function ends and reaps the process.
        child.let_go();
        let pid = pid.ok_or("it has ended")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| {
            let _ = kill_process(pid, Signal::KILL);
            words(e)
        })?;
        let watched = pidfd.try_clone().map_err(|e| e.to_string())?;
        self.ended = None;
        self.server = Some(SuccessorProcess {
            pid,
            pidfd,
            tells: Some(told),
            until: now + SERVES_WITHIN,
        });
        Ok(vec![ours, watched])
    }

    /// Returns the descriptors to poll. If any of them is readable, there is work for [`check_successor`](Self::check_successor).
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        let server = self.server.iter();
        server.flat_map(|server| std::iter::once(&server.pidfd).chain(&server.tells))
    }

    /// Returns how long the successor may still take until it serves.
    pub(crate) fn time_left(&self, now: Instant) -> Option<Timespec> {
        let server = self.server.as_ref().filter(|_| !self.serves)?;
        Timespec::try_from(server.until.saturating_duration_since(now)).ok()
    }

    /// Whether `pid` is the successor.
    pub(crate) fn is_successor(&self, pid: Pid) -> bool {
        self.server.as_ref().is_some_and(|server| server.pid == pid)
    }

    /// Whether a successor runs, or has served.
    pub(crate) fn is_there(&self) -> bool {
        self.serves || self.server.is_some()
    }

    /// Checks on the successor. Returns whether it was killed, and may have left other processes.
    pub(crate) fn check_successor(&mut self, now: Instant) -> bool {
        let Some(server) = &mut self.server else {
            return false;
        };
        if let Some(tells) = &server.tells {
            match read(tells, &mut [0]) {
                Ok(1) => {
                    self.serves = true;
                    server.tells = None;
                }
                Ok(_) => {
                    server.tells = None;
                    server.until = server.until.min(now + ENDS_WITHIN);
                }
                Err(_) => {}
            }
        }
        match reap_process(server.pidfd.as_fd(), libc::WNOHANG) {
            Ok(Some((status, _))) => {
                self.ended = Some(status);
                self.server = None;
                return false;
            }
            Ok(None) if self.serves || now < server.until => return false,
            Ok(None) | Err(_) => {}
        }
        let killed = self.server.take().filter(|_| !self.serves);
        killed.is_some_and(|server| server.kill_and_reap())
    }

    /// Ends the successor unless it serves. Returns a sentence about its end.
    pub(crate) fn end_successor(&mut self, now: Instant) -> String {
        self.check_successor(now);
        match (&mut self.server, self.ended) {
            _ if self.serves => "another galgo has taken over already".into(),
            (None, Some(status)) => {
                format!("it ended {} before it was ready", describe_status(status))
            }
            (server, _) => {
                if let Some(server) = server {
                    server.until = now;
                    self.check_successor(now);
                }
                "it closed its socket before it was ready, and was ended".into()
            }
        }
    }
}
