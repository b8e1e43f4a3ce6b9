//! A helper: a process that has become a user, and starts the programs of one route as this user.
//!
//! 1. a message: what to start, or to keep loaded  2. check it  3. start it, as the server does its own, or give it to a child
//!    of its template (`warm`)  4. tell how it ended, pass on signals
//!
//! It waits for no `execve`: the next message is read meanwhile. Nothing wakes it when a program has been executed, so most
//! have ended by the time that it could tell, and only that is told; of those that run for longer it tells after [`SOON`].

use super::{
    Remit, cgroups,
    message::{HelperOrder, LOWER, MOST, Report, StartOrder, receive},
    modules::{self, WorkerProgram},
    program::Program,
    warm::{templates::Templates, waiting::tell},
};
use crate::{
    Child, Direct, Launch, LaunchOutcome, Limits, Sandbox, StartError,
    identity::{Identity, effective_uid},
    reaper,
    sandbox::{self, Changes},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, Shutdown, shutdown},
    process::{
        DumpableBehavior, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal,
    },
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// A helper that nobody has asked for so long leaves.
const IDLE: Duration = Duration::from_secs(60);

/// A helper takes orders for so long: then the next one is made, as the spawner has read the configuration by then, with the
/// groups that the user has by then.
const LIFE: Duration = super::OLD;

/// So often it is looked whether what a program has left running is gone.
const LOOK: Duration = Duration::from_millis(20);

/// A program that has not ended by then is said to run.
const SOON: Duration = Duration::from_millis(5);

/// A program that runs, and the socket that the server has of it.
struct Running {
    child: Child,
    socket: OwnedFd,
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
    /// What runs modules, and what makes its domain in a strict sandbox.
    host: Option<WorkerProgram>,
    workers: Option<Arc<OwnedFd>>,
    programs: Vec<Running>,
    templates: Templates<'r>,
    buffer: Vec<u8>,
}

/// What a wait has come to, in the order in which it was waited for.
struct Ready {
    asked: bool,
    /// Of the programs, then of the templates.
    rest: std::vec::IntoIter<bool>,
}

