//! The folder that a command is about.

use std::path::PathBuf;

use galgo_spawn::words;

use crate::config::{Config, Identity};
use crate::described::shorten_path;

/// Arguments that name a site.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SiteArgs {
    /// The folder, with cgi-bin/, public/ or galgo.toml in it
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// The configuration, instead of DIR/galgo.toml
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl SiteArgs {
    pub(crate) fn load_config(&self) -> Result<Config, String> {
        self.load_config_as(None)
    }

    /// Loads the configuration of a server that becomes `user`, whatever user the file names.
    pub(crate) fn load_config_as(&self, user: Option<&Identity>) -> Result<Config, String> {
        let loaded = Config::for_dir(&self.dir, self.config.as_deref(), user);
        loaded.map_err(|e| self.suggest_fix().unwrap_or_else(|| e.to_string()))
    }

    /// Returns the file that the configuration is read from, if there is one.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        let own = || Some(self.dir.join("galgo.toml")).filter(|own| own.symlink_metadata().is_ok());
        self.config.clone().or_else(own)
    }

    /// Guesses what the user meant by a path that is not a site.
    fn suggest_fix(&self) -> Option<String> {
        let (shown, argument) = (
            words::escape_path(&self.dir),
            words::shell_argument(&self.dir),
        );
        let dir = std::path::absolute(&self.dir).ok()?;
        if self.config.is_some() || dir.join("galgo.toml").exists() {
            return None;
        }
        if dir.is_file() {
            return Some(format!(
                "{shown} is a file: name the folder to serve, or try the program alone: galgo run {argument}"
            ));
        }
        let parent = dir.parent().filter(|_| dir.ends_with("cgi-bin"))?;
        let bare = !dir.join("cgi-bin").exists() && !dir.join("public").exists();
        (bare && dir.is_dir()).then(|| {
            let parent = shorten_path(parent);
            format!("{shown} is a folder of programs: name the folder above it, {parent}")
        })
    }
}
