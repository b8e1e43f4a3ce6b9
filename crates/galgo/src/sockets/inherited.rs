//! The sockets that this process was started with: by a service manager (sd_listen_fds(3)), or by the galgo that it replaces.
//!
//! A process that a spawner has started is root, and the galgo that it replaces may be under an attacker's control. So of the
//! sockets in that galgo's messages, only two kinds count: sockets that really listen at their stated address, and sockets of a
//! service manager that the spawner knows.

use std::{
    collections::HashMap,
    env,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use galgo_front::listener::listening_address;
use galgo_spawn::identity::effective_uid;
use rustix::{
    fs::{FileType, fstat},
    io::write,
    process::getpid,
};

use crate::{
    certificates::{certificate_settings::Automatic, store::Store},
    config::{Address, Config, Listen, Speaks},
    sockets::{
        handover::{
            END, FAILED, GO, HandoverSocket, Item, LOCK, PASSED, QUEUE, READY, SERVES, STOP, STORE,
        },
        socket_file::SocketFile,
    },
};

/// The variable that tells a process the id of the process that it replaces. Descriptor 3 is the socket to that process.
pub(crate) const REPLACES: &str = "GALGO_UPGRADE";

/// The same for a process that a spawner has started, with the spawner's id. Descriptor 3 is the socket to the process that is
/// replaced. To descriptor 4 the new process writes a byte when it serves.
pub(crate) const REPLACES_BY_SPAWNER: &str = "GALGO_UPGRADE_BY_SPAWNER";

/// Number of descriptors of such a process. The last one is the binary.
const OF_SPAWNER: usize = 3;

/// The variable that lists the sockets of a service manager, a line for each, `NAME:ADDRESS`. A server sets it for its spawner,
/// and the spawner for the next server.
pub(crate) const PASSED_TO_FIRST: &str = "GALGO_UPGRADE_PASSED";

/// Longest wait for each message of the process that is replaced.
const PATIENCE: Duration = Duration::from_secs(60);

/// The descriptors that this process was started with.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Sockets of the service manager.
    pub passed: Passed,
    /// The process that this one replaces.
    pub predecessor: Option<Predecessor>,
    /// The predecessor's listeners, with their configured addresses. Several sockets of one address belong to several event
    /// loops.
    queues: Vec<(Address, OwnedFd)>,
    /// The files of the predecessor's Unix sockets.
    files: HashMap<PathBuf, SocketFile>,
    /// The folder of the predecessor's certificates, which root may have opened.
    store: Option<Store>,
    /// Root has started this process, but another user has named the files.
    distrusted: bool,
}

/// The sockets that a service manager listens on, with their names. They stay open because a later configuration may name them.
#[derive(Debug, Clone, Default)]
pub struct Passed(Arc<Vec<PassedSocket>>);

/// A socket of the service manager.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    pub(crate) name: String,
    pub(crate) address: Address,
    pub(crate) fd: OwnedFd,
}

/// The process that this one replaces.
#[derive(Debug, Clone)]
pub struct Predecessor {
    line: Arc<HandoverSocket>,
    /// If the spawner has started this process, the pipe that tells the spawner that this process serves.
    spawner: Option<Arc<OwnedFd>>,
}

