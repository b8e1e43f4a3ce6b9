//! Starts a program from this process. The cost does not grow with the server's memory or open descriptors: the child shares
//! both (CLONE_VM, CLONE_FILES) until it executes the program. The caller waits for that (CLONE_VFORK), or asks later: see
//! [`launches`].

mod child_side;
mod clone_call;
pub(crate) mod launches;
mod signals;
mod slots;
mod stack;

use crate::{
    apart::programs_user,
    child::Child,
    claims::ProcessMark,
    env::STRING_MAX,
    refusable::resource_limit,
    sandbox::{Ipc, Sandbox},
    standard_ruleset::share_standard_ruleset,
    start::{FailedLaunch, Launch, LaunchOutcome, Limits, MORE_MAX, Priority, Start},
    start_error::{StartError, StartStage},
};
use child_side::ChildContext;
use launches::{LaunchData, LaunchMemory, Launches};
use rustix::{io::fcntl_dupfd_cloexec, process::Resource};
pub use signals::leave_signals_to_others;
use slots::{StdioSlots, open_null};
use stack::Stack;
use std::{
    ffi::{CString, c_char},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    ptr::{self, NonNull},
    sync::{Arc, atomic::AtomicU32},
};

/// Stacks, descriptor numbers, and other state that is reused from start to start.
///
/// Make one for each thread that starts programs, before the thread opens many descriptors. Start the first program after the
/// server's signal dispositions are settled. A start copies the low part of the descriptor table, up to the numbers that the
/// start uses: a `Direct` made later is slower, not wrong.
#[derive(Debug)]
pub struct Direct {
    /// Launches that the server does not wait for.
    launches: Launches,
    stack: Stack,
    slots: StdioSlots,
    /// Signals whose dispositions a child resets; read at the first start.
    reset: Option<u64>,
    umask: Option<u32>,
    /// The signal that programs get when this process is gone, and this process's id.
    orphaned: Option<(i32, i32)>,
    /// The ruleset that programs enter a domain with; `None`: the kernel has no Landlock.
    ruleset: Option<Arc<OwnedFd>>,
    /// The IPC namespace in which programs could make message queues.
    ipc: Ipc,
    /// Bytes that `execve` accepts for arguments and environment together.
    most: usize,
}

impl Direct {
    /// Reserves five descriptors and a small mapping for starts that the caller waits for. If this process discards the exit
    /// status of its children, because its parent ignored SIGCHLD, this undoes that.
    pub fn new() -> io::Result<Self> {
        let null = open_null()?;
        Self::with_launches(Launches::new(&null), &null, &share_standard_ruleset()?)
    }

    /// Creates one for each of `threads` threads, with memory for eight launches: 27 descriptors each, and small mappings. The
    /// first start of each thread gets lower descriptor numbers than the second start of any.
    pub fn for_threads(threads: usize) -> io::Result<Vec<Self>> {
        let (null, ruleset) = (open_null()?, share_standard_ruleset()?);
        let launches = Launches::for_threads(threads, &null)?;
        let with = |launches| Self::with_launches(launches, &null, &ruleset);
        launches.into_iter().map(with).collect()
    }

    fn with_launches(
        launches: Launches,
        null: &Arc<OwnedFd>,
        ruleset: &Option<Arc<OwnedFd>>,
    ) -> io::Result<Self> {
        signals::keep_exited_children();
        Ok(Self {
            launches,
            stack: Stack::new()?,
            slots: StdioSlots::new(null)?,
            reset: None,
            umask: None,
            orphaned: None,
            ruleset: ruleset.clone(),
            ipc: Ipc::Machine,
            most: arguments_max(),
        })
    }

    /// Sets the file mode creation mask of programs, from the next start on; `None`, the default, keeps the server's.
    pub fn set_umask(&mut self, mask: Option<u32>) {
        self.umask = mask;
    }

    /// Sets the IPC namespace that this process is in. In the machine's namespace, the default, programs of the standard
    /// sandbox cannot make message queues, because those would outlive the programs.
    pub(crate) fn set_ipc(&mut self, ipc: Ipc) {
        self.ipc = ipc;
    }

    /// Sets the ruleset that programs enter a domain with, from the next start on, in place of the standard ruleset. `None`:
    /// programs enter no domain here, and make their own.
    pub fn set_ruleset(&mut self, ruleset: Option<OwnedFd>) {
        self.ruleset = ruleset.map(Arc::new);
    }

    /// Exchanges the ruleset with `other`; a second call exchanges them back.
    pub(crate) fn exchange_ruleset(&mut self, other: &mut Option<Arc<OwnedFd>>) {
        std::mem::swap(&mut self.ruleset, other);
    }

    /// Sets the signal that a program gets when the *thread* that started it has ended for any reason, from the next start on
    /// (PR_SET_PDEATHSIG, prctl(2)). This is for threads that outlive the programs that they start. Children of a template
    /// inherit the signal from the template. None by default.
    pub fn set_orphaned(&mut self, signal: Option<i32>) {
        let server = rustix::process::getpid().as_raw_pid();
        self.orphaned = signal.map(|signal| (signal, server));
    }

