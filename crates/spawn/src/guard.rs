//! A process that outlives the server, to end what the server's programs have left running.
//!
//! If the server or its spawner is killed (SIGKILL), the kernel ends the programs that they have started (PR_SET_PDEATHSIG). A program can
//! refuse that signal, what a program starts does not have it, and a server with other ids than its programs cannot send it. The guard finds these by their marks (`crate::claims`), whatever
//! they are children of by then: TERM, after `GRACE` KILL, until two looks find nothing. It has the rights that the server was started
//! with. No program can signal it (Landlock). If the guard itself is killed, the server starts another one, with the rights that the
//! server has by then.

use crate::{
    apart::become_programs_user,
    claims::{self, MarkRange},
    inherited::close_all_but,
    leftover::{mark_of, signal_all_below},
    reaper,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, setsid, waitpid},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use std::{
    fs, io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// The time between TERM and KILL.
const GRACE: Duration = Duration::from_millis(500);
/// After so long what is still there is thought to hang in the kernel.
const HANGS: Duration = Duration::from_secs(30);
/// The time between two looks before there is KILL.
const LOOK: Duration = Duration::from_millis(50);

/// The spawner, if the server has one.
static SPAWNER: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// Starts the guard of this process, whose programs it has not started yet, and of its spawner. To be called once, while this process has
/// one thread.
///
/// # Errors
/// The kernel's.
pub fn start(spawner: Option<BorrowedFd<'_>>) -> io::Result<StartedGuard> {
    let spawner = spawner.map(|fd| fd.try_clone_to_owned()).transpose()?;
    SPAWNER.get_or_init(|| spawner);
    // It is no child of the server, whose children are programs.
    let (pid, alive) = fork(|guarded| {
        if let Ok(0) = fork_bare() {
            guarded.watch();
        }
    })?;
    let _ = waitpid(Some(pid), WaitOptions::empty());
    Ok(StartedGuard(alive))
}

/// A guard that runs, and that nobody starts again yet.
#[derive(Debug)]
pub struct StartedGuard(OwnedFd);

impl StartedGuard {
    /// Starts another guard if this one ends. To be called once this process has entered its sandbox, because the call starts the
    /// reaper's thread.
    pub fn restart_if_ended(self) {
        reaper::adopt_starting(self.0, restart);
    }
}

/// The guard has ended: starts another one, as a child of this process.
fn restart(_: &OwnedFd) -> bool {
    if let Ok((pid, alive)) = fork(Guarded::watch) {
        claims::claim(pid.as_raw_pid());
        reaper::adopt_starting(alive, restart);
    }
    true
}

/// What the guard waits for.
struct Guarded {
    server: OwnedFd,
    marks: MarkRange,
    spawner: Option<OwnedFd>,
    /// The server notices by its other end that the guard has ended.
    _alive: OwnedFd,
}

fn fork_bare() -> io::Result<i32> {
    // SAFETY: the child takes no lock that another thread may hold: the C library sees to its own.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Has a child of this process do something, and end. Its number, and what tells of the end of all that has come of it.
fn fork(child: impl FnOnce(Guarded)) -> io::Result<(Pid, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let own = getpid();
    let guarded = Guarded {
        server: pidfd_open(own, PidfdFlags::empty())?,
        marks: MarkRange::of_server(own.as_raw_pid()),
        spawner: match SPAWNER.get().and_then(Option::as_ref) {
            Some(spawner) => Some(spawner.try_clone()?),
            None => None,
        },
        _alive: theirs,
    };
    match fork_bare()? {
        0 => {
            child(guarded);
            // SAFETY: ends the process; what the server would do at its end is not this one's to do.
            unsafe { libc::_exit(0) }
        }
        pid => Ok((Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?, ours)),
    }
}

impl Guarded {
    /// In the guard: waits for the end of the server or of its spawner.
    fn watch(mut self) {
        let kept = [
            Some(&self.server),
            Some(&self._alive),
            self.spawner.as_ref(),
        ];
        close_all_but(kept);
        let _ = leave_streams();
        become_apart();
        become_programs_user();
        loop {
            let mut fds = vec![PollFd::new(&self.server, PollFlags::IN)];
            fds.extend(self.spawner.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            if poll(&mut fds, None).is_err() {
                continue;
            }
            if !fds[0].revents().is_empty() {
                return end_all(self.marks);
            }
            // The server ends, too, but its programs end with it, as those of a server that is told to end.
            if self.spawner.take().is_some() {
                end_all(self.marks.of_helpers());
            }
        }
    }
}

/// Has no terminal's keys and no signal but KILL end this process: it ends after the server.
fn become_apart() {
    let _ = setsid();
    // SAFETY: sets of signals that live on this stack, and a name that ends with NUL.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"galgo-guard".as_ptr());
        // It competes with processes that fork at full speed, and sleeps until then. Root's alone to ask for.
        libc::setpriority(libc::PRIO_PROCESS, 0, -10);
    }
}

fn leave_streams() -> io::Result<()> {
    let null = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

/// Ends all processes that have one of these marks.
fn end_all(marks: MarkRange) {
    let began = Instant::now();
    let mut quiet = 0;
    let mut is_told = false;
    while quiet < 2 && began.elapsed() < HANGS {
        let kills = began.elapsed() >= GRACE;
        let signal = if kills { Signal::KILL } else { Signal::TERM };
        let is_marked = |mark| marks.contains(mark);
        let mut found = false;
        for pid in marked(marks) {
            found = true;
            if kills || !is_told {
                signal_all_below(pid, signal, &is_marked);
            }
        }
        is_told = true;
        quiet = if found { 0 } else { quiet + 1 };
        if found && !kills {
            thread::sleep(LOOK.min(GRACE.saturating_sub(began.elapsed())));
        }
    }
}

/// All processes of this machine, as far as this process sees them, that have one of these marks.
fn marked(marks: MarkRange) -> impl Iterator<Item = Pid> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(move |pid| mark_of(*pid).is_some_and(|mark| marks.contains(mark)))
        .filter_map(Pid::from_raw)
}
