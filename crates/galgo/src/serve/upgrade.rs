//! Upgrades: another process replaces this one. It executes the binary that is now at this one's path, with the same arguments,
//! user and working directory.
//!
//! 1. start the process, with one end of a pair of sockets  2. hand the listeners over  3. wait until the process is ready, or
//!    reports a failure  4. let it serve, and drain
//!
//! A thread does the first three steps, while the event loops serve. If the new process is told to end while this one drains, the
//! new process waits for this one. The reason is that a service manager kills all remaining processes when the process that it
//! knows has ended.
//!
//! The new process gets a copy of every listener's descriptor, with the address that names the listener in the configuration. It
//! also gets the lock of a Unix socket's file, and the sockets that a service manager has passed. Both processes accept from the
//! same queues in the kernel, so no connection is lost. The old process is in the phase `HandedOver` then: connections end with
//! the current or the next request.
//!
//! If a spawner has root's rights, it starts the new process (`spawn::owners`) from the descriptor of the binary that it has
//! checked, and makes the sockets between both servers. So the new process begins as root, and checks all that it receives. It
//! tells the spawner when it serves; until then the spawner ends it if the upgrade fails. The old spawner stays until the old
//! server has ended.

use std::{io, os::fd::AsFd, sync::Arc, time::Duration};

