//! A helper: a process that has become a user, and starts the programs of one route as this user.
//!
//! 1. a message: what to start  2. check it  3. start it, as the server does its own  4. tell how it ended, pass on signals

use super::{
    Remit, cgroups,
    message::{LOWER, MOST, Report, StartOrder, receive, send},
    program::Program,
};
use crate::{
    Child, Direct, Limits, Sandbox, Start,
    identity::{Identity, effective_uid},
    reaper,
    sandbox::{self, Changes},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, Shutdown, shutdown},
    process::{
        DumpableBehavior, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal,
    },
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

/// A helper that nobody has asked for so long leaves.
const IDLE: Duration = Duration::from_secs(60);

/// A helper takes orders for so long: then the next one is made, as the spawner has read the configuration by then, with the
/// groups that the user has by then.
const LIFE: Duration = super::OLD;

/// So often it is looked whether what a program has left running is gone.
const LOOK: Duration = Duration::from_millis(20);

/// A program that runs, and the socket that the server has of it.
struct Running {
    child: Child,
    socket: OwnedFd,
    /// It has ended, and its exit was told.
    told: bool,
}

/// What a helper works with.
struct Helper<'r> {
    remit: &'r Remit,
    uid: u32,
    /// Of each program.
    limits: Limits,
    /// It is in a PID namespace of its own: the server knows processes by other numbers.
    own_ids: bool,
    /// Files that a strict sandbox lists.
    changes: Option<Changes>,
    /// Others are in their place: the next helper will know them.
    changed: bool,
    direct: Direct,
    programs: Vec<Running>,
    buffer: Vec<u8>,
}

/// Becomes the user, and serves `socket` until nobody asks any more. For a process of its own, with one thread.
///
/// # Errors
/// It could not become the user, in words; it has started nothing.
pub(super) fn serve(
    remit: &Remit,
    user: &Identity,
    socket: OwnedFd,
    group: Option<&Path>,
) -> Result<(), String> {
    let io = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    let spawner = getppid();
    let terms = &remit.terms;
    if let Some(group) = group {
        cgroups::enter(group).map_err(io("entering its control group"))?;
    }
    let own_ids = remit.has_own_ids();
    let prepared = match &terms.strict {
        None => None,
        Some(strict) => {
            let interpreters = terms.interpreters.iter().map(|(_, path)| path.as_path());
            let interpreters: Vec<_> = interpreters.collect();
            let prepared = strict.prepare(&terms.path, &interpreters);
            Some(prepared.map_err(io("confining programs"))?)
        }
    };
    if effective_uid() != user.uid {
        user.assume().map_err(|e| e.to_string())?;
    }
    // After the change of user, with which the kernel takes both back.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| io("closing its memory")(e.into()))?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| io("prctl")(e.into()))?;
    if getppid() != spawner {
        return Err("the spawner has ended".into());
    }
    rustix::process::chdir("/").map_err(|e| io("chdir")(e.into()))?;
    let mut direct = Direct::new().map_err(io("preparing to start programs"))?;
    direct.set_umask(Some(terms.umask));
    direct.set_orphaned(Some(Signal::KILL.as_raw()));
    let mut changes = None;
    match prepared {
        Some(prepared) => {
            let confined = prepared.confine().map_err(io("confining programs"))?;
            direct.set_ruleset(confined.0);
            changes = confined.1;
        }
        None if terms.sandbox == Sandbox::Standard && terms.no_new_privs => {
            sandbox::confine().map_err(io("confining programs"))?;
        }
        None => {}
    }
    reaper::end_orphans();
    let mut helper = Helper {
        remit,
        uid: user.uid,
        limits: match group {
            Some(_) => terms.limits.within_group(),
            None => terms.limits,
        },
        own_ids,
        changes,
        changed: false,
        direct,
        programs: Vec::new(),
        buffer: vec![0; MOST],
    };
    helper.run(&socket).map_err(io("waiting for the server"))
}

