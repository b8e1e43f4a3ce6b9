//! A helper: a process that has become a user, and starts the programs of one route as this user.
//!
//! 1. Receive a message: a program to start, or to keep loaded.
//! 2. Check it.
//! 3. Start the program as the server does its own, or give the request to a child of its template (`warm`).
//! 4. Report the program's end, and pass on signals.
//!
//! A helper does not wait for `execve`, but reads the next message meanwhile. Nothing wakes the helper when a program has been
//! executed. Most programs have ended before the helper could report their start, so it reports only their end. For longer
//! programs it reports the start after a moment ([`SupervisedProgram`]).

pub(crate) mod checked_program;
pub(crate) mod errand;
pub(crate) mod listed;
pub(crate) mod modules;
pub(crate) mod running;
pub(crate) mod warm;

use crate::{
    Child, Direct, Launch, Limits, Sandbox,
    helper::{
        checked_program::{CheckedProgram, HelperTerms, NotChecked},
        listed::{ListedFiles, STALE},
        modules::WorkerProgram,
        running::{ProgramEvent, SupervisedProgram, failure_report},
        warm::templates::HelperTemplates,
    },
    identity::{Identity, effective_uid},
    leave_signals_to_others, leftover,
    owners::{Remit, cgroups, link::NotDone, remit::Terms},
    reaper,
    remote::{
        connection::{HelperEnd, IdleEnds},
        deadline::ANSWERS_WITHIN,
        message::{HelperOrder, MOST, OrderAnswer, ProgramReport, StartOrder, receive_message},
        shortage::{is_short, pause_for_shortage},
    },
    sandbox::{self, Ipc, Prepared},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, write},
    net::{RecvFlags, Shutdown, shutdown},
    process::{
        DumpableBehavior, Pid, Signal, getppid, set_dumpable_behavior,
        set_parent_process_death_signal,
    },
    thread::set_name,
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Time without orders after which a helper leaves.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// Time for which a helper takes orders. After that the next helper is made. It uses the configuration as the spawner has read
/// it by then, and the user's groups of that time.
const LIFE: Duration = crate::owners::OLD;

/// The state of a helper.
struct Helper<'r> {
    terms: HelperTerms<'r>,
    listed: ListedFiles,
    /// The reason why this helper starts nothing: a file or folder of its sandbox is missing or cannot be used.
    refused: Option<String>,
    /// The helper must leave: it has refused a start that the next helper may permit.
    leaves: bool,
    direct: Direct,
    /// The program that runs modules. `workers` is the ruleset for its domain in a strict sandbox.
    host: Option<WorkerProgram>,
    workers: Option<Arc<OwnedFd>>,
    idle: IdleEnds,
    programs: Vec<SupervisedProgram>,
    templates: HelperTemplates,
    buffer: Vec<u8>,
}

/// Becomes the user, tells the spawner so, and serves `socket` until the server sends no more orders. Needs a process of its
/// own, with one thread.
///
/// # Errors
/// The process could not become the user, and has started nothing. The error is a sentence for the log.
pub(crate) fn run_helper(
    remit: &Remit,
    uid: u32,
    (socket, host): (OwnedFd, Option<WorkerProgram>),
    group: Option<&Path>,
) -> Result<(), String> {
    let user = match resolve_user(remit, uid) {
        Ok(user) => user,
        Err(not) => return errand::send_answer(&socket, &not, &[]),
    };
    let mut helper = match set_up(remit, &user, host, group) {
        Ok(helper) => helper,
        Err(SetupFailure { words, is_short }) => {
            if is_short {
                errand::send_answer(&socket, &OrderAnswer::NotNow(words.clone()), &[])?;
            }
            return Err(words);
        }
    };
    errand::send_answer(&socket, &OrderAnswer::Done, &[])?;
    let ended = helper.serve_orders(&socket);
    ended.map_err(|e| format!("waiting for the server: {e}"))
}

/// The reason why a process has not become a helper.
struct SetupFailure {
    words: String,
    /// The system is short of something: a later attempt may succeed.
    is_short: bool,
}

impl SetupFailure {
    fn during_step(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |e| Self {
            words: format!("{what}: {e}"),
            is_short: Errno::from_io_error(&e).is_some_and(is_short),
        }
    }
}

impl From<String> for SetupFailure {
    fn from(words: String) -> Self {
        Self {
            words,
            is_short: false,
        }
    }
}

