//! Starting a worker: here, or as the user of its route by a helper.

use std::{
    cell::RefCell,
    ffi::{CString, NulError},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{
    Child, EnvBlock, FileId, Launch, LaunchOutcome, Limits, Priority, Spawner, Start, StartError,
    StartStage, inspect, owners::Remit,
};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::timeout,
};

use super::{settings::Workers, worker_pool::WorkerPool};
use crate::{
    log::{ErrorLog, Level},
    owners::{self, StartReports},
    pool,
    relay::stderr::Lines,
    sock::{Sock, register},
};

/// A helper whose report cannot be watched for is asked this often.
const ASK: Duration = Duration::from_millis(100);

/// A worker that runs, and what its program was when it was started.
pub(super) type StartedWorker = (AsyncFd<Child>, Option<FileId>);

impl WorkerPool {
    /// Starts the worker of a slot. What it writes is logged, as said by `about`.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn start(
        &self,
        spawner: &RefCell<Spawner>,
        slot: usize,
        about: String,
    ) -> Result<StartedWorker, String> {
        let failed = |words: &str| format!("a worker could not be started: {words}");
        let io = |e: io::Error| failed(&e.to_string());
        let (errors, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| io(e.into()))?;
        rustix::io::ioctl_fionbio(&errors, true).map_err(|e| io(e.into()))?;
        let run = &self.slots.config.run;
        // Looked at before it is executed: a change meanwhile is noticed then.
        let executed = version(run);
        let listener = self.slots.listener(slot).map_err(io)?;
        let command = WorkerCommand::of(&self.slots.config).map_err(|e| io(e.into()))?;
        let stdio = [listener.as_fd(), theirs.as_fd(), theirs.as_fd()];
        let started = match &self.remit {
            None => self.start_here(spawner, &command, stdio),
            Some(remit) => self.start_as_user(remit, spawner, command, stdio).await,
        };
        let child = started.map_err(|e| failed(&inspect::diagnose(run, &self.path, &e)))?;
        let child = register(child, Interest::READABLE).map_err(io)?;
        tokio::task::spawn_local(log_errors(errors, self.log.clone(), about));
        Ok((child, executed))
    }

    fn start_here(
        &self,
        spawner: &RefCell<Spawner>,
        command: &WorkerCommand,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Child, StartError> {
        let mut spawner = spawner.borrow_mut();
        spawner.set_umask(Some(self.umask));
        spawner.start(&Start {
            path: &command.args[0],
            args: &command.args,
            env: &self.environment(),
            dir: &command.dir,
            stdio,
            more: &[],
            limits: Limits {
                is_worker: true,
                ..self.options.limits
            },
            no_new_privs: self.options.no_new_privs,
            sandbox: self.options.sandbox,
        })
    }

    /// Which arguments and variables the program gets, and what it is kept from, its helper knows itself.
    async fn start_as_user(
        &self,
        remit: &Arc<Remit>,
        spawner: &RefCell<Spawner>,
        mut command: WorkerCommand,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Child, StartError> {
        let Some(owners) = &self.slots.owners else {
            let source = io::Error::other("no helper can be made here");
            return Err(StartError {
                stage: StartStage::Helper,
                source,
            });
        };
        let run = self.slots.config.run.metadata();
        let owner = run.map_err(|source| StartError {
            stage: StartStage::Exec,
            source,
        })?;
        command.args.truncate(1);
        let launch = Launch {
            path: None,
            args: command.args,
            env: EnvBlock::default(),
            dir: command.dir,
            limits: self.options.limits,
            no_new_privs: self.options.no_new_privs,
            sandbox: self.options.sandbox,
            more: Vec::new(),
            knocks: false,
            priority: Priority::Normal,
        };
        let uid = remit.user(owner.uid());
        let launched = owners::launch(owners, remit, uid, launch, stdio).await;
        let child = launched.map_err(|failed| failed.error)?;
        let reports = StartReports::of(&child);
        loop {
            let outcome = spawner.borrow_mut().outcome(&child);
            match outcome {
                LaunchOutcome::Started => return Ok(child),
                LaunchOutcome::Failed(failed) => return Err(failed.error),
                LaunchOutcome::UnderWay => drop(timeout(ASK, reports.come()).await),
            }
        }
    }

    fn environment(&self) -> EnvBlock {
        let mut env = EnvBlock::default();
        env.put(b"PATH", self.path.as_bytes());
        for (name, value) in &self.env {
            env.put(name.as_bytes(), value.as_bytes());
        }
        env
    }
}

/// What is executed, and where.
struct WorkerCommand {
    /// The program first.
    args: Vec<CString>,
    dir: CString,
}

impl WorkerCommand {
    fn of(config: &Workers) -> Result<Self, NulError> {
        let run = config.run.as_os_str().as_bytes();
        let args = config.args.iter().map(|arg| arg.as_bytes());
        let args = std::iter::once(run).chain(args).map(CString::new);
        let dir = config.run.parent();
        Ok(Self {
            args: args.collect::<Result<_, _>>()?,
            dir: CString::new(dir.map_or(&b"/"[..], |d| d.as_os_str().as_bytes()))?,
        })
    }
}

/// The program as it is now; `None`: it is not there.
pub(super) fn version(program: &Path) -> Option<FileId> {
    Some(FileId::of(&rustix::fs::stat(program).ok()?).content())
}

/// Logs what a worker writes to its standard output and error, until both are closed.
pub(crate) async fn log_errors(errors: OwnedFd, log: ErrorLog, about: String) {
    let sock = Sock::reader(errors);
    let mut lines = Lines::new(usize::MAX);
    let mut say = |line: &str| {
        log.write(Level::Warn, &about, line);
        line.len()
    };
    let mut buf = Vec::new();
    while matches!(sock.read_later(&mut buf).await, Ok(n) if n > 0) {
        lines.take(&buf, &mut say);
        pool::give(std::mem::take(&mut buf));
    }
    lines.flush(&mut say);
}
