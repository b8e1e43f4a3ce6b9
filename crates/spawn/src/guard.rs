//! A process that outlives the server, to end the server's leftover programs.
//!
//! If the server or its spawner is killed (SIGKILL), the kernel ends the programs that they have started (PR_SET_PDEATHSIG).
//! That is not enough. A program can refuse that signal, and processes that a program starts do not have it. A server with
//! other ids than its programs cannot send it. The guard finds such processes by their marks (`crate::claims`), whatever their
//! parents are by then. It sends TERM, after `GRACE` KILL, until two looks find nothing. It has the rights that the server was
//! started with. No program can signal it (Landlock). If the guard itself is killed, the server starts another guard, with the
//! rights that the server has by then.

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
/// After this time, processes that are still there are assumed to hang in the kernel.
const HANGS: Duration = Duration::from_secs(30);
/// The time between two looks before KILL is sent.
const LOOK: Duration = Duration::from_millis(50);

/// The spawner, if the server has one.
static SPAWNER: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// Starts the guard of this process and of its spawner, before this process has started programs. Call this once, while this
/// process has a single thread.
///
/// # Errors
/// The kernel's.
pub fn start_guard(spawner: Option<BorrowedFd<'_>>) -> io::Result<StartedGuard> {
    let spawner = spawner.map(|fd| fd.try_clone_to_owned()).transpose()?;
    SPAWNER.get_or_init(|| spawner);
    // The guard is no child of the server, whose children are programs.
    let (pid, alive) = fork_guarded(|guarded| {
        if let Ok(0) = fork_bare() {
            guarded.wait_for_end();
        }
    })?;
    let _ = waitpid(Some(pid), WaitOptions::empty());
    Ok(StartedGuard(alive))
}

/// A running guard that is not restarted yet if it ends.
#[derive(Debug)]
pub struct StartedGuard(OwnedFd);

impl StartedGuard {
    /// Starts another guard if this guard ends. Call this once this process has entered its sandbox, because the call starts
    /// the reaper's thread.
    pub fn restart_if_ended(self) {
        reaper::adopt_starting(self.0, restart);
    }
}

/// Starts another guard, as a child of this process, after a guard has ended.
fn restart(_: &OwnedFd) -> bool {
    if let Ok((pid, alive)) = fork_guarded(Guarded::wait_for_end) {
        claims::claim_pid(pid.as_raw_pid());
        reaper::adopt_starting(alive, restart);
    }
    true
}

/// The processes whose end the guard waits for.
struct Guarded {
    server: OwnedFd,
    marks: MarkRange,
    spawner: Option<OwnedFd>,
    /// The server notices the end of the guard by the other end of this pipe.
    _alive: OwnedFd,
}

fn fork_bare() -> io::Result<i32> {
    // SAFETY: the child takes no lock that another thread may hold: the C library takes care of its own locks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Calls `child` in a child of this process, which then ends. Returns its process id, and a descriptor that becomes readable
/// once the child and all processes forked from it have ended.
fn fork_guarded(child: impl FnOnce(Guarded)) -> io::Result<(Pid, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    let own = getpid();
    let guarded = Guarded {
        server: pidfd_open(own, PidfdFlags::empty())?,
        marks: MarkRange::for_server(own.as_raw_pid()),
        spawner: match SPAWNER.get().and_then(Option::as_ref) {
            Some(spawner) => Some(spawner.try_clone()?),
            None => None,
        },
        _alive: theirs,
    };
    match fork_bare()? {
        0 => {
            child(guarded);
            // SAFETY: ends the process; this process must not do what the server would do at its end.
            unsafe { libc::_exit(0) }
        }
        pid => Ok((Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?, ours)),
    }
}

impl Guarded {
    /// Waits in the guard for the end of the server or of its spawner.
    fn wait_for_end(mut self) {
        let kept = [
            Some(&self.server),
            Some(&self._alive),
            self.spawner.as_ref(),
        ];
        close_all_but(kept);
        let _ = replace_streams();
        become_apart();
        become_programs_user();
        loop {
            let mut fds = vec![PollFd::new(&self.server, PollFlags::IN)];
            fds.extend(self.spawner.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
            if poll(&mut fds, None).is_err() {
                continue;
            }
            if !fds[0].revents().is_empty() {
                return kill_marked(self.marks);
            }
            // After its spawner the server ends, too. Then its programs end as in a server that is told to end.
            if self.spawner.take().is_some() {
                kill_marked(self.marks.range_for_all_helpers());
            }
        }
    }
}

/// Protects this process from a terminal's keys and from every signal but KILL, because it must end after the server.
fn become_apart() {
    let _ = setsid();
    // SAFETY: sets of signals that live on this stack, and a name that ends with NUL.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"galgo-guard".as_ptr());
        // The guard competes with processes that fork at full speed, and sleeps until then. Only root may ask for this.
        libc::setpriority(libc::PRIO_PROCESS, 0, -10);
    }
}

fn replace_streams() -> io::Result<()> {
    let null = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

/// Ends all processes that have a mark of this range, except those that may stay.
fn kill_marked(marks: MarkRange) {
    let began = Instant::now();
    let mut quiet = 0;
    let mut is_told = false;
    while quiet < 2 && began.elapsed() < HANGS {
        let kills = began.elapsed() >= GRACE;
        let signal = if kills { Signal::KILL } else { Signal::TERM };
        let is_marked = |mark| marks.ends_with_server(mark);
        let mut found = false;
        for pid in marked_processes(marks) {
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

/// Returns all processes of this machine that this process can see and that have a mark of this range.
fn marked_processes(marks: MarkRange) -> impl Iterator<Item = Pid> {
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(move |pid| mark_of(*pid).is_some_and(|mark| marks.ends_with_server(mark)))
        .filter_map(Pid::from_raw)
}
