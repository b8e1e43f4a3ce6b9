//! A program that runs as another user than the server.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use galgo_spawn::{Child, FailedLaunch, Launch, identity::effective_uid, owners::Remit};

use super::{ProgramRun, pipes::Pipes};
use crate::{owners, warm::setup::AsUser};

impl ProgramRun<'_, '_, '_> {
    /// Starts the program here, or has a helper start it as its user.
    pub(super) async fn launch(
        &self,
        launch: Launch,
        pipes: &Pipes,
    ) -> Result<Child, Box<FailedLaunch>> {
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
    ) -> Result<Child, Box<FailedLaunch>> {
        let resources = self.cx.resources;
        let stdio = pipes.stdio(&resources.null);
        let uid = remit.user(self.script.owner);
        if let Some(owners) = &resources.owners {
            return owners::launch(owners, remit, uid, launch, stdio).await;
        }
        // A command that has become that user itself.
        match self.may_here(remit, uid) {
            Ok(()) => resources.spawner.borrow_mut().launch(launch, stdio),
            Err(why) => Err(owners::denied(launch, why)),
        }
    }

    /// Whether it may be loaded ahead of requests: by the server, a helper, or a command that has become its user.
    pub(super) fn may_be_loaded(&self) -> bool {
        let (remit, owners) = (&self.cgi.remit, &self.cx.resources.owners);
        match remit {
            Some(remit) if owners.is_none() => {
                self.may_here(remit, remit.user(self.script.owner)).is_ok()
            }
            _ => true,
        }
    }

    /// The helper that starts it.
    pub(super) fn as_user(&self) -> Option<AsUser> {
        let remit = self.cgi.remit.as_ref()?;
        Some(AsUser {
            owners: self.cx.resources.owners.clone()?,
            remit: remit.clone(),
            uid: remit.user(self.script.owner),
            program: self.script.script_filename.clone(),
        })
    }

    pub(super) fn may_here(&self, remit: &Arc<Remit>, uid: u32) -> Result<(), String> {
        if uid != effective_uid() {
            return Err(format!(
                "it runs as the user {uid}: only root, or this user, can start it"
            ));
        }
        let file = Path::new(OsStr::from_bytes(self.script.script_filename.as_bytes()));
        let checked = match self.script.module {
            true => remit.check_module(file, uid),
            false => remit.check(file, uid),
        };
        checked.map(drop).map_err(|e| e.to_string())
    }
}
