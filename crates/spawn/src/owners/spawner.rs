//! The process that keeps root's rights: it makes helpers, ends what they leave behind, and starts the server that is to take
//! the place of its own.

use super::{
    Layout, OLD, Remit,
    cgroups::Cgroups,
    helper,
    message::{Order, pair, receive, send},
    successor::{SpawnerBackend, Upgrade},
};
use crate::{
    NamelessListener,
    claims::MarkRange,
    identity::Identity,
    inherited::{close_all_but, inherited},
    leftover::{children, mark_of},
    reaper::ENDED,
};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::Errno,
    net::{RecvFlags, SendFlags, sockopt::socket_type},
    process::{
        DumpableBehavior, Pid, PidfdFlags, Resource, Signal, WaitId, getpid, getppid, kill_process,
        pidfd_open, set_child_subreaper, set_dumpable_behavior, setrlimit, waitid,
    },
};
use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// So often it is looked whether what was killed is gone; and so often at the end, when the server has gone.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
const LAST_LOOKS: u32 = 250;

/// The socket that this process was executed with. To be called once.
///
/// # Errors
/// There is none: it was executed for something else.
pub fn socket() -> Result<OwnedFd, String> {
    let words = |e: io::Error| format!("this is what `galgo serve` starts for itself: {e}");
    let mut given = inherited(1).map_err(words)?;
    // INVARIANT: as many as were asked for.
    let socket = given.pop().expect("one descriptor");
    socket_type(&socket).map_err(|e| words(e.into()))?;
    Ok(socket)
}

/// Makes helpers until the server has gone, and ends them then. For a process of its own, with one thread, that was
/// executed for this; `host` is its program.
///
/// # Errors
/// The kernel's, in words.
pub fn serve(socket: OwnedFd, mut host: impl SpawnerBackend) -> Result<(), String> {
    let closed = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    closed.map_err(|e| format!("cannot close the spawner's memory: {e}"))?;
    // What a helper that ends leaves behind becomes a child of this process.
    let heir = set_child_subreaper(Some(getpid()));
    heir.map_err(|e| format!("cannot take over what helpers leave behind: {e}"))?;
    let mut spawner = SpawnerProcess {
        socket,
        remits: Remits::default(),
        helpers: Vec::new(),
        // Its server has started this process, and does not end before it.
        marks: MarkRange::of_server(getppid().map_or(0, Pid::as_raw_pid)),
        made: 0,
        cgroups: Cgroups::default(),
        upgrade: Upgrade::default(),
        strays: false,
    };
    let served = spawner.run(&mut host);
    spawner.end();
    served
}

/// What may be started: by its digest, and since when that is not configured any more.
#[derive(Default)]
struct Remits(HashMap<u64, (Arc<Remit>, Option<Instant>)>);

impl Remits {
    /// These are configured now. Requests that began before go on with what they began with.
    fn replace(&mut self, remits: Vec<Arc<Remit>>, now: Instant) {
        for (_, since) in self.0.values_mut() {
            since.get_or_insert(now);
        }
        let new = remits.into_iter().map(|r| (r.digest(), (r, None)));
        self.0.extend(new);
    }

    fn get(&mut self, digest: u64, now: Instant) -> Option<Arc<Remit>> {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= OLD;
        self.0.retain(|_, (_, since)| !since.is_some_and(is_old));
        self.0.get(&digest).map(|(remit, _)| remit.clone())
    }
}

/// A helper that runs.
struct HelperProcess {
    pid: Pid,
    pidfd: OwnedFd,
    group: Option<PathBuf>,
}

struct SpawnerProcess {
    socket: OwnedFd,
    remits: Remits,
    helpers: Vec<HelperProcess>,
    /// The marks of the server and its helpers, and how many helpers were made.
    marks: MarkRange,
    made: u64,
    cgroups: Cgroups,
    upgrade: Upgrade,
    /// There may be children that are no helpers: a helper has ended, and has left them behind.
    strays: bool,
}

impl SpawnerProcess {
    fn run(&mut self, host: &mut impl SpawnerBackend) -> Result<(), String> {
        loop {
            let mut fds = vec![PollFd::new(&self.socket, PollFlags::IN)];
            let helpers = self.helpers.iter().map(|h| &h.pidfd);
            let others = helpers.chain(self.upgrade.descriptors());
            fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let most = match self.strays {
                true => Some(LOOK),
                false => self.upgrade.left(Instant::now()),
            };
            match poll(&mut fds, most.as_ref()) {
                Err(Errno::INTR) => continue,
                Err(e) => return Err(format!("waiting for the server: {e}")),
                Ok(_) => {}
            }
            let asked = !fds[0].revents().is_empty();
            self.strays |= fds[1..].iter().any(|fd| !fd.revents().is_empty());
            self.strays |= self.upgrade.look(Instant::now());
            if self.strays {
                self.reap_helpers();
                self.strays = self.end_strays() | self.cgroups.look();
            }
            if asked && !self.answer(host) {
                return Ok(());
            }
        }
    }

