//! Another process takes the place of this one: the binary that is now where this one was started from, with the same
//! arguments, user and working directory.
//!
//! 1. start it, with one end of a pair of sockets  2. hand it the listeners  3. wait until it is ready, or says why it is
//!    not  4. let it go on, and drain
//!
//! A thread does the first three, while the event loops serve.

use std::{
    env,
    ffi::{CString, OsString},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{Child, Direct, EnvBlock, Limits, Outside, Sandbox, Spawner, Start, words::how};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Access, access},
    process::{Pid, Signal, kill_process},
};
use tokio::sync::oneshot;

use super::{
    handover::{END, FAILED, GO, Item, Line, READY},
    inherited::REPLACES,
    notify::Notify,
};

/// How long the new process may take until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end once it has closed its socket.
const ENDS_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};
/// Variables that speak of this process alone.
const OWN: [&str; 5] = [
    REPLACES,
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "WATCHDOG_PID",
];

/// How this process was started.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    dir: PathBuf,
}

/// A process that can take the place of this one, and waits for that. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Successor {
    child: Child,
    line: Line,
}

/// What came of an upgrade.
pub(super) type Outcome = Result<Successor, String>;

impl Program {
    /// How this one was. To be called before the working directory changes, or the file is replaced.
    pub fn of_this_process() -> Self {
        let args: Vec<_> = env::args_os().collect();
        let dir = env::current_dir().unwrap_or_else(|_| "/".into());
        let named = args.first().and_then(|name| named(Path::new(name), &dir));
        let path = named.or_else(|| env::current_exe().ok());
        Self {
            path: path.unwrap_or_else(|| "/proc/self/exe".into()),
            args,
            dir,
        }
    }

    /// Starts another process of it, which finds `socket` as its descriptor 3.
    fn start(&self, socket: &OwnedFd, outside: Arc<Outside>) -> Result<Child, String> {
        let failed =
            |e: &dyn std::fmt::Display| format!("cannot start {}: {e}", self.path.display());
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|e| failed(&e));
        let mut env = EnvBlock::default();
        for (name, value) in env::vars_os().filter(|(name, _)| !OWN.iter().any(|own| name == own)) {
            env.put(name.as_bytes(), value.as_bytes());
        }
        env.put(
            REPLACES.as_bytes(),
            std::process::id().to_string().as_bytes(),
        );
        let args = self.args.iter().map(|arg| text(arg.as_bytes()));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        let mut direct = Direct::new().map_err(|e| failed(&e))?;
        direct.leave_domain_to_programs();
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let start = Start {
            path: &text(self.path.as_os_str().as_bytes())?,
            args: &args,
            env: &env,
            dir: &text(self.dir.as_os_str().as_bytes())?,
            stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            more: &[socket.as_fd()],
            limits: Limits {
                // It is to outlive this process.
                may_stay: true,
                ..Limits::default()
            },
            no_new_privs: false,
            sandbox: Sandbox::Off,
        };
        Spawner::new(direct, outside)
            .start(&start)
            .map_err(|e| failed(&e))
    }

    /// Starts it in a thread, and hands it `items`.
    pub(super) fn succeed(
        self: &Arc<Self>,
        items: Vec<Item>,
        outside: Arc<Outside>,
    ) -> Result<oneshot::Receiver<Outcome>, String> {
        let program = self.clone();
        let (tell, told) = oneshot::channel();
        let thread = std::thread::Builder::new().name("upgrade".into());
        let spawned = thread.spawn(move || drop(tell.send(program.replace(items, outside))));
        spawned.map_err(|e| format!("no thread for an upgrade: {e}"))?;
        Ok(told)
    }

    fn replace(&self, items: Vec<Item>, outside: Arc<Outside>) -> Outcome {
        let io = |e: io::Error| e.to_string();
        let (line, theirs) = Line::pair().map_err(io)?;
        line.waits(READY_WITHIN).map_err(io)?;
        let child = self.start(&theirs, outside)?;
        drop(theirs);
        // What cannot be said is not heard: then the answer tells why.
        let said = items
            .iter()
            .try_for_each(|(word, rest, fd)| line.say(word, rest, Some(fd.as_fd())));
        let _ = said.and_then(|()| line.say(END, b"", None));
        drop(items);
        match line.hear() {
            Ok(Some(message)) => match message.parts() {
                (READY, _) => Ok(Successor { child, line }),
                (FAILED, words) => Err(String::from_utf8_lossy(words).into_owned()),
                _ => Err("it says what this version does not understand".into()),
            },
            Ok(None) => Err(ended(child)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(format!(
                "it was not ready within {} s, and was ended",
                READY_WITHIN.as_secs()
            )),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// How a process ended that has closed its socket.
fn ended(mut child: Child) -> String {
    let _ = poll(
        &mut [PollFd::new(&child, PollFlags::IN)],
        Some(&ENDS_WITHIN),
    );
    match child.try_wait() {
        Ok(Some(exit)) => format!("it ended {} before it was ready", how(exit.status)),
        _ => "it closed its socket before it was ready, and was ended".into(),
    }
}

/// The file that `argv[0]` names: what is there after an upgrade is the new binary, also where it is a link.
fn named(name: &Path, dir: &Path) -> Option<PathBuf> {
    if name.as_os_str().as_bytes().contains(&b'/') {
        return Some(dir.join(name)).filter(|path| runs(path));
    }
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| dir.join(folder).join(name));
    paths.find(|path| runs(path))
}

/// Whether this is the file that this process executes.
fn runs(path: &Path) -> bool {
    let id = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    let own = id(Path::new("/proc/self/exe"));
    own.is_ok() && id(path) == own && access(path, Access::EXEC_OK).is_ok()
}

impl Successor {
    pub(super) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Has it serve.
    ///
    /// # Errors
    /// It has ended meanwhile.
    pub(super) fn go(self) -> Result<(), String> {
        match self.line.say(GO, b"", None) {
            Ok(()) => {
                self.child.let_go();
                Ok(())
            }
            Err(_) => Err(ended(self.child)),
        }
    }
}

/// Sends a signal on to the process of that id.
pub(super) fn pass_on(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Why this process cannot be replaced by another one.
///
/// # Errors
/// In words.
pub(super) fn allowed(notify: &Notify) -> Result<(), String> {
    let own = std::process::id();
    let supervised = env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == own.to_string());
    if own == 1 {
        return Err(
            "galgo is process 1, whose end is the end of the container: start the container again"
                .into(),
        );
    }
    if supervised && !notify.is_heard() {
        return Err("systemd takes the end of this process for the end of the service: the unit needs Type=notify".into());
    }
    Ok(())
}