impl Inherited {
    /// Takes the inherited descriptors. To be called once, before anything else is opened.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn from_environment() -> Result<Self, String> {
        if let Some(predecessor) = Predecessor::from_environment()? {
            let handed_over = predecessor.clone().hand_over();
            return handed_over.inspect_err(|words| predecessor.report_failure(words));
        }
        Ok(Self {
            passed: passed_count()
                .map(Passed::take_sockets)
                .transpose()?
                .unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Takes one item from the predecessor. An unknown item is closed.
    fn take_item(&mut self, word: &[u8], rest: &[u8], fd: OwnedFd) -> Result<(), String> {
        match word {
            QUEUE => self.queues.push(check_queue(parse_address(rest)?, fd)?),
            LOCK if is_file(&fd) => {
                let file = SocketFile::from_handover(rest, fd);
                let file = file.map(|file| (file.path.clone(), file));
                self.files.extend(file);
            }
            // Root opens the folder itself.
            STORE if !self.distrusted => {
                let path = OsStr::from_bytes(rest).into();
                self.store = Some(Store::from_handover(path, fd));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the sockets that listen at this configured address.
    pub(crate) fn take_listeners(&mut self, at: &Address) -> std::io::Result<Vec<OwnedFd>> {
        let of_predecessor = self.queues.extract_if(.., |(asked, _)| asked == at);
        let mut found: Vec<_> = of_predecessor.map(|(_, fd)| fd).collect();
        if found.is_empty() {
            found = self.passed.sockets_at(at)?;
        }
        Ok(found)
    }

    /// Returns the inherited file of a Unix socket.
    pub(crate) fn take_socket_file(&mut self, at: &Address) -> Option<SocketFile> {
        match at {
            Address::Unix(path) => self.files.remove(path),
            Address::Tcp(_) => None,
        }
    }

    /// Returns the inherited folder of certificates, if it is for this authority.
    pub(crate) fn take_store(&mut self, settings: &Automatic) -> Option<Store> {
        self.store.take_if(|store| store.is_for(settings))
    }

    /// Returns the files of sockets that no process listens on any more.
    pub(crate) fn take_unused_files(&mut self) -> Vec<SocketFile> {
        self.queues.clear();
        let files = self.files.drain().map(|(_, file)| file);
        // Root does not remove files that another user has named.
        let trusted = !self.distrusted || effective_uid() != 0;
        files.filter(|_| trusted).collect()
    }
}

/// Whether this process was started to replace the process that this variable names. Processes inherit variables further than
/// intended, so the socket, too, has to come from that process. The process may have ended already.
fn replaces(variable: &str) -> bool {
    let told = env::var(variable).ok().and_then(|pid| pid.parse().ok());
    told.is_some() && told == galgo_spawn::first_socket_creator()
}

/// Returns how many sockets the service manager passes to this process.
fn passed_count() -> Option<usize> {
    let pid: i32 = env::var("LISTEN_PID").ok()?.parse().ok()?;
    let count = env::var("LISTEN_FDS").ok()?.parse().ok()?;
    (pid == getpid().as_raw_pid() && count > 0).then_some(count)
}

impl Predecessor {
    /// Finds the process that this one was started to replace.
    fn from_environment() -> Result<Option<Self>, String> {
        let by_spawner = replaces(REPLACES_BY_SPAWNER);
        let (variable, count) = match by_spawner {
            true => (REPLACES_BY_SPAWNER, OF_SPAWNER),
            false if replaces(REPLACES) => (REPLACES, 1),
            false => return Ok(None),
        };
        let fds =
            galgo_spawn::take_inherited(count).map_err(|e| format!("{variable} is set: {e}"))?;
        let mut fds = fds.into_iter();
        let line = fds.next().and_then(HandoverSocket::from_fd);
        let line = line.ok_or_else(|| {
            format!("{variable} is set, but descriptor 3 is not a socket of galgo")
        })?;
        line.set_timeout(PATIENCE).map_err(|e| e.to_string())?;
        let spawner = fds.next().map(Arc::new);
        if by_spawner {
            // The kernel has named the process after the descriptor that it executed.
            let _ = rustix::thread::set_name(c"galgo");
        }
        Ok(Some(Self {
            line: Arc::new(line),
            spawner,
        }))
    }

    /// Takes over a socket of the service manager.
    fn passed(&self, name: String, fd: OwnedFd) -> Result<PassedSocket, String> {
        let socket = PassedSocket::new(name, fd)?;
        if self.spawner.is_some() {
            let all = env::var_os(PASSED_TO_FIRST).unwrap_or_default();
            let mut all = all.as_bytes().split(|&b| b == b'\n');
            let listed = socket.spawner_line();
            if !all.any(|line| line == listed) {
                return Err(format!(
                    "the previous galgo process handed over the socket {:?} of {}, but no service manager passed that socket to it",
                    socket.name, socket.address
                ));
            }
        }
        Ok(socket)
    }

    /// Receives everything that the predecessor hands over.
    fn hand_over(self) -> Result<Inherited, String> {
        let lost = |e: Option<std::io::Error>| {
            let why = e.map_or_else(|| "it has ended".into(), |e| e.to_string());
            format!("the previous galgo process handed over nothing: {why}")
        };
        let mut inherited = Inherited {
            distrusted: self.spawner.is_some(),
            ..Inherited::default()
        };
        let mut passed = Vec::new();
        // Reported after the last message: an answer before that would be lost.
        let mut wrong = Ok(());
        loop {
            let message = self.line.receive_message().map_err(|e| lost(Some(e)))?;
            let mut message = message.ok_or_else(|| lost(None))?;
            let taken = match (message.fd.take(), message.split_first_word()) {
                (_, (END, _)) => break,
                (Some(fd), (PASSED, name)) => {
                    let socket = self.passed(to_text(name), fd);
                    socket.map(|socket| passed.push(socket))
                }
                (Some(fd), (word, rest)) => inherited.take_item(word, rest, fd),
                (None, _) => Ok(()),
            };
            wrong = wrong.and(taken);
        }
        wrong?;
        inherited.passed = Passed(Arc::new(passed));
        inherited.predecessor = Some(self);
        Ok(inherited)
    }

    /// Tells the predecessor why it must go on.
    pub fn report_failure(&self, words: &str) {
        let _ = self.line.send_message(FAILED, words.as_bytes(), None);
    }

    /// Tells the predecessor that this process can take over, and waits until it has let go.
    ///
    /// # Errors
    /// The predecessor does not let go, or has ended.
    pub(crate) fn take_over(&self) -> Result<(), String> {
        let said = self.line.send_message(READY, b"", None);
        match said.and_then(|()| self.line.receive_message()) {
            Ok(Some(message)) if message.split_first_word().0 == GO => {
                // Before the predecessor hears it: from then on the spawner does not end this process. A spawner that has ended
                // needs no byte.
                if let Some(spawner) = &self.spawner {
                    let _ = write(spawner, b"S");
                    let _ = self.line.send_message(SERVES, b"", None);
                }
                Ok(())
            }
            _ => Err("the previous galgo process has ended, or has decided to keep serving".into()),
        }
    }

    /// Tells the predecessor, now replaced, to wait for no more requests.
    pub(crate) fn tell_to_stop(&self) {
        let _ = self.line.send_message(STOP, b"", None);
    }

    /// Waits until the predecessor has ended.
    pub(crate) async fn wait_until_ended(&self) {
        while let Ok(Some(_)) = self.line.wait_for_message().await {}
    }
}

fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads an address as [`format_address`] writes it. The path of a Unix socket need not be text.
fn parse_address(bytes: &[u8]) -> Result<Address, String> {
    match bytes.strip_prefix(b"unix:") {
        Some(path) => Ok(Address::Unix(OsStr::from_bytes(path).into())),
        None => to_text(bytes).parse(),
    }
}

/// Checks that a socket listens at the configured address that its message names.
///
/// # Errors
/// The socket does not listen there.
fn check_queue(asked: Address, fd: OwnedFd) -> Result<(Address, OwnedFd), String> {
    let not = |why: String| {
        format!("the previous galgo process handed over a wrong socket for {asked}: {why}")
    };
    let real = listening_address(&fd).map_err(|e| not(e.to_string()))?;
    let same = match (&asked, &real) {
        (Address::Tcp(asked), Address::Tcp(real)) => {
            asked.ip() == real.ip() && [0, real.port()].contains(&asked.port())
        }
        (asked, real) => asked == real,
    };
    if same {
        Ok((asked, fd))
    } else {
        Err(not(format!("it listens on {real}")))
    }
}

fn is_file(fd: &OwnedFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Writes an address as [`parse_address`] reads it.
pub(crate) fn format_address(address: &Address) -> Vec<u8> {
    match address {
        Address::Unix(path) => [b"unix:", path.as_os_str().as_bytes()].concat(),
        Address::Tcp(at) => at.to_string().into_bytes(),
    }
}

impl PassedSocket {
    fn new(name: String, fd: OwnedFd) -> Result<Self, String> {
        let address = listening_address(&fd).map_err(|e| {
            format!("cannot listen on the socket {name:?} that galgo was passed: {e}")
        })?;
        Ok(Self { name, address, fd })
    }

    /// Returns the socket's line in [`PASSED_TO_FIRST`]. No name has a colon.
    fn spawner_line(&self) -> Vec<u8> {
        [self.name.as_bytes(), b":", &format_address(&self.address)].concat()
    }
}

impl Passed {
    fn take_sockets(count: usize) -> Result<Self, String> {
        let fds = galgo_spawn::take_inherited(count).map_err(|e| {
            format!("LISTEN_FDS={count}, but not all of these descriptors are open: {e}")
        })?;
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        // The name that sd_listen_fds_with_names(3) gives to a socket without a name.
        let names = names.split(':').chain(std::iter::repeat("unknown"));
        let sockets = fds.into_iter().zip(names);
        let sockets = sockets.map(|(fd, name)| PassedSocket::new(name.to_owned(), fd));
        Ok(Self(Arc::new(sockets.collect::<Result<_, _>>()?)))
    }

    /// Returns the lines that tell a spawner about these sockets.
    pub(crate) fn spawner_lines(&self) -> Vec<u8> {
        let all: Vec<_> = self.0.iter().map(PassedSocket::spawner_line).collect();
        all.join(&b'\n')
    }

    /// Returns the items that hand these sockets over to another process.
    pub(crate) fn prepare_handover(&self) -> std::io::Result<Vec<Item>> {
        let own = |one: &PassedSocket| {
            let name = one.name.clone().into_bytes();
            Ok((PASSED, name, one.fd.try_clone()?))
        };
        self.0.iter().map(own).collect()
    }

    fn sockets_at(&self, at: &Address) -> std::io::Result<Vec<OwnedFd>> {
        let here = self.0.iter().filter(|one| one.address == *at);
        here.map(|one| one.fd.try_clone()).collect()
    }

    /// Replaces `fd:NAME` in `config` by the addresses of the named sockets. If `config` says nothing about listening, it listens
    /// on all of them.
    ///
    /// # Errors
    /// The configuration names a socket that was not passed, or leaves out a passed socket, whose clients would wait for ever.
    pub fn resolve(&self, config: &mut Config) -> Result<(), String> {
        let names = std::mem::take(&mut config.listen_passed);
        if config.listens_by_default && !self.0.is_empty() {
            config.listen_nowhere();
            let every = self.0.iter().map(|one| one.address.clone());
            every.for_each(|address| add_address(&mut config.listen, address, Speaks::Http));
        }
        for one in names {
            let before = config.listen.len();
            for socket in self.0.iter().filter(|socket| socket.name == one.name) {
                add_address(&mut config.listen, socket.address.clone(), one.speaks);
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
        let names = self.0.iter().map(|one| format!("\"fd:{}\"", one.name));
        let names: Vec<_> = names.collect();
        if names.is_empty() {
            "no service manager has passed a socket to this process. Start it by its socket unit \
                     (systemctl start NAME.socket), or name an address"
                .into()
        } else {
            format!(
                "no other passed socket has that name. The passed sockets are {}; FileDescriptorName= in the socket unit sets their names",
                names.join(", ")
            )
        }
    }
}

/// Adds an address, unless it is listed already.
fn add_address(listen: &mut Vec<Listen>, address: Address, speaks: Speaks) {
    if !listen.iter().any(|one| one.address == address) {
        listen.push(Listen { address, speaks });
    }
}