use galgo_spawn::{
    Child, Direct, Outside, Spawner,
    owners::{Owners, StartedServer},
    send_signal_to,
    words::describe_status,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use tokio::sync::oneshot;

use crate::{
    notify::Notify,
    serve::invocation::{Invocation, NextProcess},
    sockets::{
        handover::{END, FAILED, GO, HandoverSocket, Item, READY, SERVES, STOP},
        inherited::REPLACES,
    },
};

/// Time limit for the new process to become ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Time limit for the new process to end once it has closed its socket.
const ENDS_WITHIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The process that starts the new process.
#[derive(Debug, Clone)]
pub(super) enum Starter {
    /// This process, by threads outside its own confinement.
    Itself(Arc<Outside>),
    /// The spawner, with root's rights.
    Spawner(Arc<Owners>),
}

/// The new process. It is ended when this value is dropped.
#[derive(Debug)]
enum NewServer {
    Itself(Child),
    Spawner(StartedServer),
}

/// A process that is ready to replace this one. It is ended when this value is dropped.
#[derive(Debug)]
pub(super) struct Successor {
    process: NewServer,
    line: HandoverSocket,
}

/// The result of an upgrade.
pub(super) type UpgradeOutcome = Result<Successor, String>;

impl Starter {
    /// Starts the new process; returns it, and a socket to it.
    fn start_process(&self, program: &Invocation) -> Result<(NewServer, HandoverSocket), String> {
        let io = |e: io::Error| e.to_string();
        let outside = match self {
            Self::Itself(outside) => outside,
            Self::Spawner(owners) => {
                let (server, line) = owners.upgrade()?;
                let line = HandoverSocket::from_fd(line).ok_or("the spawner has sent no socket")?;
                return Ok((NewServer::Spawner(server), line));
            }
        };
        let (line, theirs) = HandoverSocket::new_pair().map_err(io)?;
        let mut direct = Direct::new().map_err(io)?;
        direct.set_ruleset(None);
        let mut spawner = Spawner::new(direct, outside.clone());
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let next = NextProcess {
            path: &program.path,
            dir: &program.dir,
            told: REPLACES,
            stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            more: &[theirs.as_fd()],
        };
        let child = program.start_process(&next, |start| spawner.start_program(start))?;
        Ok((NewServer::Itself(child), line))
    }
}

impl Invocation {
    /// Starts the new process in a thread, and hands `items` to it.
    pub(super) fn succeed(
        self: &Arc<Self>,
        items: Vec<Item>,
        starter: Starter,
    ) -> Result<oneshot::Receiver<UpgradeOutcome>, String> {
        let program = self.clone();
        let (tell, told) = oneshot::channel();
        let thread = std::thread::Builder::new().name("upgrade".into());
        let spawned = thread.spawn(move || drop(tell.send(program.replace(items, &starter))));
        spawned.map_err(|e| format!("cannot start a thread for the upgrade: {e}"))?;
        Ok(told)
    }

    fn replace(&self, items: Vec<Item>, starter: &Starter) -> UpgradeOutcome {
        let (process, line) = starter.start_process(self)?;
        line.set_timeout(READY_WITHIN).map_err(|e| e.to_string())?;
        // If a message cannot be sent, the answer tells why.
        let said = items
            .iter()
            .try_for_each(|(word, rest, fd)| line.send_message(word, rest, Some(fd.as_fd())));
        let _ = said.and_then(|()| line.send_message(END, b"", None));
        drop(items);
        match line.receive_message() {
            Ok(Some(message)) => match message.split_first_word() {
                (READY, _) => Ok(Successor { process, line }),
                (FAILED, words) => Err(String::from_utf8_lossy(words).into_owned()),
                _ => Err(
                    "the new process sent a message that this version does not understand".into(),
                ),
            },
            Ok(None) => Err(process.describe_exit()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(format!(
                "the new process was not ready within {} s and was killed",
                READY_WITHIN.as_secs()
            )),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl NewServer {
    fn process_id(&self) -> i32 {
        match self {
            Self::Itself(child) => child.pid(),
            Self::Spawner(server) => server.pid(),
        }
    }

    /// Waits until the spawner knows that the new process serves. Returns false if it does not: then the new process ends with
    /// this one.
    fn serves(&self, line: &HandoverSocket) -> bool {
        match self {
            Self::Itself(_) => true,
            Self::Spawner(_) => {
                matches!(line.receive_message(), Ok(Some(message)) if message.split_first_word().0 == SERVES)
            }
        }
    }

    /// Lets the new process go on when this process ends.
    fn let_go(self) {
        match self {
            Self::Itself(child) => child.let_go(),
            Self::Spawner(server) => server.let_go(),
        }
    }

    /// Describes how the new process ended, after it has closed its socket.
    fn describe_exit(self) -> String {
        match self {
            Self::Itself(mut child) => {
                let mut fds = [PollFd::new(&child, PollFlags::IN)];
                let _ = poll(&mut fds, Some(&ENDS_WITHIN));
                match child.try_wait() {
                    Ok(Some(exit)) => format!(
                        "it ended {} before it was ready",
                        describe_status(exit.status)
                    ),
                    _ => "it closed its socket before it was ready, and was ended".into(),
                }
            }
            Self::Spawner(server) => server.end_and_describe(),
        }
    }
}

impl Successor {
    pub(super) fn process_id(&self) -> i32 {
        self.process.process_id()
    }

    /// Makes the new process serve; returns the socket to it.
    ///
    /// # Errors
    /// The new process has ended meanwhile.
    pub(super) fn start_serving(self) -> Result<HandoverSocket, String> {
        let told = self.line.send_message(GO, b"", None).is_ok();
        if told && self.process.serves(&self.line) {
            self.process.let_go();
            Ok(self.line)
        } else {
            Err(self.process.describe_exit())
        }
    }
}

/// Waits until the new process tells this one to end.
pub(super) async fn told_to_stop(line: &HandoverSocket) {
    while let Ok(Some(message)) = line.wait_for_message().await {
        if message.split_first_word().0 == STOP {
            return;
        }
    }
    // The new process has ended.
    std::future::pending().await
}

/// Passes a signal on to the process with that id.
pub(super) fn pass_on(pid: i32, signal: Signal) {
    let _ = send_signal_to(pid, signal.as_raw());
}

/// Checks that another process can replace this one.
///
/// # Errors
/// A sentence: why it cannot.
pub(super) fn allowed(notify: &Notify) -> Result<(), String> {
    let own = std::process::id();
    let supervised = std::env::var("SYSTEMD_EXEC_PID").is_ok_and(|pid| pid == own.to_string());
    if own == 1 {
        return Err(
            "galgo is process 1, and the container ends with it: restart the container instead"
                .into(),
        );
    }
    if supervised && !notify.is_heard() {
        return Err(
            "systemd would stop the service when this process ends: set Type=notify in the unit"
                .into(),
        );
    }
    Ok(())
}
