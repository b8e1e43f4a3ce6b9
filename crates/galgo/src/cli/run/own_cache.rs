//! Where the code of a module is kept that runs as another user than the server: what the server has compiled is not that
//! user's, and that user's is not the server's.

use std::{
    fs::{DirBuilder, remove_dir_all},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
};

use galgo_handlers::modules::is_module;

use crate::config::{Cgi, Config};

/// A folder that ends with the command.
pub(super) struct OwnCache(PathBuf);

impl OwnCache {
    /// Where it is needed, for a command that has become the user; `program` is the program's path.
    ///
    /// # Errors
    /// In words.
    pub(super) fn set(
        config: &mut Config,
        cgi: &Cgi,
        program: &[u8],
    ) -> Result<Option<Self>, String> {
        if !is_module(program) || !cgi.runs_as_others() {
            return Ok(None);
        }
        let folder = std::env::temp_dir().join(format!("galgo-run-{}", std::process::id()));
        // It is not there: no other user has made it.
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
