//! Where a configuration comes from: a file, or the convention of a folder.

use std::{io, path::Path, sync::Arc};

use galgo_spawn::identity::Identity;

use super::{
    check,
    checked::{Cgi, CgiRoot, Config, DevErrors, Files, Handler, Route},
    error::ConfigError,
    folder::{self, unopened},
};

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Everything that keeps it from being used, with file, line, column, key and mend.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::load_as(file, None)
    }

    /// The same, for a server that becomes `user`, whomever the file names.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_as(file: &Path, user: Option<&Identity>) -> Result<Self, ConfigError> {
        check::config(file, &folder::text(file)?, user)
    }

    /// Reads `source` as if it stood in `file`: relative paths start at the file's folder.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(source: &str, file: &Path) -> Result<Self, ConfigError> {
        check::config(file, source, None)
    }

    /// What a folder says without a file: `cgi-bin/` at `/cgi-bin/` and `public/` at `/`, both
    /// optional. There are no interpreters; which program runs a file is said in words or not at all.
    ///
    /// # Errors
    /// The folder has neither, or one of them cannot be opened.
    pub fn convention(dir: &Path) -> Result<Self, ConfigError> {
        let fail = |path: &Path, e: &io::Error| ConfigError::new(unopened(path, e));
        let dir = std::path::absolute(dir).map_err(|e| fail(dir, &e))?;
        if !dir.is_dir() {
            let not_a_folder = || io::ErrorKind::NotADirectory.into();
            let error = dir.metadata().err().unwrap_or_else(not_a_folder);
            return Err(fail(&dir, &error));
        }
        let (programs, public) = (dir.join("cgi-bin"), dir.join("public"));
        let present = |path: &Path| match path.symlink_metadata() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(fail(path, &e)),
        };
        let (has_programs, has_public) = (present(&programs)?, present(&public)?);
        let mut config = Self {
            dev_errors: DevErrors::of(None),
            ..Self::default()
        };
        let mut add = |path: &str, handler| {
            config.routes.push(Arc::new(Route::new(path, handler)));
        };
        if has_programs {
            let root = CgiRoot::open(&programs).map_err(|e| fail(&programs, &e))?;
            if matches!(root, CgiRoot::Program { .. }) {
                return Err(fail(&programs, &io::ErrorKind::NotADirectory.into()));
            }
            let document_root = if has_public { &public } else { &programs };
            let cgi = Cgi::new(root, document_root.clone());
            add("/cgi-bin/", Handler::Cgi(Arc::new(cgi)));
        }
        if has_public {
            let files = Files::open(&public).map_err(|e| fail(&public, &e))?;
            add("/", Handler::Files(files));
        }
        if config.routes.is_empty() {
            let dir = dir.display();
            return Err(ConfigError::new(format!(
                "{dir} holds nothing to serve: put programs into {dir}/cgi-bin/ or files into {dir}/public/ (mkdir -p {dir}/cgi-bin), or write {dir}/galgo.toml"
            )));
        }
        Ok(config)
    }

    /// What `galgo serve DIR` serves: the file named on the command line, else `DIR/galgo.toml`
    /// where it exists, else the convention; for a server that becomes `user`, where that is given.
    ///
    /// # Errors
    /// As [`Config::load`] and [`Config::convention`].
    pub fn for_dir(
        dir: &Path,
        explicit: Option<&Path>,
        user: Option<&Identity>,
    ) -> Result<Self, ConfigError> {
        let own = dir.join("galgo.toml");
        match explicit {
            Some(file) => Self::load_as(file, user),
            None if own.symlink_metadata().is_ok() => Self::load_as(&own, user),
            None => Ok(Self {
                identity: user.cloned(),
                ..Self::convention(dir)?
            }),
        }
    }
}
