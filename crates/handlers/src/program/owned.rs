//! A program that runs as another user than the server.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use galgo_service::fault::Fault;
use galgo_spawn::{
    Child, FailedLaunch, Launch, StartError,
    identity::effective_uid,
    owners::{Deadline, Remit},
};

use super::ProgramRun;
use crate::{
    before_reply::wait_for,
    owners::{self, AsUser},
    relay::pipes::Pipes,
};

impl ProgramRun<'_, '_, '_> {
    /// Starts the program here, or has a helper start it as its user. Waits for the helper until `by`.
    ///
    /// # Errors
    /// The client has left.
    pub(super) async fn launch(
        &mut self,
        launch: Launch,
        pipes: &Pipes,
        by: Option<Deadline>,
    ) -> Result<Result<Child, Box<FailedLaunch>>, Fault> {
        let resources = self.cx.resources;
        let stdio = pipes.program_stdio(&resources.null);
        let (Some(remit), Some(by)) = (&self.cgi.remit, by) else {
            return Ok(resources.spawner.borrow_mut().launch(launch, stdio));
        };
        let uid = remit.user_for_owner(self.script.owner);
        if let Some(owners) = &resources.owners {
            // Boxed for its size, because few requests come here.
            let launches = Box::pin(owners::launch(owners, remit, uid, launch, stdio, by));
            return wait_for(self.request, async { Ok(launches.await) }).await;
        }
        // This server is a command that already runs as that user.
        Ok(match self.may_start_here(remit, uid) {
            Ok(()) => resources.spawner.borrow_mut().launch(launch, stdio),
            Err(why) => Err(owners::denied_start(launch, why)),
        })
    }

    /// Returns the error for a helper that has reported nothing about the start.
    pub(super) fn silent_helper(&self) -> StartError {
        let user = self
            .cgi
            .remit
            .as_ref()
            .map(|remit| remit.user_for_owner(self.script.owner));
        owners::silent_helper(user.unwrap_or_default())
    }

    /// Returns whether the program may be loaded ahead of requests: by the server, by a helper, or by a command
    /// that runs as its user.
    pub(super) fn may_be_loaded(&self) -> bool {
        let (remit, owners) = (&self.cgi.remit, &self.cx.resources.owners);
        match remit {
            Some(remit) if owners.is_none() => self
                .may_start_here(remit, remit.user_for_owner(self.script.owner))
                .is_ok(),
            _ => true,
        }
    }

    /// Returns the user whose helper starts the program.
    pub(super) fn as_user(&self) -> Option<AsUser> {
        let remit = self.cgi.remit.as_ref()?;
        Some(AsUser {
            owners: self.cx.resources.owners.clone()?,
            remit: remit.clone(),
            uid: remit.user_for_owner(self.script.owner),
            program: self.script.script_filename.clone(),
        })
    }

    pub(super) fn may_start_here(&self, remit: &Arc<Remit>, uid: u32) -> Result<(), String> {
        if uid != effective_uid() {
            return Err(format!(
                "the program runs as the user {uid}: only root or that user can start it"
            ));
        }
        let file = Path::new(OsStr::from_bytes(self.script.script_filename.as_bytes()));
        let checked = if self.script.module {
            remit.check_module(file, uid)
        } else {
            remit.check_program(file, uid)
        };
        checked.map(drop).map_err(|e| e.to_string())
    }
}
