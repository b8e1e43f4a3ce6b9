//! Whom a command becomes.

use crate::config::{self, Config, Identity};

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
