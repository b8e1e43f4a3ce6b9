//! A folder to serve.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use tempfile::TempDir;

use crate::{accounts::SameAccounts, command::Done, config::Config, file, stream::Spoken};

/// A folder of a test's own with a `cgi-bin`, galgo's configuration there, and the way to start it. The folder is
/// removed with the last clone; a server keeps a clone.
#[derive(Debug, Clone)]
pub struct Site {
    dir: Arc<TempDir>,
    galgo: PathBuf,
    config: Config,
    /// Folder to serve in place of `dir`.
    folder: Option<PathBuf>,
    arguments: Vec<String>,
    /// Command line of another program that starts the server, if any.
    through: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    pub(crate) probe: Option<&'static str>,
    pub(crate) ends_by_term: bool,
    accounts: Option<Arc<SameAccounts>>,
}

impl Site {
    /// Makes a site for the binary `galgo`, in the system's folder for temporary files. Any user may enter the site's
    /// folder.
    pub fn new(galgo: &str) -> Self {
        let site = Self::within(&std::env::temp_dir(), galgo);
        file::chmod(site.folder(), 0o755);
        site
    }

    /// Makes a site in a folder of `parent`, closed to other users.
    pub fn within(parent: &Path, galgo: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("galgo-").tempdir_in(parent);
        let dir = Arc::new(dir.unwrap());
        fs::create_dir(dir.path().join("cgi-bin")).unwrap();
        Self {
            dir,
            galgo: galgo.into(),
            config: Config::default(),
            folder: None,
            arguments: Vec::new(),
            through: Vec::new(),
            environment: Vec::new(),
            probe: None,
            ends_by_term: false,
            accounts: None,
        }
    }

    /// Returns the site's folder.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a path in the site's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns whether any user may enter every folder on the way to the site.
    pub fn is_reachable(&self) -> bool {
        let open = |folder: &Path| fs::metadata(folder).is_ok_and(|m| m.mode() & 0o001 != 0);
        self.folder().ancestors().skip(1).all(open)
    }

    // Files of the folder.

    /// Writes a file, and makes its parent folders.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes an executable file in `cgi-bin`.
    pub fn program(&self, name: &str, text: &str) {
        file::script(&self.path("cgi-bin"), name, text);
    }

    /// Writes a shell program in `cgi-bin`.
    pub fn sh(&self, name: &str, text: &str) {
        self.program(name, &format!("#!/bin/sh\n{text}\n"));
    }

