//! A folder for the compiled code of a module that runs as another user than the server. The server and that user do not share
//! compiled code.

use std::{
    fs::{DirBuilder, remove_dir_all},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
};

use galgo_handlers::modules::is_module;

use crate::config::{Cgi, Config};

/// A folder that is removed when the command ends.
pub(super) struct OwnCache(PathBuf);

impl OwnCache {
    /// Makes the folder if the module needs one. The command has become the module's user already. `program` is the program's
    /// path.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn create_if_needed(
        config: &mut Config,
        cgi: &Cgi,
        program: &[u8],
    ) -> Result<Option<Self>, String> {
        if !is_module(program) || !cgi.runs_as_others() {
            return Ok(None);
        }
        let folder = std::env::temp_dir().join(format!("galgo-run-{}", std::process::id()));
        // This fails if the folder exists, so no other user can have made it.
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        config.cache = Some(folder.clone());
        Ok(Some(Self(folder)))
    }
}

impl Drop for OwnCache {
    fn drop(&mut self) {
        let _ = remove_dir_all(&self.0);
    }
}
