//! A program that runs as another user than the server.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{
    Child, Failed, Launch, Stage, StartError, identity::effective_uid, owners::Remit,
};

use tokio::io::{Interest, unix::AsyncFd};

use super::{ProgramRun, pipes::Pipes};
use crate::{off_loop::off_loop, sock::register};

/// Helpers that may be gone, one after the other, before one has taken a request.
const HELPERS: u32 = 3;

/// A helper that has many starts to do is asked again this often, this far apart.
const FULL_TRIES: u32 = 2000;
const FULL_PAUSE: Duration = Duration::from_millis(1);

impl ProgramRun<'_, '_, '_> {
    /// Starts the program here, or has a helper start it as its user.
    pub(super) async fn launch(&self, launch: Launch, pipes: &Pipes) -> Result<Child, Box<Failed>> {
        let resources = self.cx.resources;
        match &self.cgi.remit {
            None => {
                let stdio = pipes.stdio(&resources.null);
                resources.spawner.borrow_mut().launch(launch, stdio)
            }
            // Few requests are to pay for its size.
            Some(remit) => Box::pin(self.launch_as_user(remit, launch, pipes)).await,
        }
    }

    async fn launch_as_user(
        &self,
        remit: &Arc<Remit>,
        launch: Launch,
        pipes: &Pipes,
    ) -> Result<Child, Box<Failed>> {
        let resources = self.cx.resources;
        let stdio = pipes.stdio(&resources.null);
        let uid = remit.user(self.script.owner);
        let Some(owners) = &resources.owners else {
            // A command that has become that user itself.
            return match self.may_here(remit, uid) {
                Ok(()) => resources.spawner.borrow_mut().launch(launch, stdio),
                Err(why) => Err(denied(launch, why)),
            };
        };
        let (mut helpers, mut full) = (0, 0);
        let mut launch = launch;
        loop {
            if !owners.has_helper(remit, uid) {
                helpers += 1;
                let (owners, remit) = (owners.clone(), remit.clone());
                let made = off_loop("helper", move || owners.make_helper(&remit, uid)).await;
                if let Err(why) = made.unwrap_or_else(|e| Err(e.to_string())) {
                    return Err(denied(launch, why));
                }
            }
            let failed = match owners.launch(remit, uid, launch, stdio) {
                Ok(child) => return Ok(child),
                Err(failed) => failed,
            };
            match failed.error.stage {
                Stage::Helper if helpers < HELPERS => {}
                Stage::Clone if is_full(&failed.error) && full < FULL_TRIES => {
                    full += 1;
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                _ => return Err(failed),
            }
            launch = failed.launch;
        }
    }

    fn may_here(&self, remit: &Arc<Remit>, uid: u32) -> Result<(), String> {
        if uid != effective_uid() {
            return Err(format!(
                "it runs as the user {uid}: only root, or this user, can start it"
            ));
        }
        let file = Path::new(OsStr::from_bytes(self.script.script_filename.as_bytes()));
        remit.check(file, uid).map(drop).map_err(|e| e.to_string())
    }
}

/// What a helper tells of a start.
pub(super) struct StartReports(Option<AsyncFd<RawFd>>);

impl StartReports {
    pub(super) fn of(child: &Child) -> Self {
        let remote = child.is_remote().then(|| child.as_raw_fd());
        // Without room to watch it, it is asked with every tick.
        Self(remote.and_then(|fd| register(fd, Interest::READABLE).ok()))
    }

    /// Waits for one that has not been seen.
    pub(super) async fn come(&self) {
        match &self.0 {
            Some(fd) => {
                if let Ok(mut ready) = fd.readable().await {
                    ready.clear_ready();
                }
            }
            None => std::future::pending().await,
        }
    }
}

fn is_full(e: &StartError) -> bool {
    e.source.kind() == io::ErrorKind::WouldBlock
}

fn denied(launch: Launch, why: String) -> Box<Failed> {
    let error = StartError {
        stage: Stage::Denied,
        source: io::Error::other(why),
    };
    Box::new(Failed { error, launch })
}
