//! The spawner of programs that run as other users or in strict sandboxes.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use galgo_io::watch::register;
use galgo_spawn::{
    Child, Direct,
    identity::is_root,
    owners::{Owners, Remit, RunsAs},
    spawner::{self, SpawnerBackend},
    trusted_path, words,
};
use tokio::{io::Interest, sync::oneshot};

use crate::{
    config::Config,
    config_check::host::remit_of,
    reading::{Load, read_in_time},
    serve::invocation::{Invocation, NextProcess},
    sockets::inherited::{PASSED_TO_FIRST, Passed, REPLACES_BY_SPAWNER},
};

/// Tells whether the spawner can use the configuration, and if not, why.
pub(super) type SpawnerRead = oneshot::Receiver<Result<(), String>>;

/// The spawner's process, and the handle that sends requests to it.
#[derive(Debug)]
pub(crate) struct Spawning {
    child: Child,
    pub(crate) owners: Arc<Owners>,
    /// The spawner runs as root.
    root: bool,
}

impl Spawning {
    /// Starts the spawner if a route needs it, before the server gives up root's rights.
    ///
    /// # Errors
    /// A sentence for the operator; without root's rights there is no spawner.
    pub(super) fn start_spawner(
        config: &Config,
        program: &Invocation,
        passed: &Passed,
    ) -> Result<Option<Self>, String> {
        if first_remit_place(config, |_| true).is_none() && homes_user(config).is_none() {
            return Ok(None);
        }
        if let Some(why) = Self::missing_root(config) {
            return Err(why);
        }
        let words =
            |e| format!("cannot start the spawner, which starts programs of other users: {e}");
        let mut direct = Direct::new().map_err(words)?;
        let args = program.spawner_args().map_err(|e| words(e.into()))?;
        let passed = passed.spawner_lines();
        let env = [(PASSED_TO_FIRST, &*passed)];
        let (child, owners) = Owners::start_spawner(&mut direct, &args, &env).map_err(words)?;
        let owners = Arc::new(owners);
        // The spawner answers once it has read the configuration.
        owners.reload()?;
        let root = is_root();
        Ok(Some(Self {
            child,
            owners,
            root,
        }))
    }

    /// Starts the spawner of a command that starts programs as the server with this configuration file would. There is none
    /// if this user may not have one.
    ///
    /// # Errors
    /// The sentence with which the server refuses to start.
    pub(crate) fn start_for_command(
        config: &Config,
        file: Option<&Path>,
    ) -> Result<Option<Self>, String> {
        match file.filter(|_| Self::missing_root(config).is_none()) {
            Some(file) => {
                let program = Invocation::with_config(file);
                Self::start_spawner(config, &program, &Passed::default())
            }
            None => Ok(None),
        }
    }

    /// Says why this user cannot start the programs of other users that the configuration names.
    pub(crate) fn missing_root(config: &Config) -> Option<String> {
        let homes = homes_user(config).filter(|user| !matches!(user, RunsAs::Server(_)));
        let others = first_remit_place(config, Remit::runs_as_others);
        let others = others.or_else(|| homes.map(|_| "[userdir]"));
        let path = others.filter(|_| !is_root())?;
        Some(format!(
            "{path}: `user` needs root: only root can start programs as another user. Start with sudo, or delete `user`"
        ))
    }