    /// Makes a named pipe.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        file::fifo(&path);
        path
    }

    /// Adds a file with permission bits `mode`.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> Self {
        file::chmod(self.write(name, content), mode);
        self
    }

    /// Adds a C program.
    pub fn compiled(self, name: &str, source: &str, flags: &[&str]) -> Self {
        file::compile(self.folder(), name, source, flags);
        self
    }

    /// Adds a program that is the running test's own binary.
    pub fn own_binary(self, name: &str) -> Self {
        let (from, to) = (std::env::current_exe().unwrap(), self.path(name));
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).unwrap();
        }
        self
    }

    // Configuration.

    /// Adds keys, tables and routes to the configuration: see [`Config::merge`].
    pub fn config(mut self, toml: &str) -> Self {
        self.config.merge(toml);
        self
    }

    /// Adds keys to `[defaults]`.
    pub fn defaults(mut self, toml: &str) -> Self {
        self.config.merge_defaults(toml);
        self
    }

    // Start of the server.

    /// Serves another folder, which has a configuration of its own.
    pub fn serving(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Adds command line arguments after `serve DIR`.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string);
        self.arguments.extend(arguments);
        self
    }

    /// Removes the command line arguments after `serve DIR`: the server listens at the addresses of its configuration.
    pub fn without_arguments(mut self) -> Self {
        self.arguments.clear();
        self
    }

    /// Starts the server through another program: `command` is its command line, followed by the server's.
    pub fn through(mut self, command: &[&str]) -> Self {
        self.through = command.iter().map(ToString::to_string).collect();
        self
    }

    /// Starts the server from a copy of the binary, in a folder of the site.
    pub fn copied(mut self, path: &str) -> Self {
        let to = self.path(path);
        file::copy(&self.galgo, &to);
        self.galgo = to;
        self
    }

    /// Runs the server as another user from its first moment on; that user owns the folder. For root only.
    pub fn owned_by(self, uid: u32) -> Self {
        for folder in ["", "cgi-bin", "marks", "public"] {
            chown(self.path(folder), Some(uid), Some(uid)).unwrap();
        }
        let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
        self.through(&["setpriv", &user, &group, "--clear-groups"])
    }

    /// Sets a variable of the server's environment.
    pub fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.retain(|(n, _)| *n != name);
        self.environment.push((name, value));
        self
    }

    /// Keeps all tests, this one included, from making or removing accounts while the site exists: strict helpers exit
    /// when accounts change.
    pub fn with_same_accounts(mut self) -> Self {
        self.accounts = Some(Arc::new(SameAccounts::keep()));
        self
    }

    /// Makes requests wait for templates that are being loaded, so that tests use the templates.
    pub fn waiting(self) -> Self {
        self.env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1")
    }

    /// Lets requests go on while templates are being loaded.
    pub fn without_waiting(mut self) -> Self {
        self.environment
            .retain(|(n, _)| *n != "GALGO_TEST_WAIT_FOR_TEMPLATES");
        self
    }

    /// Takes a server for started once it has answered a GET of `target` with 200.
    pub fn probe(mut self, target: &'static str) -> Self {
        self.probe = Some(target);
        self
    }

    /// Takes a server for started once it says that it listens.
    pub fn without_probe(mut self) -> Self {
        self.probe = None;
        self
    }

    /// Removes a key at the top of the configuration.
    pub fn without(mut self, key: &str) -> Self {
        self.config.remove(key);
        self
    }

    /// Ends the server by TERM when it is dropped. The server must then exit with status 0, without a panic anywhere.
    pub fn ends_by_term(mut self) -> Self {
        self.ends_by_term = true;
        self
    }

    /// Writes the configuration and returns the command that serves it. With `GALGO_TEST_START=warm` all programs are
    /// kept loaded unless the configuration says otherwise.
    pub(crate) fn serving_command(&mut self) -> Command {
        if std::env::var_os("GALGO_TEST_START").is_some_and(|start| start == "warm") {
            self.config.default_to("start", "warm");
        }
        if let Some(spoken) = Spoken::asked() {
            self.speak(spoken);
        }
        if self.folder.is_none() && self.config != Config::default() {
            self.config.write(&self.path("galgo.toml"));
        }
        let galgo = self.galgo.as_os_str();
        let mut words = self.through.iter().map(OsStr::new).chain([galgo]);
        let mut command = Command::new(words.next().unwrap_or(galgo));
        command.args(words).arg("serve");
        command.arg(self.folder.as_deref().unwrap_or(self.folder()));
        command.args(&self.arguments);
        // Not the machine's cache folder: servers of other users keep theirs there.
        command.env("CACHE_DIRECTORY", self.path(".cache"));
        command.envs(self.environment.iter().copied());
        command
    }

    /// Makes every listener that speaks plain HTTP over TCP use `spoken` instead.
    fn speak(&mut self, spoken: Spoken) {
        let plain = |text: &str| text.parse::<std::net::SocketAddr>().is_ok();
        self.config.speak(spoken, plain);
        for argument in self.arguments.iter_mut().filter(|text| plain(text)) {
            argument.insert_str(0, spoken.scheme());
        }
    }

    // Commands in the folder.

    /// Returns a command that runs galgo with these arguments in the folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.galgo);
        command.args(args).current_dir(self.folder());
        command.env_remove("NO_COLOR").stdin(Stdio::null());
        command.env("CACHE_DIRECTORY", self.path(".cache"));
        command
    }

    /// Runs galgo with these arguments in the folder.
    pub fn galgo(&self, args: &[&str]) -> Done {
        Done::of(&mut self.command(args), b"")
    }
}