    /// Starts a program; see [`Spawner::start_program`](crate::Spawner::start_program).
    pub fn start_program(&mut self, start: &Start<'_>) -> Result<Child, StartError> {
        self.check_size(start)?;
        let argv = argument_pointers(start.args);
        let envp = start.env.pointers();
        let more = copy_descriptors(start.more.iter().copied())?;
        let numbers: Vec<RawFd> = more.iter().map(AsRawFd::as_raw_fd).collect();
        let mark = start.limits.mark_kind().map(ProcessMark::new);
        let context = ChildContext {
            more: numbers.as_ptr(),
            more_len: numbers.len(),
            mark: mark.as_ref().map(ProcessMark::limits),
            ..self.build_context(start, &argv, &envp, self.slots.numbers())
        };
        let filled = self.slots.place_descriptors(&start.stdio);
        let child = filled
            .map_err(StartError::descriptors)
            .and_then(|()| {
                // SAFETY: `context` and all that it points to live until this returns, which CLONE_VFORK delays until the child
                // has left this memory. `&mut self` gives this call the stack alone.
                unsafe {
                    clone_call::clone_child(libc::CLONE_VFORK, &self.stack, ptr::null(), &context)
                }
            })
            .map(|(pidfd, pid)| Child::new(pidfd, pid, mark, None));
        let cleared = self
            .slots
            .release_descriptors()
            .map_err(StartError::descriptors);
        let mut child = child?;
        if let Some((stage, errno)) = context.failure() {
            child.reap_failed();
            return Err(StartError::from_errno(stage, errno));
        }
        cleared.map(|()| child)
    }

