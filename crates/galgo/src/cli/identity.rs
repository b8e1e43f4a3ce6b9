//! Whom a command becomes.

use std::{os::unix::fs::MetadataExt, path::Path, sync::Arc};

use galgo_spawn::{
    identity::{by_uid, effective_uid},
    owners::RunsAs,
    words,
};

use crate::config::{self, Cgi, Config, Identity};

/// The identity that `--user NAME[:GROUP]` names.
pub(super) fn user(typed: &str) -> Result<Identity, String> {
    let (user, group) = match typed.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (typed, None),
    };
    let found = config::identity(user, group).map_err(|e| format!("--user {typed}: {e}"))?;
    if found.uid == 0 {
        return Err(format!(
            "--user {typed}: galgo does not serve as root: name a user without privileges (www-data)"
        ));
    }
    Ok(found)
}

/// Becomes whom the programs of a route run as; the server's user where they run as that.
pub(super) fn assume_for(
    config: &Config,
    cgi: Option<&Arc<Cgi>>,
    program: &Path,
) -> Result<(), String> {
    let Some(remit) = cgi.and_then(|cgi| cgi.remit.as_ref()) else {
        return assume(config);
    };
    if effective_uid() != 0 {
        return Ok(());
    }
    let identity = match remit.runs_as() {
        RunsAs::Server(_) => return assume(config),
        RunsAs::User(user) => user.identity(),
        RunsAs::Owner { .. } => {
            let owner = program
                .metadata()
                .map_err(|e| format!("{}: {e}", words::path(program)))?;
            by_uid(owner.uid())
                .map_err(|e| format!("the owner of {}: {e}", words::path(program)))?
        }
    };
    crate::serve::become_user(&identity)
}

/// Becomes whom the server would become, so that what follows meets the same permissions.
pub(super) fn assume(config: &Config) -> Result<(), String> {
    // That user may not enter the folder this program lies in.
    galgo_handlers::wasm::beside();
    match &config.identity {
        Some(identity) if galgo_spawn::identity::effective_uid() == 0 => {
            crate::serve::become_user(identity)
        }
        _ => Ok(()),
    }
}
