//! Starts a worker, either directly or through a helper as the user of its route.

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
};

use galgo_io::{
    pool,
    sock::{Sock, register},
};
use galgo_service::log::{ErrorLog, Level};
use galgo_spawn::{
    Child, EnvBlock, FileId, Launch, Limits, Spawner, Start, StartError, StartStage, inspect,
    owners::Remit,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::worker_pool::WorkerPool;
use crate::{
    application_settings::Workers,
    owners,
    relay::{pipes::make_pipe, stderr::Lines},
};

/// A running worker, and the identity of its program at the start.
pub(super) type StartedWorker = (AsyncFd<Child>, Option<FileId>);

impl WorkerPool {
    /// Starts the worker of a slot. The worker's output goes to the log, marked with `about`.
    ///
    /// # Errors
    /// A sentence for the log.
    pub(super) async fn start_worker(
        &self,
        spawner: &RefCell<Spawner>,
        slot: usize,
        about: String,
    ) -> Result<StartedWorker, String> {
        let failed = |words: &str| format!("a worker could not be started: {words}");
        let io = |e: io::Error| failed(&e.to_string());
        let (errors, theirs) = make_pipe(|(ours, _)| ours).map_err(io)?;
        let run = &self.slots.config.run;
        // Look at the program before it is executed, so that a change meanwhile is noticed later.
        let executed = version(run);
        let listener = self.slots.listener(slot).map_err(io)?;
        let command = self.command().map_err(|e| io(e.into()))?;
        let stdio = [listener.as_fd(), theirs.as_fd(), theirs.as_fd()];
        let started = match &self.remit {
            None => self.start_here(spawner, command, stdio),
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
        mut command: Launch,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Child, StartError> {
        command.env.set_variable(b"PATH", self.path.as_bytes());
        for (name, value) in &self.env {
            command.env.set_variable(name.as_bytes(), value.as_bytes());
        }
        let mut spawner = spawner.borrow_mut();
        spawner.set_umask(Some(self.umask));
        spawner.start_program(&Start {
            path: &command.args[0],
            args: &command.args,
            env: &command.env,
            dir: &command.dir,
            stdio,
            more: &[],
            limits: Limits {
                is_worker: true,
                ..command.limits
            },
            no_new_privs: command.no_new_privs,
            sandbox: command.sandbox,
        })
    }

    /// Starts the worker through a helper, which knows the program's arguments, variables and restrictions itself.
    async fn start_as_user(
        &self,
        remit: &Arc<Remit>,
        spawner: &RefCell<Spawner>,
        mut command: Launch,
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
        let user = (remit, remit.user_for_owner(owner.uid()));
        owners::start_program(owners, user, command, stdio, spawner).await
    }

    /// Returns the program and its folder; the variables are still missing.
    fn command(&self) -> Result<Launch, NulError> {
        let Workers { run, args, .. } = &self.slots.config;
        let args = args.iter().map(|arg| arg.as_bytes());
        let args = std::iter::once(run.as_os_str().as_bytes()).chain(args);
        let args = args.map(CString::new).collect::<Result<_, _>>()?;
        let dir = run.parent().map_or(&b"/"[..], |d| d.as_os_str().as_bytes());
        Ok(self
            .options
            .make_launch(args, EnvBlock::default(), CString::new(dir)?))
    }
}

/// Returns the identity of the program as it is now; `None` if it does not exist.
pub(super) fn version(program: &Path) -> Option<FileId> {
    Some(FileId::from_stat(&rustix::fs::stat(program).ok()?).without_change_time())
}

/// Logs the worker's standard output and error until both are closed.
pub(crate) async fn log_errors(errors: OwnedFd, log: ErrorLog, about: String) {
    let sock = Sock::pipe_reader(errors);
    let mut lines = Lines::new(usize::MAX);
    let mut say = |line: &str| {
        log.write(Level::Warn, &about, line);
        line.len()
    };
    let mut buf = Vec::new();
    while matches!(sock.read_later(&mut buf).await, Ok(n) if n > 0) {
        lines.log_bytes(&buf, &mut say);
        pool::return_buffer(std::mem::take(&mut buf));
    }
    lines.flush(&mut say);
}
