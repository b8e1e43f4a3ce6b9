//! What starts programs of other users and those in strict sandboxes, where a route asks for it.

use std::{
    ffi::CString,
    io,
    os::{fd::AsRawFd, unix::ffi::OsStringExt},
    sync::Arc,
};

use galgo_io::watch::register;
use galgo_spawn::{
    Child, Direct,
    identity::effective_uid,
    owners::{Owners, Remit, spawner},
};
use tokio::io::Interest;

use crate::config::Config;

/// The spawner, and what asks it.
#[derive(Debug)]
pub(super) struct Spawning {
    child: Child,
    pub(super) owners: Arc<Owners>,
}

impl Spawning {
    /// Starts the spawner, where a route needs it: before the server gives up root's rights.
    ///
    /// # Errors
    /// In words; without root's rights there is none.
    pub(super) fn start(
        config: &Config,
        direct: impl FnOnce(&Config) -> io::Result<Direct>,
    ) -> Result<Option<Self>, String> {
        if first(config, |_| true).is_none() {
            return Ok(None);
        }
        let others = first(config, Remit::runs_as_others);
        if let (Some(path), 1..) = (others, effective_uid()) {
            return Err(format!(
                "{path}: `user` takes root: only root can start programs as another user. Start with sudo, or delete `user`"
            ));
        }
        let words = |e| format!("cannot start what starts programs of other users: {e}");
        let mut direct = direct(config).map_err(words)?;
        let rest = std::env::args_os().skip(2).map(OsStringExt::into_vec);
        let args = [b"galgo".to_vec(), SPAWNER.as_bytes().to_vec()];
        let args = args.into_iter().chain(rest).map(CString::new);
        let args: Vec<_> = args
            .collect::<Result<_, _>>()
            .map_err(|e| words(e.into()))?;
        let (child, owners) = Owners::start(&mut direct, &args).map_err(words)?;
        let owners = Arc::new(owners);
        // It answers once it has read the configuration.
        owners.reload()?;
        Ok(Some(Self { child, owners }))
    }

    /// Whether what a configuration asks for can be started.
    ///
    /// # Errors
    /// It takes a spawner, and there is none.
    pub(super) fn suffices(before: Option<&Self>, config: &Config) -> Result<(), String> {
        match (before, first(config, |_| true)) {
            (None, Some(path)) => Err(format!(
                "{path}: what starts its programs takes a restart, where no route had `user` or a strict sandbox before"
            )),
            _ => Ok(()),
        }
    }

    /// Has it read the configuration, before the server uses that.
    ///
    /// # Errors
    /// It cannot use it.
    pub(super) fn reload(before: Option<&Self>, config: &Config) -> Result<(), String> {
        match before.filter(|_| first(config, |_| true).is_some()) {
            Some(spawning) => spawning.owners.reload(),
            None => Ok(()),
        }
    }

    /// Waits for its end, which is not to come.
    pub(super) async fn ended(spawning: Option<&Self>) {
        let watched = spawning.map(|s| register(s.child.as_raw_fd(), Interest::READABLE));
        match watched {
            Some(Ok(watched)) => drop(watched.readable().await),
            _ => std::future::pending().await,
        }
    }
}

/// The command that is the spawner.
pub(crate) const SPAWNER: &str = "spawner";

/// The first place in the configuration whose programs or workers a helper starts, of those that `wanted` names.
fn first(config: &Config, wanted: impl Fn(&Remit) -> bool) -> Option<&str> {
    let found = config.remits().find(|(_, remit)| wanted(remit));
    found.map(|(place, _)| place)
}

/// Is the spawner, until the server has gone.
///
/// # Errors
/// In words.
pub(crate) fn spawn(load: impl Fn() -> Result<Config, String>) -> Result<(), String> {
    let remits = || -> Result<Vec<Arc<Remit>>, String> {
        let config = load()?;
        Ok(config.remits().map(|(_, remit)| remit.clone()).collect())
    };
    let modules = || galgo_handlers::wasm::beside().program();
    spawner::serve(spawner::socket()?, remits, modules)
}