    /// Returns the spawner's process.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.child.as_fd()
    }

    /// Checks that there is a spawner if a configuration needs one.
    ///
    /// # Errors
    /// The configuration needs a spawner, and there is none.
    pub(super) fn suffices(before: Option<&Self>, config: &Config) -> Result<(), String> {
        match (before, first_remit_place(config, |_| true)) {
            (None, Some(path)) => Err(format!(
                "{path}: restart galgo to add the first route with `user` or a strict sandbox"
            )),
            _ => Ok(()),
        }
    }

    /// Makes the spawner read the configuration before the server uses it. A thread does that, so that signals are handled
    /// meanwhile. `None`: the spawner need not read it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn reload(
        before: Option<&Self>,
        config: &Config,
    ) -> Result<Option<SpawnerRead>, String> {
        let Some(spawning) = before.filter(|_| first_remit_place(config, |_| true).is_some())
        else {
            return Ok(None);
        };
        let owners = spawning.owners.clone();
        let (tell, told) = oneshot::channel();
        let thread = std::thread::Builder::new().name("reload".into());
        let started = thread.spawn(move || drop(tell.send(owners.reload())));
        started.map_err(|e| format!("cannot start a thread to ask the spawner: {e}"))?;
        Ok(Some(told))
    }

    /// Whether the server itself executes anything: programs, workers, or one day the server that replaces it.
    pub(super) fn needs_execve(spawning: Option<&Self>, config: &Config) -> bool {
        config.starts_here().is_some() || spawning.and_then(Self::as_root).is_none()
    }

    /// Returns the handle that starts a server with root's rights, if the spawner has them.
    pub(super) fn as_root(&self) -> Option<&Arc<Owners>> {
        Some(&self.owners).filter(|_| self.root)
    }

    /// Another server has taken over: lets the spawner and its remaining helpers end by themselves after this process.
    pub(super) fn let_go(self) {
        self.child.let_go();
    }

    /// Waits for the spawner's end, which would be a failure.
    pub(super) async fn wait_until_ended(spawning: Option<&Self>) {
        let watched = spawning.map(|s| register(s.child.as_raw_fd(), Interest::READABLE));
        match watched {
            Some(Ok(watched)) => drop(watched.readable().await),
            _ => std::future::pending().await,
        }
    }
}

/// Returns the user of programs in homes, if a helper starts these: a reload may find their folders.
fn homes_user(config: &Config) -> Option<&RunsAs> {
    config.userdir.as_ref()?.runs_as.as_ref()
}

/// Returns the first place in the configuration with a remit that `wanted` accepts: there a helper starts the programs or
/// workers.
fn first_remit_place(config: &Config, wanted: impl Fn(&Remit) -> bool) -> Option<&str> {
    let found = config.remits().find(|(_, remit)| wanted(remit));
    found.map(|(place, _)| place)
}

/// Runs the spawner until the server has ended; `program` is the server's invocation.
///
/// # Errors
/// A sentence for the operator.
pub(crate) fn run_spawner(program: Invocation, load: Arc<Load>) -> Result<(), String> {
    spawner::run_spawner(galgo_spawn::take_spawner_socket()?, Galgo { program, load })
}

/// The spawner's callbacks.
struct Galgo {
    program: Invocation,
    load: Arc<Load>,
}

impl SpawnerBackend for Galgo {
    fn read_remits(&mut self) -> Result<Vec<Arc<Remit>>, String> {
        let config = read_in_time(&self.load)?;
        Ok(config.remits().map(|(_, remit)| remit.clone()).collect())
    }

    fn derive_remit(&mut self, sites: &Remit, host: &str) -> Result<Remit, String> {
        let remit = remit_of(sites, host);
        remit.ok_or_else(|| format!("{host:?} is not the folder of a host"))
    }

    fn open_module_host(&mut self) -> Result<OwnedFd, String> {
        galgo_handlers::wasm::beside().open_program()
    }

    fn start_server(
        &mut self,
        line: BorrowedFd<'_>,
        tells: BorrowedFd<'_>,
    ) -> Result<Child, String> {
        let path = words::escape_path(&self.program.path);
        let binary = match trusted_path::open_roots_file(&self.program.path) {
            Ok(Some(binary)) => binary,
            Ok(None) => {
                return Err(format!(
                    "users other than root can change {path}, and root would start it: root must own the file and each folder above it (chown root), and nobody else may write to them (chmod go-w)"
                ));
            }
            Err(e) => return Err(format!("cannot start {path}: {e}")),
        };
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let next = NextProcess {
            // The checked binary, which is the last of the descriptors.
            path: Path::new("/proc/self/fd/5"),
            // The folder itself, because another folder may have its name by now.
            dir: Path::new("."),
            told: REPLACES_BY_SPAWNER,
            stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            more: &[line, tells, binary.as_fd()],
        };
        let mut direct = Direct::new().map_err(|e| format!("cannot start {path}: {e}"))?;
        self.program
            .start_process(&next, |start| direct.start_program(start))
    }
}
