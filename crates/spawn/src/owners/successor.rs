//! Another server, which is to take the place of the one that the spawner works for.
//!
//! The server may be under an attacker's control, and the other one begins as root. So the server asks for it, and says nothing
//! about it: what is started, and with which arguments, variables and folder, the spawner knows from its own start. The two
//! servers speak over a pair of sockets that the spawner has made, and the other one believes nothing of what it hears there.
//! That it serves it tells the spawner itself: until then the spawner ends it when the server asks for that, has gone, or
//! takes too long.

use super::remit::Remit;
use crate::{
    Child,
    exit::{Status, reap},
    remote::message::pair,
    words::how,
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

/// How long the other server may take until it serves: more than the server waits for it.
const SERVES_WITHIN: Duration = Duration::from_secs(90);

/// How long it may take to end where it cannot tell any more that it serves.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// How long one that was killed is waited for.
const KILLED_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// What the spawner's program does for it.
pub trait SpawnerBackend {
    /// Reads the configuration: what may be started.
    ///
    /// # Errors
    /// It cannot be used, or others than root may change it; in words.
    fn remits(&mut self) -> Result<Vec<Arc<Remit>>, String>;

    /// What may be started of one host, where `sites` says that of the folders of all.
    ///
    /// # Errors
    /// That is no host's name; in words.
    fn remit_of(&mut self, sites: &Remit, host: &str) -> Result<Remit, String>;

    /// Opens the program that runs WebAssembly modules.
    ///
    /// # Errors
    /// In words.
    fn modules(&mut self) -> Result<OwnedFd, String>;

    /// Starts another server with `line` to the one that asks, and `tells`, to which it writes a byte when it serves. It may outlive
    /// this process.
    ///
    /// # Errors
    /// It was not started, or others than root may change what would be; in words.
    fn start_server(
        &mut self,
        line: BorrowedFd<'_>,
        tells: BorrowedFd<'_>,
    ) -> Result<Child, String>;
}

/// An upgrade: one at a time, and none after one that has succeeded.
#[derive(Debug, Default)]
pub(super) struct Upgrade {
    /// The other server, while it runs.
    server: Option<SuccessorProcess>,
    /// It serves, or has served.
    serves: bool,
    /// How the last one ended by itself before it served.
    ended: Option<Status>,
}

#[derive(Debug)]
struct SuccessorProcess {
    pid: Pid,
    pidfd: OwnedFd,
    /// Where it tells that it serves; `None`: it has, or never will.
    tells: Option<OwnedFd>,
    until: Instant,
}

impl SuccessorProcess {
    /// Kills it, and waits for its end, which SIGKILL does not let take long; whether it was there.
    fn kill(self) -> bool {
        let was_there = kill_process(self.pid, Signal::KILL).is_ok();
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&KILLED_WITHIN));
        let _ = reap(self.pidfd.as_fd(), libc::WNOHANG);
        was_there
    }
}

impl Upgrade {
    /// Starts the other server, by a configuration that was found to be root's own: a socket to it, and what tells of its end.
    ///
    /// # Errors
    /// In words.
    pub(super) fn start(
        &mut self,
        host: &mut impl SpawnerBackend,
        now: Instant,
    ) -> Result<Vec<OwnedFd>, String> {
        self.look(now);
        if self.serves {
            return Err("another galgo has taken over already".into());
        }
        if self.server.is_some() {
            return Err("one is under way already".into());
        }
        let words = |e: Errno| format!("no sockets for it: {}", io::Error::from(e));
        let (ours, theirs) = pair().map_err(words)?;
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (told, tells) = pipe_with(flags).map_err(words)?;
        let child = host.start_server(theirs.as_fd(), tells.as_fd())?;
        let pid = Pid::from_raw(child.pid());
        // From here on it is ended and reaped here.
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

    /// What becomes readable when there is something to [look](Self::look) at.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        let server = self.server.iter();
        server.flat_map(|server| std::iter::once(&server.pidfd).chain(&server.tells))
    }

    /// How long it may still take until it serves.
    pub(super) fn left(&self, now: Instant) -> Option<Timespec> {
        let server = self.server.as_ref().filter(|_| !self.serves)?;
        Timespec::try_from(server.until.saturating_duration_since(now)).ok()
    }

    /// Whether it is that process.
    pub(super) fn is(&self, pid: Pid) -> bool {
        self.server.as_ref().is_some_and(|server| server.pid == pid)
    }

    /// Whether one runs, or has served.
    pub(super) fn is_there(&self) -> bool {
        self.serves || self.server.is_some()
    }

    /// What has become of it. Whether it was killed, and may have left others.
    pub(super) fn look(&mut self, now: Instant) -> bool {
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
        match reap(server.pidfd.as_fd(), libc::WNOHANG) {
            Ok(Some((status, _))) => {
                self.ended = Some(status);
                self.server = None;
                return false;
            }
            Ok(None) if self.serves || now < server.until => return false,
            Ok(None) | Err(_) => {}
        }
        let killed = self.server.take().filter(|_| !self.serves);
        killed.is_some_and(|server| server.kill())
    }

    /// Ends it, unless it serves: what there is to say of its end.
    pub(super) fn end(&mut self, now: Instant) -> String {
        self.look(now);
        match (&mut self.server, self.ended) {
            _ if self.serves => "another galgo has taken over already".into(),
            (None, Some(status)) => format!("it ended {} before it was ready", how(status)),
            (server, _) => {
                if let Some(server) = server {
                    server.until = now;
                    self.look(now);
                }
                "it closed its socket before it was ready, and was ended".into()
            }
        }
    }
}