/// Becomes the user, in the sandbox.
fn set_up<'r>(
    remit: &'r Remit,
    user: &Identity,
    host: Option<WorkerProgram>,
    group: Option<&Path>,
) -> Result<Helper<'r>, SetupFailure> {
    let io = SetupFailure::during_step;
    let spawner = getppid();
    let terms = &remit.terms;
    if let Some(group) = group {
        cgroups::enter_group(group).map_err(io("entering its control group"))?;
    }
    let (prepared, refused) = prepare_or_refuse(remit, host.as_ref())?;
    let ipc = match &prepared {
        Some(prepared) => prepared.ipc_namespace(),
        None if terms.sandbox == Sandbox::Standard => sandbox::enter_ipc(),
        None => Ipc::Machine,
    };
    // Root can list `/`.
    let mut direct = Direct::new().map_err(io("preparing to start programs"))?;
    if effective_uid() != user.uid {
        user.assume_apart().map_err(|e| e.to_string())?;
    }
    close_itself(spawner)?;
    direct.set_umask(Some(terms.umask));
    direct.set_orphaned(Some(Signal::KILL.as_raw()));
    direct.set_ipc(ipc);
    let (listed, workers) =
        confine(terms, prepared, ipc, &mut direct).map_err(io("confining programs"))?;
    if remit.has_own_ids() {
        leftover::end_with_namespace();
    }
    reaper::end_orphans();
    // Leave signals to the thread that `end_orphans` has started.
    leave_signals_to_others();
    let limits = Limits {
        is_worker: terms.worker.is_some(),
        ..terms.limits
    };
    let terms = HelperTerms {
        remit,
        uid: user.uid,
        limits: match group {
            Some(_) => limits.within_group(),
            None => limits,
        },
        own_ids: remit.has_own_ids(),
    };
    Ok(Helper {
        terms,
        listed,
        refused,
        leaves: false,
        direct,
        host,
        workers,
        idle: IdleEnds::default(),
        programs: Vec::new(),
        templates: HelperTemplates::default(),
        buffer: vec![0; MOST],
    })
}

/// Closes the memory of this process to others, and ties the process to the spawner. Called after the change of user, because
/// the kernel resets both with it.
fn close_itself(spawner: Option<Pid>) -> Result<(), SetupFailure> {
    let io = SetupFailure::during_step;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| io("closing its memory")(e.into()))?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| io("prctl")(e.into()))?;
    if getppid() != spawner {
        return Err("the spawner has ended".to_owned().into());
    }
    // Show a name of its own in ps(1): other children of the spawner have the spawner's name.
    set_name(c"galgo-helper").map_err(|e| io("prctl")(e.into()))?;
    rustix::process::chdir("/").map_err(|e| io("chdir")(e.into()))
}

/// Returns the user that this process must become, if the remit's folder is there.
fn resolve_user(remit: &Remit, uid: u32) -> Result<Identity, OrderAnswer> {
    remit.resolve_folder().map_err(|e| match e.shortage() {
        Some(_) => OrderAnswer::NotNow(e.to_string()),
        None => OrderAnswer::Denied(e.to_string()),
    })?;
    remit.resolve_identity(uid).map_err(|e| match e {
        NotDone::Denied(why) => OrderAnswer::Denied(why),
        e => OrderAnswer::NotNow(e.to_string()),
    })
}

/// Looks up the files that a strict sandbox needs, while this process still has the rights of root.
fn prepare(remit: &Remit, host: Option<&WorkerProgram>) -> io::Result<Option<Prepared>> {
    let Some(strict) = &remit.terms.strict else {
        return Ok(None);
    };
    let interpreters = remit.terms.interpreters.iter();
    let interpreters: Vec<_> = interpreters.map(|(_, path)| path.as_path()).collect();
    let worker = modules::worker_access(remit, host);
    let folder = remit.resolve_folder().map_err(io::Error::other)?;
    strict.prepare(&folder, &interpreters, worker).map(Some)
}

/// Calls [`prepare`]. If a file is to blame, returns the reason to refuse all requests until its owner fixes it.
///
/// # Errors
/// No helper can be made now. The error is a sentence for the log.
fn prepare_or_refuse(
    remit: &Remit,
    host: Option<&WorkerProgram>,
) -> Result<(Option<Prepared>, Option<String>), SetupFailure> {
    let failed = SetupFailure::during_step("confining programs");
    match prepare(remit, host) {
        Ok(prepared) => Ok((prepared, None)),
        Err(e) if is_about_a_file(&e) => Ok((None, Some(failed(e).words))),
        Err(e) => Err(failed(e)),
    }
}