    /// Does what the server asks for, once; whether it is still there.
    fn answer(&mut self, host: &mut impl SpawnerBackend) -> bool {
        let mut buffer = [0; Order::SIZE];
        let n = match receive(self.socket.as_fd(), &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::INTR | Errno::AGAIN) => return true,
            Err(_) | Ok((0, _)) => return false,
            Ok((n, _)) => n,
        };
        let now = Instant::now();
        let answer = match buffer.get(..n).and_then(Order::decode) {
            None => Err("the spawner does not understand".to_owned()),
            Some(Order::Reload) => host.remits().map(|read| {
                self.remits.replace(read, now);
                Vec::new()
            }),
            Some(Order::Listener) => match NamelessListener::make() {
                Ok(made) => Ok(vec![made.listener, made.file]),
                Err(e) => Err(format!("a socket for a worker was not made: {e}")),
            },
            Some(Order::Helper {
                digest,
                uid,
                host: name,
            }) => self
                .remit(host, (digest, name), now)
                .and_then(|remit| self.make(host, &remit, uid))
                .map(|helper| vec![helper]),
            Some(Order::Upgrade) => self.upgrade.start(host, now),
            Some(Order::EndUpgrade) => {
                self.strays = true;
                Err(self.upgrade.end(now))
            }
        };
        let words = match &answer {
            Ok(_) => "Y".to_owned(),
            Err(why) => format!("N{}", &why[..why.floor_char_boundary(900)]),
        };
        let fds: Vec<_> = answer.iter().flatten().map(AsFd::as_fd).collect();
        // A server that asks and does not read is not waited for.
        let parts = [words.as_bytes()];
        let told = send(self.socket.as_fd(), &parts, &fds, SendFlags::DONTWAIT);
        !matches!(told, Err(Errno::PIPE | Errno::CONNRESET))
    }

    /// What a helper is asked for: of the folders of hosts, what is made of that for one.
    fn remit(
        &mut self,
        host: &mut impl SpawnerBackend,
        (digest, name): (u64, &str),
        now: Instant,
    ) -> Result<Arc<Remit>, String> {
        let remit = self
            .remits
            .get(digest, now)
            .ok_or("the configuration has changed since the server has read it: reload it")?;
        // Programs below the folder of all hosts are started by the remit of one alone.
        match (remit.terms.layout == Layout::Hosts, name) {
            (false, "") => Ok(remit),
            (true, name) if !name.is_empty() => {
                let remit = host.remit_of(&remit, name)?;
                // Said here it is an answer to the request: what a helper says at its start stands in the log alone.
                remit.folder().map_err(|e| e.to_string())?;
                Ok(Arc::new(remit))
            }
            _ => Err("a helper is for a route, or for one host".to_owned()),
        }
    }

    /// A helper as the user `uid`: its socket.
    fn make(
        &mut self,
        host: &mut impl SpawnerBackend,
        remit: &Remit,
        uid: u32,
    ) -> Result<OwnedFd, String> {
        let user = remit.identity(uid)?;
        let group = self
            .cgroups
            .join((remit.digest(), uid), &remit.terms.limits)?;
        let made = self.fork(host, remit, &user, group.as_deref());
        let (pid, pidfd, ours) = made.map_err(|e| {
            // This helper never entered it.
            group.iter().for_each(|group| self.cgroups.leave(group));
            format!("a helper was not made: {e}")
        })?;
        self.helpers.push(HelperProcess { pid, pidfd, group });
        Ok(ours)
    }

    /// The helper's process, and its socket.
    fn fork(
        &mut self,
        host: &mut impl SpawnerBackend,
        remit: &Remit,
        user: &Identity,
        group: Option<&Path>,
    ) -> io::Result<(Pid, OwnedFd, OwnedFd)> {
        let (ours, theirs) = pair()?;
        let program = remit.terms.modules.as_ref().map(|_| host.modules());
        let here = remit.has_own_ids().then(own_ids).transpose()?;
        let marks = self.marks.of_helper(self.made);
        self.made += 1;
        // SAFETY: this process has one thread, so that the child has all there is of it: no lock is held by a thread
        // that is not there.
        let pid = match unsafe { libc::fork() } {
            0 => {
                let opened = program.as_ref().and_then(|program| program.as_ref().ok());
                close_all_but([Some(&theirs), opened]);
                let given = (theirs, program);
                let ready = mark(marks).and_then(|()| leave_streams());
                let served = ready.and_then(|()| helper::serve(remit, user, given, group));
                let code = match served {
                    Ok(()) => 0,
                    Err(words) => {
                        eprintln!(
                            "galgo: a helper of the user {} has ended: {words}",
                            user.uid
                        );
                        1
                    }
                };
                // SAFETY: ends the process; what the spawner would do at its end is not this one's to do.
                unsafe { libc::_exit(code) }
            }
            pid => pid,
        };
        let failed = io::Error::last_os_error();
        if let Some(here) = here {
            // INVARIANT: who may make a namespace may have children in its own again.
            move_into_link_name_space(here.as_fd(), Some(LinkNameSpaceType::ProcessID))
                .expect("children in this process's own PID namespace");
        }
        if pid < 0 {
            return Err(failed);
        }
        let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty());
        // Without, it is ended as what a helper has left.
        self.strays |= pidfd.is_err();
        Ok((pid, pidfd?, ours))
    }

    /// Reaps helpers that have ended.
    fn reap_helpers(&mut self) {
        let ended = self.helpers.extract_if(.., |helper| reap(helper.pid));
        for group in ended.filter_map(|helper| helper.group) {
            self.cgroups.leave(&group);
        }
    }

    /// Ends what helpers have left behind; whether there may be more. A process that ends leaves its own children here, after
    /// this has looked which there are: only a look that finds none is the last one.
    ///
    /// Once a server has taken over, what that one has left becomes this process's child, too: its spawner, and the server
    /// that took its place. Neither has a helper's mark.
    fn end_strays(&mut self) -> bool {
        let mut strays = children();
        strays.retain(|pid| !self.helpers.iter().any(|h| h.pid == *pid) && !self.upgrade.is(*pid));
        // After the look for children: a server that serves has told so before it left any.
        let mut found = self.upgrade.look(Instant::now());
        // What a server that is to take over has started, and is none of a helper's.
        let spares = self.upgrade.is_there();
        for pid in strays {
            // It is this process's child, and only reaped here: the number is its own.
            if !(spares && self.is_of_no_helper(pid)) {
                let _ = kill_process(pid, Signal::KILL);
                found = true;
            }
            reap(pid);
        }
        found
    }

    /// The server has gone: ends the helpers, and all that they have started. A server that has taken its place stays.
    fn end(&mut self) {
        self.upgrade.end(Instant::now());
        for helper in self.helpers.drain(..) {
            let _ = kill_process(helper.pid, Signal::KILL);
            if let Some(group) = helper.group {
                self.cgroups.leave(&group);
            }
        }
        for _ in 0..LAST_LOOKS {
            if !self.end_strays() && !self.cgroups.look() {
                return;
            }
            let _ = poll(&mut [], Some(&LOOK));
        }
    }

    /// Whether a process has no mark of a helper.
    fn is_of_no_helper(&self, pid: Pid) -> bool {
        mark_of(pid.as_raw_pid()).is_some_and(|mark| !self.marks.contains(mark))
    }
}