    /// Starts a program without waiting for its `execve`; see [`Spawner::launch`](crate::Spawner::launch).
    pub fn launch(
        &mut self,
        launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Child, Box<FailedLaunch>> {
        let failed = |error, launch| Err(Box::new(FailedLaunch { error, launch }));
        let start = launch.as_start(stdio);
        if let Err(error) = self.check_size(&start) {
            return failed(error, launch);
        }
        let (mut memory, more) = match self.provisions(&launch) {
            Ok(both) => both,
            Err(error) => return failed(error, launch),
        };
        let (argv, envp) = (argument_pointers(start.args), start.env.pointers());
        let numbers: Vec<RawFd> = more.iter().map(AsRawFd::as_raw_fd).collect();
        let mark = launch.limits.mark_kind().map(ProcessMark::new);
        let context = ChildContext {
            more: numbers.as_ptr(),
            more_len: numbers.len(),
            mark: mark.as_ref().map(ProcessMark::limits),
            knocks: launch.knocks,
            behind: launch.priority != Priority::Normal,
            ..self.build_context(&start, &argv, &envp, memory.slots.numbers())
        };
        if let Err(e) = memory.slots.place_descriptors(&stdio) {
            self.launches.give_back(memory);
            return failed(StartError::descriptors(e), launch);
        }
        let data = Box::new(LaunchData {
            context,
            launch,
            _argv: argv,
            _envp: envp,
            _numbers: numbers,
            _more: more,
            _ruleset: self.ruleset.clone(),
            in_use: AtomicU32::new(1),
        });
        let priority = data.launch.priority;
        let child = self.clone_launch(memory, data, mark)?;
        child.lower_priority(priority);
        Ok(child)
    }

    /// Makes the child of a launch.
    fn clone_launch(
        &mut self,
        memory: LaunchMemory,
        data: Box<LaunchData>,
        mark: Option<ProcessMark>,
    ) -> Result<Child, Box<FailedLaunch>> {
        let data = NonNull::from(Box::leak(data));
        // SAFETY: `Launches` keeps data and memory unchanged until the kernel has cleared `in_use`, as the child leaves this
        // memory. No other child has them.
        let cloned = unsafe {
            let LaunchData {
                context, in_use, ..
            } = data.as_ref();
            let flags = libc::CLONE_CHILD_CLEARTID;
            clone_call::clone_child(flags, &memory.stack, in_use.as_ptr(), context)
        };
        match cloned {
            Ok((pidfd, pid)) => {
                let number = self.launches.add_pending(memory, data);
                Ok(Child::new(pidfd, pid, mark, Some(number)))
            }
            Err(error) => {
                // SAFETY: leaked above; there is no child.
                let launch = unsafe { Box::from_raw(data.as_ptr()) }.launch;
                self.launches.give_back(memory);
                Err(Box::new(FailedLaunch { error, launch }))
            }
        }
    }

    /// Returns the memory and the further descriptors for a launch.
    fn provisions(&mut self, launch: &Launch) -> Result<(LaunchMemory, Vec<OwnedFd>), StartError> {
        let more = copy_descriptors(launch.more.iter().map(AsFd::as_fd))?;
        let memory = self
            .launches
            .take_memory()
            .map_err(StartError::descriptors)?;
        Ok((memory, more))
    }

    /// Returns the outcome of a start. See [`Spawner::outcome`](crate::Spawner::outcome).
    pub fn outcome(&mut self, child: &Child) -> LaunchOutcome {
        match child.launch_number() {
            Some(number) => self.launches.outcome(number),
            None => LaunchOutcome::Started,
        }
    }

    /// Returns why a child that was seen to have exited was not executed. Closes no descriptors: a caller that waits for the
    /// end of the output must know by then how the program ended.
    pub(crate) fn failure(&mut self, child: &Child) -> Option<StartError> {
        self.launches.failure(child.launch_number()?)
    }

    fn build_context(
        &mut self,
        start: &Start<'_>,
        argv: &[*const c_char],
        envp: &[*const c_char],
        slots: [RawFd; 3],
    ) -> ChildContext {
        let reset = *self.reset.get_or_insert_with(signals::non_default_signals);
        let apart = start.sandbox == Sandbox::Standard;
        ChildContext {
            path: start.path.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            dir: start.dir.as_ptr(),
            slots,
            more: NonNull::dangling().as_ptr(),
            more_len: 0,
            limits: rlimits(&start.limits, apart && self.ipc == Ipc::Machine),
            mark: None,
            user: programs_user(),
            umask: self.umask,
            no_new_privs: start.no_new_privs,
            ruleset: self
                .ruleset
                .as_ref()
                .filter(|_| apart)
                .map(AsRawFd::as_raw_fd),
            orphaned: self.orphaned,
            reset,
            behind: false,
            knocks: false,
            failure: AtomicU32::new(0),
        }
    }

    /// Refuses arguments and environments that `execve` would refuse with a bare E2BIG, and names the part that is too long.
    fn check_size(&self, start: &Start<'_>) -> Result<(), StartError> {
        let refuse = |why: String| StartError {
            stage: StartStage::Environment,
            source: io::Error::new(io::ErrorKind::ArgumentListTooLong, why),
        };
        start.env.check_size().map_err(refuse)?;
        let len = |s: &CString| s.as_bytes_with_nul().len();
        if let Some(long) = start.args.iter().find(|a| len(a) > STRING_MAX) {
            return Err(refuse(format!(
                "an argument has {} bytes, not {STRING_MAX}",
                len(long)
            )));
        }
        let args: usize = start.args.iter().map(|a| len(a) + size_of::<usize>()).sum();
        let total = start.env.exec_size() + args + len(start.path);
        if total > self.most {
            let most = self.most;
            return Err(refuse(format!(
                "arguments and environment have {total} bytes; the limit is {most}"
            )));
        }
        Ok(())
    }
}

/// Copies descriptors above every number that they get in a child, so that none is overwritten before it is copied.
fn copy_descriptors<'f>(
    more: impl Iterator<Item = BorrowedFd<'f>>,
) -> Result<Vec<OwnedFd>, StartError> {
    more.take(MORE_MAX)
        .map(|fd| fcntl_dupfd_cloexec(fd, 3 + MORE_MAX as RawFd))
        .collect::<Result<_, _>>()
        .map_err(|e| StartError::descriptors(e.into()))
}

/// Returns arguments in the form that `execve` takes: pointers, then null.
fn argument_pointers(args: &[CString]) -> Vec<*const c_char> {
    let args = args.iter().map(|a| a.as_ptr());
    args.chain([ptr::null()]).collect()
}

/// Returns the bytes that `execve` takes in all: a quarter of the stack's limit, at least 128 KiB, at most 6 MiB (fs/exec.c).
fn arguments_max() -> usize {
    const LEAST: u64 = 128 * 1024;
    const MOST: u64 = 6 * 1024 * 1024;
    let stack = resource_limit(Resource::Stack).and_then(|limit| limit.current);
    let stack = stack.unwrap_or(u64::MAX);
    (stack / 4).clamp(LEAST, MOST) as usize
}

#[allow(clippy::unnecessary_cast)] // not every libc declares the constants with this type
fn rlimits(l: &Limits, no_queues: bool) -> [Option<(u32, u64, u64)>; 7] {
    let same = |resource: libc::__rlimit_resource_t, value: Option<u64>| {
        value.map(|v| (resource as u32, v, v))
    };
    [
        Some((libc::RLIMIT_CORE as u32, 0, 0)),
        l.cpu
            .map(|v| (libc::RLIMIT_CPU as u32, v, v.saturating_add(1))),
        same(libc::RLIMIT_AS, l.memory),
        same(libc::RLIMIT_FSIZE, l.file_size),
        same(libc::RLIMIT_NOFILE, l.open_files),
        same(libc::RLIMIT_NPROC, l.processes),
        // The filter refuses mq_open(2), but cannot refuse a new file in /dev/mqueue.
        same(libc::RLIMIT_MSGQUEUE, no_queues.then_some(0)),
    ]
}
