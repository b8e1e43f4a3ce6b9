//! Starting a program from this process, at a cost that grows neither with its memory nor with its
//! open descriptors: the child shares both (CLONE_VM, CLONE_FILES) until it executes the program.

mod child_side;
mod signals;
mod slots;
mod stack;

use crate::{
    Child, Limits, MORE_MAX, Stage, Start, StartError,
    env::{STRING_MAX, TooLong},
    raw,
};
use child_side::Context;
use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, getrlimit},
};
use slots::Slots;
use stack::Stack;
use std::{
    ffi::{CString, c_char},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr,
    sync::atomic::AtomicU32,
};

/// `CLONE_CLEAR_SIGHAND`: Linux 5.5.
const CLEAR_SIGHAND: u64 = 0x1_0000_0000;

const FLAGS: u64 = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_PIDFD)
    as u64
    | CLEAR_SIGHAND;

/// A stack, three descriptor numbers, and what does not change from start to start.
///
/// Make one for each thread that starts programs, after the server's signal dispositions are
/// settled and before it opens many descriptors: the low part of the descriptor table, up to this
/// spawner's own three numbers, is what each start copies. Later is slower, not wrong.
#[derive(Debug)]
pub struct Direct {
    stack: Stack,
    slots: Slots,
    ignored: u64,
    umask: Option<u32>,
    /// What programs get when this process is gone.
    orphaned: Option<i32>,
    /// Bytes of arguments and environment `execve` takes together.
    most: usize,
}

impl Direct {
    /// Reserves what starts need: four descriptors and a small mapping. Where the process discards
    /// the exit status of its children (SIGCHLD ignored by whoever started it) that is undone.
    pub fn new() -> io::Result<Self> {
        signals::keep_exited_children();
        Ok(Self {
            stack: Stack::new()?,
            slots: Slots::new()?,
            ignored: signals::ignored(),
            umask: None,
            orphaned: None,
            most: arguments_max(),
        })
    }

    /// The file mode creation mask of programs, from the next start on; `None`, the default, is the
    /// server's.
    pub fn set_umask(&mut self, mask: Option<u32>) {
        self.umask = mask;
    }

    /// The signal that a program gets when the *thread* that started it has ended, however that came about, from the next
    /// start on (PR_SET_PDEATHSIG, prctl(2)): for programs that stay, started by a thread that outlives them. None by default.
    pub fn set_orphaned(&mut self, signal: Option<i32>) {
        self.orphaned = signal;
    }

    /// Starts a program; see [`Spawner::start`](crate::Spawner::start).
    pub fn start(&mut self, start: &Start<'_>) -> Result<Child, StartError> {
        self.fits(start)?;
        let argv: Vec<*const c_char> = start
            .args
            .iter()
            .map(|a| a.as_ptr())
            .chain([ptr::null()])
            .collect();
        let envp = start.env.pointers();
        // Above every number they are to get, so that none is overwritten before it is copied.
        let more: Vec<OwnedFd> = start
            .more
            .iter()
            .take(MORE_MAX)
            .map(|fd| fcntl_dupfd_cloexec(fd, 3 + MORE_MAX as RawFd))
            .collect::<Result<_, _>>()
            .map_err(|e| StartError::descriptors(e.into()))?;
        let numbers: Vec<RawFd> = more.iter().map(AsRawFd::as_raw_fd).collect();
        let context = Context {
            more: numbers.as_ptr(),
            more_len: numbers.len(),
            path: start.path.as_ptr(),
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            dir: start.dir.as_ptr(),
            slots: self.slots.numbers(),
            limits: rlimits(&start.limits),
            umask: self.umask,
            no_new_privs: start.no_new_privs,
            orphaned: self
                .orphaned
                .map(|signal| (signal, rustix::process::getpid().as_raw_pid())),
            ignored: self.ignored,
            failure: AtomicU32::new(0),
        };
        let filled = self.slots.fill(&start.stdio);
        let child = filled
            .map_err(StartError::descriptors)
            .and_then(|()| self.clone(&context));
        let cleared = self.slots.clear().map_err(StartError::descriptors);
        let mut child = child?;
        if let Some((stage, errno)) = context.failure() {
            child.reap_failed();
            return Err(StartError::errno(stage, errno));
        }
        cleared.map(|()| child)
    }

    /// Runs `context` in a child. Returns when that has executed its program or is gone.
    fn clone(&mut self, context: &Context) -> Result<Child, StartError> {
        let mut pidfd: RawFd = -1;
        let (stack, stack_size) = self.stack.range();
        // exit_signal stays 0: a child that fails before `execve` is nobody's business but ours,
        // neither of a SIGCHLD handler nor of a stray wait(2). `execve` itself makes it SIGCHLD;
        // __WALL reaps both kinds.
        // SAFETY: a struct of integers, for which 0 means "not used".
        let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
        args.flags = FLAGS;
        args.pidfd = &raw mut pidfd as u64;
        args.stack = stack;
        args.stack_size = stack_size;
        // SAFETY: the flags hold CLONE_VM and CLONE_VFORK; `&mut self` makes the stack ours alone;
        // `run` never returns; `context` and what it points to live in our caller until this
        // returns, which CLONE_VFORK delays until the child has left this memory.
        let pid = unsafe { raw::clone3(&mut args, child_side::run, context) };
        if pid < 0 {
            return Err(StartError::errno(Stage::Clone, -pid as i32));
        }
        // SAFETY: CLONE_PIDFD stored a new descriptor there which nobody else knows.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok(Child::new(pidfd, pid as i32))
    }

    /// Refuses what `execve` would answer with a bare E2BIG, and names what is too long.
    fn fits(&self, start: &Start<'_>) -> Result<(), StartError> {
        let refuse = |why: String| StartError {
            stage: Stage::Environment,
            source: io::Error::new(io::ErrorKind::ArgumentListTooLong, why),
        };
        start
            .env
            .fits()
            .map_err(|e: TooLong| refuse(e.to_string()))?;
        let len = |s: &CString| s.as_bytes_with_nul().len();
        if let Some(long) = start.args.iter().find(|a| len(a) > STRING_MAX) {
            return Err(refuse(format!(
                "an argument has {} bytes, not {STRING_MAX}",
                len(long)
            )));
        }
        let args: usize = start.args.iter().map(|a| len(a) + size_of::<usize>()).sum();
        let total = start.env.size() + args + len(start.path);
        if total > self.most {
            let most = self.most;
            return Err(refuse(format!(
                "arguments and environment have {total} bytes, a program takes {most}"
            )));
        }
        Ok(())
    }
}

/// What `execve` takes in all: a quarter of the stack's limit, at least 128 KiB, at most 6 MiB
/// (fs/exec.c).
fn arguments_max() -> usize {
    const LEAST: u64 = 128 * 1024;
    const MOST: u64 = 6 * 1024 * 1024;
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    (stack / 4).clamp(LEAST, MOST) as usize
}

#[allow(clippy::unnecessary_cast)] // the constants' type is not that of every libc
fn rlimits(l: &Limits) -> [Option<(u32, u64, u64)>; 6] {
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
    ]
}