/// Has the next children be in a PID namespace of their own, the first of them its init; what is to be entered after that. Such
/// a helper no program can signal, and the kernel ends with it all that it has started.
fn own_ids() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let here = open("/proc/self/ns/pid", flags, Mode::empty())?;
    // SAFETY: no descriptors are unshared. This process starts no threads.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?;
    Ok(here)
}

/// Reaps a child that has ended; whether it is gone.
fn reap(pid: Pid) -> bool {
    !matches!(waitid(WaitId::Pid(pid), ENDED), Ok(None))
}

/// In a child of the spawner: whatever it starts is known as a helper's, also when the helper has ended.
fn mark(marks: MarkRange) -> Result<(), String> {
    setrlimit(Resource::Locks, marks.limit())
        .map_err(|e| format!("setrlimit: {}", io::Error::from(e)))
}

/// In a child of the spawner: the standard streams that a server which takes over is given are none of a helper's.
fn leave_streams() -> Result<(), String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = open("/dev/null", flags, Mode::empty());
    null.and_then(|null| {
        dup2_stdin(null)?;
        dup2_stdout(io::stderr())
    })
    .map_err(|e| format!("opening /dev/null: {}", io::Error::from(e)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::owners::tests::remit;

    #[test]
    fn what_was_configured_is_forgotten_after_a_while() {
        let (a, b) = (Arc::new(remit("/a")), Arc::new(remit("/b")));
        let mut remits = Remits::default();
        let start = Instant::now();
        remits.replace(vec![a.clone()], start);
        remits.replace(vec![b.clone()], start);
        assert!(remits.get(a.digest(), start).is_some());
        // Read again: what counts is when it was gone first.
        let later = start + OLD / 2;
        remits.replace(vec![b.clone()], later);
        assert!(remits.get(a.digest(), later).is_some());
        assert!(remits.get(a.digest(), start + OLD).is_none());
        assert!(remits.get(b.digest(), start + 3 * OLD).is_some());
        // What comes back is there for good.
        remits.replace(vec![a.clone()], start + OLD);
        assert!(remits.get(a.digest(), start + 9 * OLD).is_some());
    }
}