/// Becomes the user, and serves `socket` until nobody asks any more. For a process of its own, with one thread.
///
/// # Errors
/// It could not become the user, in words; it has started nothing.
pub(super) fn serve(
    remit: &Remit,
    user: &Identity,
    (socket, host): (OwnedFd, Option<WorkerProgram>),
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
            let worker = modules::strict(remit, host.as_ref());
            let prepared = strict.prepare(&terms.path, &interpreters, worker);
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
    let (mut changes, mut workers) = (None, None);
    match prepared {
        Some(prepared) => {
            let confined = prepared.confine().map_err(io("confining programs"))?;
            direct.set_ruleset(confined.ruleset);
            workers = confined.worker.map(Arc::new);
            changes = confined.changes;
        }
        None if terms.sandbox == Sandbox::Standard && terms.no_new_privs => {
            sandbox::confine().map_err(io("confining programs"))?;
        }
        None => {}
    }
    reaper::end_orphans();
    let limits = match group {
        Some(_) => terms.limits.within_group(),
        None => terms.limits,
    };
    let mut helper = Helper {
        remit,
        uid: user.uid,
        limits,
        own_ids,
        changes,
        changed: false,
        direct,
        host,
        workers,
        programs: Vec::new(),
        templates: Templates::new(remit, user.uid, limits, own_ids),
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
            let mut ready = self.wait(open.then_some(socket), idle)?;
            let rest = &mut ready.rest;
            let (direct, own_ids) = (&mut self.direct, self.own_ids);
            self.programs
                .retain_mut(|program| program.turn(rest, direct, own_ids));
            let begun = self.templates.turn(rest);
            self.programs.extend(begun.into_iter().map(Running::begun));
            if ready.asked {
                asked = Instant::now();
                open = self.take(socket);
            }
            let is_idle = self.is_done() && asked.elapsed() >= idle;
            let is_old = made.elapsed() >= LIFE || self.changed;
            if open && (is_idle || is_old) {
                // Who asks from now on hears that there is no helper; what was asked meanwhile is still there.
                let _ = shutdown(socket, Shutdown::Read);
                while self.take(socket) {}
                open = false;
            }
            if !open {
                // The server will have others made by the next helper.
                self.templates.let_go();
                if self.is_done() {
                    return Ok(());
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.programs.is_empty() && self.templates.is_empty()
    }

    /// Waits until there is something to do.
    fn wait(&mut self, socket: Option<&OwnedFd>, idle: Duration) -> io::Result<Ready> {
        let left = self.programs.iter().map(|p| p.told.left());
        let patience = left.fold(idle, Duration::min);
        let patience = Timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut fds = Vec::with_capacity(2 * self.programs.len() + 16);
        fds.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let watched = self.changes.as_ref().filter(|_| socket.is_some());
        fds.extend(watched.map(|changes| PollFd::new(changes, PollFlags::IN)));
        self.programs.iter().for_each(|p| p.wait_for(&mut fds));
        self.templates.wait_for(&mut fds);
        let polled = match poll(&mut fds, Some(&patience)) {
            Ok(_) => true,
            Err(Errno::INTR) => false,
            Err(e) => return Err(e.into()),
        };
        let ready = fds.iter().map(|fd| polled && !fd.revents().is_empty());
        let mut ready = ready.collect::<Vec<_>>().into_iter();
        let asked = socket.is_some() && ready.next().unwrap_or_default();
        let changed = watched.is_some() && ready.next().unwrap_or_default();
        self.changed |= changed && watched.is_some_and(Changes::any);
        Ok(Ready { asked, rest: ready })
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
        let order = self.buffer.get(..n).and_then(HelperOrder::decode);
        let fds = <[OwnedFd; 4]>::try_from(fds);
        // What is not understood is not answered: its sockets close.
        if let (Some(order), Ok([input, output, error, socket])) = (order, fds) {
            let stdio = [&input, &output, &error];
            match order {
                HelperOrder::Start(order) => self.run_program(&order, stdio, socket),
                HelperOrder::Template(order) => {
                    self.templates.load(&mut self.direct, &order, stdio, socket);
                }
            }
        }
        true
    }

    fn run_program(&mut self, order: &StartOrder, stdio: [&OwnedFd; 3], socket: OwnedFd) {
        let started = match modules::asked_for(order) {
            true => self.start_worker(order, stdio),
            false => self.launch(order, stdio),
        };
        match started {
            Ok(child) => self.programs.push(Running {
                child,
                socket,
                told: Told::Nothing(Instant::now()),
            }),
            Err(report) => drop(tell(&socket, &report, &[])),
        }
    }

    /// Launches what was asked for, where that may be.
    fn launch(&mut self, order: &StartOrder, stdio: [&OwnedFd; 3]) -> Result<Child, Report> {
        let Program {
            path,
            args,
            env,
            dir,
        } = Program::of(order, self.remit, self.uid).map_err(Report::Denied)?;
        let terms = &self.remit.terms;
        let launch = Launch {
            path: Some(path),
            args,
            env,
            dir,
            limits: self.limits,
            no_new_privs: terms.no_new_privs,
            sandbox: terms.sandbox,
            more: Vec::new(),
            // The report of its end says why.
            knocks: false,
        };
        let launched = self.direct.launch(launch, stdio.map(AsFd::as_fd));
        launched.map_err(|e| failed(&e.error))
    }

    /// The worker of the route's modules.
    fn start_worker(&mut self, order: &StartOrder, stdio: [&OwnedFd; 3]) -> Result<Child, Report> {
        // The next helper may find one.
        self.changed |= matches!(self.host, Some(Err(_)));
        let given = modules::found(order, self.remit, self.host.as_ref());
        let given = given.map_err(Report::Denied)?;
        let strict = self.remit.terms.strict.is_some();
        let stdio = stdio.map(AsFd::as_fd);
        if strict {
            self.direct.exchange_ruleset(&mut self.workers);
        }
        let started = modules::start(&mut self.direct, self.remit, given, stdio);
        if strict {
            self.direct.exchange_ruleset(&mut self.workers);
        }
        started.map_err(|e| failed(&e))
    }
}

fn failed(e: &StartError) -> Report {
    Report::Failed(e.stage, e.source.raw_os_error().unwrap_or_default())
}

impl Told {
    /// When something is to be told, or looked at, though nothing has come.
    fn left(self) -> Duration {
        match self {
            Self::Nothing(since) => SOON.saturating_sub(since.elapsed()),
            Self::Runs => Duration::MAX,
            Self::Ended => LOOK,
        }
    }
}

impl Running {
    /// A template's child, of which was told.
    fn begun((child, socket): (Child, OwnedFd)) -> Self {
        Self {
            child,
            socket,
            told: Told::Runs,
        }
    }

    fn wait_for<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        fds.push(PollFd::new(&self.socket, PollFlags::IN));
        if self.told != Told::Ended {
            fds.push(PollFd::new(&self.child, PollFlags::IN));
        }
    }

    /// Goes on where there is something to do; false: it is over, or the server wants no more of it. `ready` says what of
    /// [`wait_for`](Self::wait_for) is; `own_ids`: the server knows it by another number.
    fn turn(
        &mut self,
        ready: &mut impl Iterator<Item = bool>,
        direct: &mut Direct,
        own_ids: bool,
    ) -> bool {
        let asked = ready.next().unwrap_or_default();
        let exited = self.told != Told::Ended && ready.next().unwrap_or_default();
        if asked && !self.signals() {
            return false;
        }
        match self.told {
            Told::Ended => self.child.group_remains(),
            Told::Nothing(since) if exited || since.elapsed() >= SOON => {
                self.begins(exited, direct, own_ids)
            }
            Told::Runs if exited => self.ends(),
            Told::Nothing(_) | Told::Runs => true,
        }
    }

    /// Passes on signals; false: the server wants no more of it.
    fn signals(&mut self) -> bool {
        loop {
            let mut order = [0];
            match receive(self.socket.as_fd(), &mut order, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return true,
                Ok((1, _)) => match LOWER.iter().position(|lower| *lower == order[0]) {
                    Some(more) => self.child.lower(more > 0),
                    None => drop(self.child.signal_group(i32::from(order[0]))),
                },
                _ => return false,
            }
        }
    }

    /// Tells that it runs, or that it has ended meanwhile, or why it was not started.
    fn begins(&mut self, exited: bool, direct: &mut Direct, own_ids: bool) -> bool {
        match direct.outcome(&self.child) {
            LaunchOutcome::UnderWay => {
                self.told = Told::Nothing(Instant::now());
                true
            }
            LaunchOutcome::Failed(e) => {
                tell(&self.socket, &failed(&e.error), &[]);
                false
            }
            // The server finds its own number of it as long as it is not reaped.
            LaunchOutcome::Started if own_ids || !exited => {
                self.tell_start(own_ids) && (!exited || self.ends())
            }
            LaunchOutcome::Started => self.ends(),
        }
    }

    fn tell_start(&mut self, own_ids: bool) -> bool {
        self.told = Told::Runs;
        let named: Vec<_> = own_ids.then(|| self.child.as_fd()).into_iter().collect();
        tell(&self.socket, &Report::Started(self.child.pid()), &named)
    }

    /// Tells of the end; and what others it has left are called by, where that was not told.
    fn ends(&mut self) -> bool {
        let exit = match self.child.try_wait_alone() {
            Ok(Some(exit)) => exit,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let left = self.child.left_others();
        if left && self.told != Told::Runs && !self.tell_start(false) {
            return false;
        }
        self.told = Told::Ended;
        tell(&self.socket, &Report::Exited(exit, left), &[]) && left
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