impl Helper<'_> {
    fn run(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let made = Instant::now();
        let mut asked = made;
        let mut open = true;
        let idle = idle();
        loop {
            if self.wait(open.then_some(socket), idle)? {
                asked = Instant::now();
                open = self.take(socket);
            }
            self.programs.retain_mut(Running::goes_on);
            let is_idle = self.programs.is_empty() && asked.elapsed() >= idle;
            let is_old = made.elapsed() >= LIFE || self.changed;
            if open && (is_idle || is_old) {
                // Who asks from now on hears that there is no helper; what was asked meanwhile is still there.
                let _ = shutdown(socket, Shutdown::Read);
                while self.take(socket) {}
                open = false;
            }
            if !open && self.programs.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits until there is something to do; whether that is a message.
    fn wait(&mut self, socket: Option<&OwnedFd>, idle: Duration) -> io::Result<bool> {
        let look = self.programs.iter().any(|p| p.told);
        let patience = if look { LOOK } else { idle };
        let patience = Timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut fds = Vec::with_capacity(2 * self.programs.len() + 1);
        fds.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        for program in &self.programs {
            fds.push(PollFd::new(&program.socket, PollFlags::IN));
            if !program.told {
                fds.push(PollFd::new(&program.child, PollFlags::IN));
            }
        }
        let watched = self.changes.as_ref().filter(|_| socket.is_some());
        fds.extend(watched.map(|changes| PollFd::new(changes, PollFlags::IN)));
        let asked = match poll(&mut fds, Some(&patience)) {
            Ok(_) => socket.is_some() && !fds[0].revents().is_empty(),
            Err(Errno::INTR) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        let last = fds.last().is_some_and(|fd| !fd.revents().is_empty());
        self.changed |= last && watched.is_some_and(Changes::any);
        Ok(asked)
    }

    /// Takes one message; whether there may be more.
    fn take(&mut self, socket: &OwnedFd) -> bool {
        let received = receive(socket.as_fd(), &mut self.buffer, RecvFlags::DONTWAIT);
        let (n, fds) = match received {
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => return true,
            Err(_) | Ok((0, _)) => return false,
            Ok(got) => got,
        };
        let order = self.buffer.get(..n).and_then(StartOrder::decode);
        let fds = <[OwnedFd; 4]>::try_from(fds);
        // What is not understood is not answered: its sockets close.
        if let (Some(order), Ok([input, output, error, socket])) = (order, fds) {
            let (report, child) = match self.start(&order, [&input, &output, &error]) {
                Ok(child) => (Report::Started(child.pid()), Some(child)),
                Err(report) => (report, None),
            };
            let named = child.as_ref().filter(|_| self.own_ids);
            let fds: Vec<_> = named.iter().map(|child| child.as_fd()).collect();
            let told = tell(&socket, &report, &fds);
            if let (true, Some(child)) = (told, child) {
                self.programs.push(Running {
                    child,
                    socket,
                    told: false,
                });
            }
        }
        true
    }

    /// Starts what was asked for, where that may be.
    fn start(&mut self, order: &StartOrder, stdio: [&OwnedFd; 3]) -> Result<Child, Report> {
        let Program {
            path,
            args,
            env,
            dir,
        } = Program::of(order, self.remit, self.uid).map_err(Report::Denied)?;
        let terms = &self.remit.terms;
        let start = Start {
            path: &path,
            args: &args,
            env: &env,
            dir: &dir,
            stdio: stdio.map(AsFd::as_fd),
            more: &[],
            limits: self.limits,
            no_new_privs: terms.no_new_privs,
            sandbox: terms.sandbox,
        };
        let started = self.direct.start(&start);
        started.map_err(|e| Report::Failed(e.stage, e.source.raw_os_error().unwrap_or_default()))
    }
}

impl Running {
    /// Passes on signals, and tells of the end; false: it is over, or the server wants no more of it.
    fn goes_on(&mut self) -> bool {
        loop {
            let mut order = [0];
            match receive(self.socket.as_fd(), &mut order, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => break,
                Ok((1, _)) => match LOWER.iter().position(|lower| *lower == order[0]) {
                    Some(more) => self.child.lower(more > 0),
                    None => drop(self.child.signal_group(i32::from(order[0]))),
                },
                _ => return false,
            }
        }
        if self.told {
            return self.child.group_remains();
        }
        match self.child.try_wait_alone() {
            Ok(None) => true,
            Ok(Some(exit)) => {
                self.told = true;
                tell(
                    &self.socket,
                    &Report::Exited(exit, self.child.left_others()),
                    &[],
                ) && self.child.left_others()
            }
            Err(_) => false,
        }
    }
}

/// [`IDLE`]; a test may ask a debug build for less.
fn idle() -> Duration {
    let asked = std::env::var("GALGO_TEST_HELPER_IDLE").ok();
    let asked = asked.filter(|_| cfg!(debug_assertions));
    asked
        .and_then(|ms| Some(Duration::from_millis(ms.parse().ok()?)))
        .unwrap_or(IDLE)
}

/// Whether the server can hear it still.
fn tell(socket: &OwnedFd, report: &Report, fds: &[BorrowedFd<'_>]) -> bool {
    send(
        socket.as_fd(),
        &[&report.encode()],
        fds,
        SendFlags::DONTWAIT,
    )
    .is_ok()
}
