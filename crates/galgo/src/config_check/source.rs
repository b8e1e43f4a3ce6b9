//! Sources of a configuration: a file, or the conventional folders of a site.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use galgo_spawn::{
    identity::Identity,
    trusted_path::{others_part, starter},
};

use crate::{
    config::{Cgi, CgiRoot, Config, DevErrors, Files, Handler, Route},
    config_check::{check, routes::empty_response},
    config_text::{
        config_error::ConfigError,
        folder::{self, describe_unopened},
    },
};

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Everything that keeps the file from being used, with file, line, column, key and fix.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::load_as(file, None)
    }

    /// Reads a configuration file for a server that becomes `user`, whatever user the file names.
    ///
    /// # Errors
    /// Like [`Config::load`].
    pub fn load_as(file: &Path, user: Option<&Identity>) -> Result<Self, ConfigError> {
        without_others(file, &folder::read_text(file)?, user)
    }

    /// Reads `source` as if it stood in `file`: relative paths start at the file's folder.
    ///
    /// # Errors
    /// Like [`Config::load`].
    pub fn parse(source: &str, file: &Path) -> Result<Self, ConfigError> {
        without_others(file, source, None)
    }

    /// Returns the configuration of a folder without a file: `cgi-bin/` at `/cgi-bin/` and `public/` at `/`, both optional.
    /// There are no interpreters: only a configuration file can say which program runs a file.
    ///
    /// # Errors
    /// The folder has neither `cgi-bin/` nor `public/`, or one cannot be opened.
    pub fn from_convention(dir: &Path) -> Result<Self, ConfigError> {
        let fail = |path: &Path, e: &io::Error| ConfigError::new(describe_unopened(path, e));
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
            dev_errors: DevErrors::from_typed(None),
            ..Self::default()
        };
        let mut add = |path: &str, folder: &Path, opened: io::Result<Handler>| {
            let handler = match opened {
                Ok(handler) => handler,
                Err(e) if others_part(folder).is_some() => {
                    let why = describe_unopened(folder, &e);
                    let words =
                        format!("{why}. {path} answers 403 until you fix this and reload galgo");
                    config.warnings.push(words);
                    empty_response(403)
                }
                Err(e) => return Err(fail(folder, &e)),
            };
            config.routes.push(Arc::new(Route::new(path, handler)));
            Ok(())
        };
        if has_programs {
            let document_root = if has_public { &public } else { &programs };
            let root = CgiRoot::open(&programs).and_then(|root| match root {
                CgiRoot::Program { .. } => Err(io::ErrorKind::NotADirectory.into()),
                CgiRoot::Folder { .. } => Ok(root),
            });
            let cgi = root.map(|root| Arc::new(Cgi::new(root, document_root.clone())));
            add("/cgi-bin/", &programs, cgi.map(Handler::Cgi))?;
        }
        if has_public {
            add("/", &public, Files::open(&public).map(Handler::Files))?;
        }
        if config.routes.is_empty() {
            let dir = dir.display();
            return Err(ConfigError::new(format!(
                "{dir} holds nothing to serve: put programs into {dir}/cgi-bin/ or files into {dir}/public/ (mkdir -p {dir}/cgi-bin), or write {dir}/galgo.toml"
            )));
        }
        Ok(config)
    }

    /// Returns the configuration of `galgo serve DIR`. It comes from the file named on the command line, else from
    /// `DIR/galgo.toml` if that exists, else from the convention. If `user` is given, the server becomes that user.
    ///
    /// # Errors
    /// Like [`Config::load`] and [`Config::from_convention`].
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
                ..Self::from_convention(dir)?
            }),
        }
    }
}

/// Checks a configuration. Leaves out, with a warning, included files that another account can change, in two cases: a file
/// has an error, or galgo starts programs with root's rights.
fn without_others(
    file: &Path,
    source: &str,
    user: Option<&Identity>,
) -> Result<Config, ConfigError> {
    let mut left_out: Vec<(PathBuf, String)> = Vec::new();
    loop {
        let files: Vec<_> = left_out.iter().map(|(file, _)| file.as_path()).collect();
        let mut read = check::check_config(file, source, user, &files);
        let more = match &read {
            Ok(config) if starter() == 0 && config.remits().next().is_some() => {
                let rights = "root would start programs as this file says: root must own the file and each folder above it (chown root), and nobody else may write to them (chmod go-w)";
                let mut included = config.included.iter();
                let others = included.find(|file| others_part(file).is_some());
                others.map(|file| (file.clone(), format!("{}: {rights}", file.display())))
            }
            Ok(_) => None,
            Err(error) => error.others_file(file),
        };
        match more {
            Some(one) if !files.contains(&&*one.0) => left_out.push(one),
            _ => {
                let left_out = left_out.into_iter();
                let words = left_out.map(|(_, why)| {
                    format!(
                        "{why}. galgo ignores this file, because users other than root can change it"
                    )
                });
                read.iter_mut()
                    .for_each(|config| config.warnings.extend(words.clone()));
                return read;
            }
        }
    }
}
