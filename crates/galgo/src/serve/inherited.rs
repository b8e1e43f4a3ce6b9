//! The sockets that this process was started with: by a service manager (sd_listen_fds(3)), or by the galgo that it
//! replaces.

use std::{
    collections::HashMap,
    env,
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use galgo_front::listener::address;
use rustix::process::{getpid, getppid};

use super::{
    handover::{END, FAILED, GO, Item, LOCK, Line, PASSED, QUEUE, READY, STORE},
    socket_file::SocketFile,
};
use crate::{
    certificates::{settings::Automatic, store::Store},
    config::{Address, Config, Listen, Speaks},
};

/// The variable that tells a process which one it replaces, by its id: the socket to that one is descriptor 3.
pub(super) const REPLACES: &str = "GALGO_UPGRADE";

/// How long the process that is replaced may take for each thing it says.
const PATIENCE: Duration = Duration::from_secs(60);

/// What this process was started with.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Sockets of the service manager.
    pub passed: Passed,
    /// The process that is replaced.
    pub predecessor: Option<Predecessor>,
    /// Its listeners, as they were configured. Several of one address are for several event loops.
    queues: Vec<(Address, OwnedFd)>,
    /// The files of its Unix sockets.
    files: HashMap<PathBuf, SocketFile>,
    /// The folder of its certificates, which root may have opened.
    store: Option<Store>,
}

/// The sockets that a service manager listens on, with their names. They stay open, so that a configuration may name them
/// later.
#[derive(Debug, Clone, Default)]
pub struct Passed(Arc<Vec<PassedSocket>>);

/// One of them.
#[derive(Debug)]
pub(super) struct PassedSocket {
    pub(super) name: String,
    pub(super) address: Address,
    pub(super) fd: OwnedFd,
}

/// The process that this one replaces.
#[derive(Debug, Clone)]
pub struct Predecessor(Arc<Line>);

impl Inherited {
    /// Takes what there is. To be called once, before anything else is opened.
    ///
    /// # Errors
    /// In words.
    pub fn take() -> Result<Self, String> {
        match (replaces(), passed()) {
            (true, _) => {
                let predecessor = Predecessor::find()?;
                predecessor
                    .clone()
                    .hand_over()
                    .inspect_err(|words| predecessor.failed(words))
            }
            (false, Some(count)) => Ok(Self {
                passed: Passed::take(count)?,
                ..Self::default()
            }),
            (false, None) => Ok(Self::default()),
        }
    }

    /// The sockets that listen at an address that is configured so.
    pub(super) fn listeners(&mut self, at: &Address) -> std::io::Result<Vec<OwnedFd>> {
        let of_predecessor = self.queues.extract_if(.., |(asked, _)| asked == at);
        let mut found: Vec<_> = of_predecessor.map(|(_, fd)| fd).collect();
        if found.is_empty() {
            found = self.passed.at(at)?;
        }
        Ok(found)
    }

    /// The file of a Unix socket that was taken over.
    pub(super) fn file(&mut self, at: &Address) -> Option<SocketFile> {
        match at {
            Address::Unix(path) => self.files.remove(path),
            Address::Tcp(_) => None,
        }
    }

    /// The folder where certificates of this authority are stored.
    pub(super) fn store(&mut self, settings: &Automatic) -> Option<Store> {
        self.store.take_if(|store| store.is_for(settings))
    }

    /// The files of sockets that nobody listens on any more.
    pub(super) fn unused(&mut self) -> Vec<SocketFile> {
        self.queues.clear();
        self.files.drain().map(|(_, file)| file).collect()
    }
}

/// Whether this process was started to replace another one. Variables are inherited further than they are meant.
fn replaces() -> bool {
    let parent = getppid().map(|parent| parent.as_raw_pid());
    let told = env::var(REPLACES).ok().and_then(|pid| pid.parse().ok());
    told.is_some() && told == parent
}

/// How many sockets the service manager passes to this process.
fn passed() -> Option<usize> {
    let pid: i32 = env::var("LISTEN_PID").ok()?.parse().ok()?;
    let count = env::var("LISTEN_FDS").ok()?.parse().ok()?;
    (pid == getpid().as_raw_pid() && count > 0).then_some(count)
}

impl Predecessor {
    fn find() -> Result<Self, String> {
        let fds = galgo_spawn::inherited(1).map_err(|e| format!("{REPLACES} is set: {e}"))?;
        let line = fds.into_iter().next().and_then(Line::of);
        let line = line.ok_or_else(|| {
            format!("{REPLACES} is set, and descriptor 3 is no socket of galgo's")
        })?;
        line.waits(PATIENCE).map_err(|e| e.to_string())?;
        Ok(Self(Arc::new(line)))
    }

    /// Hears what it hands over.
    fn hand_over(self) -> Result<Inherited, String> {
        let lost = |e: Option<std::io::Error>| {
            let why = e.map_or_else(|| "it has ended".into(), |e| e.to_string());
            format!("the galgo that was to be replaced handed over nothing: {why}")
        };
        let mut inherited = Inherited::default();
        let mut passed = Vec::new();
        loop {
            let message = self.0.hear().map_err(|e| lost(Some(e)))?;
            let mut message = message.ok_or_else(|| lost(None))?;
            let fd = message.fd.take();
            match (message.parts(), fd) {
                ((PASSED, name), Some(fd)) => passed.push(PassedSocket::new(text(name), fd)?),
                ((QUEUE, at), Some(fd)) => inherited.queues.push((asked(at)?, fd)),
                ((LOCK, of), Some(fd)) => {
                    let file = SocketFile::taken_over(of, fd);
                    inherited
                        .files
                        .extend(file.map(|file| (file.path().to_owned(), file)));
                }
                ((STORE, path), Some(fd)) => {
                    let path = OsStr::from_bytes(path).into();
                    inherited.store = Some(Store::taken_over(path, fd));
                }
                ((END, _), _) => break,
                _ => {}
            }
        }
        inherited.passed = Passed(Arc::new(passed));
        inherited.predecessor = Some(self);
        Ok(inherited)
    }

