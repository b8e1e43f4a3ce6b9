//! The user that a command becomes.

use std::{os::unix::fs::MetadataExt, path::Path};

use galgo_spawn::{identity::is_root, owners::RunsAs, words};

use crate::config::{self, Cgi, Config, Identity};

/// Looks up the identity that `--user NAME[:GROUP]` names.
pub(crate) fn resolve_user(typed: &str) -> Result<Identity, String> {
    let named = typed.split_once(':');
    let (user, group) = named.map_or((typed, None), |(user, group)| (user, Some(group)));
    let found = config::identity(user, group).map_err(|e| format!("--user {typed}: {e}"))?;
    if found.uid == 0 {
        return Err(format!(
            "--user {typed}: galgo does not serve as root: name a user without privileges (www-data)"
        ));
    }
    Ok(found)
}

/// Becomes the user that the programs of a route run as: the server's user, unless the route names another.
pub(crate) fn assume_identity_for(
    config: &Config,
    cgi: &Cgi,
    program: &Path,
) -> Result<(), String> {
    let Some(remit) = &cgi.remit else {
        return assume_identity(config);
    };
    if !is_root() {
        return Ok(());
    }
    let uid = match remit.runs_as() {
        RunsAs::Server(_) => return assume_identity(config),
        RunsAs::User(user) => user.uid,
        RunsAs::Owner { .. } => {
            let shown = words::escape_path(program);
            let file = program.metadata().map_err(|e| format!("{shown}: {e}"))?;
            file.uid()
        }
    };
    let identity = remit.resolve_identity(uid).map_err(|e| e.to_string())?;
    crate::serve::become_user(&identity)
}

/// Becomes the user that the server would become, so that later steps meet the same permissions.
pub(crate) fn assume_identity(config: &Config) -> Result<(), String> {
    // Find `galgo-wasm` now: that user may not enter the folder that galgo's own program lies in.
    galgo_handlers::wasm::beside();
    match &config.identity {
        Some(identity) if is_root() => crate::serve::become_user(identity),
        _ => Ok(()),
    }
}