/// Whether a file or folder is to blame, instead of a shortage.
fn is_about_a_file(e: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, Other, PermissionDenied};
    matches!(
        e.kind(),
        NotFound | NotADirectory | PermissionDenied | Other
    )
}

/// Enters the sandbox that programs inherit. Returns the listed files of a strict sandbox, and the domain of its workers.
fn confine(
    terms: &Terms,
    prepared: Option<Prepared>,
    ipc: Ipc,
    direct: &mut Direct,
) -> io::Result<(ListedFiles, Option<Arc<OwnedFd>>)> {
    match prepared {
        Some(prepared) => {
            prepared.confine()?;
            direct.set_ruleset(prepared.ruleset);
            Ok((
                ListedFiles::from_watch(prepared.changes),
                prepared.worker.map(Arc::new),
            ))
        }
        None => {
            if terms.sandbox == Sandbox::Standard && terms.no_new_privs {
                sandbox::confine(ipc)?;
            }
            Ok((ListedFiles::default(), None))
        }
    }
}

impl Helper<'_> {
    fn serve_orders(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let made = Instant::now();
        let idle = idle_timeout();
        // The requester of this helper sends its first order within this deadline, or has given up.
        let mut asked = (made, ANSWERS_WITHIN);
        let mut open = true;
        let is_strict = self.terms.remit.terms.strict.is_some();
        let life = match self.listed.file_watch() {
            None if is_strict => idle,
            _ => LIFE,
        };
        loop {
            let (is_asked, mut ready) = self.wait_for_events(open.then_some(socket), asked.1)?;
            self.idle.drop_ready(&mut ready);
            if self.listed.are_replaced() {
                self.templates.retire();
            }
            for mut program in std::mem::take(&mut self.programs) {
                let (direct, listed) = (&mut self.direct, &mut self.listed);
                match program.handle_events(&mut ready, direct, listed, self.terms.own_ids) {
                    ProgramEvent::Goes => self.programs.push(program),
                    ProgramEvent::Ended => self.idle.keep_connection(program.socket),
                    ProgramEvent::Gone => {}
                }
            }
            let begun =
                self.templates
                    .turn(&self.terms, &mut ready, &mut self.idle, &mut self.buffer);
            self.programs.extend(
                begun
                    .into_iter()
                    .map(SupervisedProgram::from_template_child),
            );
            if is_asked {
                asked = (Instant::now(), idle);
                open = self.handle_order(socket);
            }
            let is_idle = self.is_done() && asked.0.elapsed() >= asked.1;
            let is_old = made.elapsed() >= life || self.listed.are_replaced();
            if open && (is_idle || is_old || self.leaves) {
                // Later orders learn that there is no helper. Orders that came before are still in the socket.
                let _ = shutdown(socket, Shutdown::Read);
                while self.handle_order(socket) {}
                open = false;
            }
            if !open {
                // The server will have others loaded by the next helper.
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

    /// Waits until there is something to do. Returns whether the server has sent an order, and which other descriptors are
    /// ready, in the order of their registration.
    fn wait_for_events(
        &mut self,
        socket: Option<&OwnedFd>,
        idle: Duration,
    ) -> io::Result<(bool, std::vec::IntoIter<bool>)> {
        let left = self.programs.iter().map(SupervisedProgram::time_left);
        let patience = Timespec::try_from(left.fold(idle, Duration::min)).ok();
        let mut fds = Vec::with_capacity(2 * self.programs.len() + 16);
        fds.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let watched = self.listed.file_watch().filter(|_| socket.is_some());
        let is_watched = watched.is_some();
        fds.extend(watched.map(|changes| PollFd::new(changes, PollFlags::IN)));
        self.idle.wait_for(&mut fds);
        self.programs.iter().for_each(|p| p.wait_for(&mut fds));
        self.templates.wait_for(&mut fds);
        let polled = match poll(&mut fds, patience.as_ref()) {
            Ok(_) => true,
            Err(Errno::INTR) => false,
            Err(e) if is_short(e) => {
                pause_for_shortage();
                false
            }
            Err(e) => return Err(e.into()),
        };
        let ready = fds.iter().map(|fd| polled && !fd.revents().is_empty());
        let mut ready = ready.collect::<Vec<_>>().into_iter();
        let asked = socket.is_some() && ready.next().unwrap_or_default();
        if is_watched && ready.next().unwrap_or_default() {
            self.listed.check_replaced();
        }
        Ok((asked, ready))
    }

    /// Takes one message. Returns whether there may be more.
    fn handle_order(&mut self, socket: &OwnedFd) -> bool {
        let received = receive_message(socket.as_fd(), &mut self.buffer, RecvFlags::DONTWAIT);
        let (n, fds) = match received {
            Err(Errno::INTR | Errno::AGAIN) => return true,
            Err(e) if is_short(e) => {
                pause_for_shortage();
                return true;
            }
            Err(_) | Ok((0, _)) => return false,
            Ok(got) => got,
        };
        let message = self.buffer.get(..n);
        let named = message.and_then(|message| self.idle.take_named(message, fds));
        // A message that is not understood gets no answer: its connection closes.
        if let Some((socket, order, stdio)) = named {
            let stdio = stdio.each_ref();
            match HelperOrder::decode(order) {
                // Skip old orders, which a helper that was stopped finds when it goes on.
                Some(HelperOrder::Start(order)) if !order.is_wanted() || socket.is_closed() => {}
                Some(HelperOrder::Start(order)) => self.run_program(&order, stdio, socket),
                Some(HelperOrder::Template(order)) if self.refused.is_none() => {
                    self.templates
                        .load(&self.terms, &mut self.direct, &order, stdio, socket);
                }
                _ => {}
            }
        }
        true
    }

    fn run_program(&mut self, order: &StartOrder, stdio: [&OwnedFd; 3], socket: HelperEnd) {
        let [_, output, _] = stdio;
        let started = match (&self.refused, modules::asks_for_modules(order)) {
            (Some(why), _) => {
                let why = ProgramReport::Denied(why.clone());
                self.leaves = true;
                Err(why)
            }
            _ if self.listed.are_replaced() => Err(STALE),
            (None, true) => self.start_worker(order, stdio),
            (None, false) => self.launch(order, stdio),
        };
        match started {
            Ok(child) => self
                .programs
                .push(SupervisedProgram::from_launch(child, socket)),
            Err(why) => {
                // Knock before the report: after it, the next program may use this pipe.
                if order.knocks {
                    knock_on_output(output);
                }
                socket.send_report(&self.listed.refusal(why).encode(), &[]);
            }
        }
    }

    /// Launches the program of an order, if the order is permitted.
    fn launch(&mut self, order: &StartOrder, stdio: [&OwnedFd; 3]) -> Result<Child, ProgramReport> {
        let HelperTerms { remit, uid, .. } = self.terms;
        let program =
            CheckedProgram::from_order(order, remit, uid).map_err(NotChecked::into_report)?;
        let launch = Launch {
            knocks: order.knocks,
            priority: order.priority,
            ..program.into_launch(&self.terms)
        };
        let launched = self.direct.launch(launch, stdio.map(AsFd::as_fd));
        launched.map_err(|e| failure_report(&e.error))
    }

    /// Starts the worker of the route's modules.
    fn start_worker(
        &mut self,
        order: &StartOrder,
        stdio: [&OwnedFd; 3],
    ) -> Result<Child, ProgramReport> {
        self.leaves |= matches!(self.host, Some(Err(_)));
        let remit = self.terms.remit;
        let given = modules::resolve_worker(order, remit, self.host.as_ref());
        let given = given.map_err(ProgramReport::Denied)?;
        let strict = remit.terms.strict.is_some();
        let stdio = stdio.map(AsFd::as_fd);
        if strict {
            self.direct.exchange_ruleset(&mut self.workers);
        }
        let started = modules::start_worker(&mut self.direct, remit, given, stdio);
        if strict {
            self.direct.exchange_ruleset(&mut self.workers);
        }
        started.map_err(|e| failure_report(&e))
    }
}

/// Writes a byte to wake the server, which waits for output. Does not block, because the pipe from the server may be full.
fn knock_on_output(output: &OwnedFd) {
    let mut room = [PollFd::new(output, PollFlags::OUT)];
    if poll(&mut room, Some(&Timespec::default())).is_ok()
        && room[0].revents().contains(PollFlags::OUT)
    {
        let _ = write(output, &[0]);
    }
}

/// Returns [`IDLE`]. A test may set a shorter time in a debug build.
fn idle_timeout() -> Duration {
    if cfg!(debug_assertions)
        && let Ok(asked) = std::env::var("GALGO_TEST_HELPER_IDLE")
    {
        return asked.parse().map_or(IDLE, Duration::from_millis);
    }
    IDLE
}