    /// Tells it why it goes on.
    pub fn failed(&self, words: &str) {
        let _ = self.0.say(FAILED, words.as_bytes(), None);
    }

    /// Tells it that this process can take its place, and waits until it has.
    ///
    /// # Errors
    /// It does not let go, or has ended.
    pub(super) fn take_over(&self) -> Result<(), String> {
        let said = self.0.say(READY, b"", None);
        match said.and_then(|()| self.0.hear()) {
            Ok(Some(message)) if message.parts().0 == GO => Ok(()),
            _ => Err("the galgo that was to be replaced has ended meanwhile, or goes on".into()),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An address as it is shown. The path of a Unix socket need not be text.
fn asked(bytes: &[u8]) -> Result<Address, String> {
    match bytes.strip_prefix(b"unix:") {
        Some(path) => Ok(Address::Unix(OsStr::from_bytes(path).into())),
        None => text(bytes).parse(),
    }
}

/// An address as [`asked`] reads it.
pub(super) fn shown(address: &Address) -> Vec<u8> {
    match address {
        Address::Unix(path) => [b"unix:", path.as_os_str().as_bytes()].concat(),
        Address::Tcp(at) => at.to_string().into_bytes(),
    }
}

impl PassedSocket {
    fn new(name: String, fd: OwnedFd) -> Result<Self, String> {
        let address = address(&fd).map_err(|e| {
            format!("cannot listen on the socket {name:?} that galgo was passed: {e}")
        })?;
        Ok(Self { name, address, fd })
    }
}

impl Passed {
    fn take(count: usize) -> Result<Self, String> {
        let fds = galgo_spawn::inherited(count).map_err(|e| {
            format!("LISTEN_FDS={count}, and not all of these descriptors are there: {e}")
        })?;
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        // What sd_listen_fds_with_names(3) calls a socket without a name.
        let names = names
            .split(':')
            .map(str::to_owned)
            .chain(std::iter::repeat("unknown".to_owned()));
        let sockets = fds
            .into_iter()
            .zip(names)
            .map(|(fd, name)| PassedSocket::new(name, fd));
        Ok(Self(Arc::new(sockets.collect::<Result<_, _>>()?)))
    }

    /// What another process needs to know of them.
    pub(super) fn handed_over(&self) -> std::io::Result<Vec<Item>> {
        let own = |one: &PassedSocket| {
            let fd = one.fd.as_fd().try_clone_to_owned()?;
            Ok((PASSED, one.name.clone().into_bytes(), fd))
        };
        self.0.iter().map(own).collect()
    }

    fn at(&self, at: &Address) -> std::io::Result<Vec<OwnedFd>> {
        let here = self.0.iter().filter(|one| one.address == *at);
        here.map(|one| one.fd.as_fd().try_clone_to_owned())
            .collect()
    }

    /// Puts the addresses of these sockets where `config` names them (`fd:NAME`); all of them, if it says nothing about where to listen.
    ///
    /// # Errors
    /// It names one that was not passed, or leaves one out: its clients would wait for ever.
    pub fn resolve(&self, config: &mut Config) -> Result<(), String> {
        let names = std::mem::take(&mut config.listen_passed);
        if config.listens_by_default && !self.0.is_empty() {
            config.listen_nowhere();
            let every = self.0.iter().map(|one| one.address.clone());
            every.for_each(|address| add(&mut config.listen, address, Speaks::Http));
        }
        for one in names {
            let before = config.listen.len();
            for socket in self.0.iter().filter(|socket| socket.name == one.name) {
                add(&mut config.listen, socket.address.clone(), one.speaks);
            }
            if config.listen.len() == before {
                return Err(format!("cannot listen on \"{one}\": {}", self.none_such()));
            }
        }
        let listens =
            |socket: &&PassedSocket| !config.listen.iter().any(|l| l.address == socket.address);
        match self.0.iter().find(listens) {
            None => Ok(()),
            Some(socket) => Err(format!(
                "the service manager listens on {} for galgo, and `listen` does not name it: its clients would wait for ever. \
                 Add \"fd:{}\" or the address to `listen`, or take it out of the socket unit",
                socket.address, socket.name
            )),
        }
    }

    fn none_such(&self) -> String {
        let names: Vec<_> = self
            .0
            .iter()
            .map(|one| format!("\"fd:{}\"", one.name))
            .collect();
        match names.is_empty() {
            true => "no service manager has passed a socket to this process. Start it by its socket unit \
                     (systemctl start NAME.socket), or name an address"
                .into(),
            false => format!(
                "there is no other socket of that name. Those that were passed are {}; FileDescriptorName= of the socket unit names them",
                names.join(", ")
            ),
        }
    }
}

/// Adds an address that is not there yet.
fn add(listen: &mut Vec<Listen>, address: Address, speaks: Speaks) {
    if !listen.iter().any(|one| one.address == address) {
        listen.push(Listen { address, speaks });
    }
}
