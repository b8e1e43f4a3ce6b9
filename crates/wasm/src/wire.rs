//! The messages between the server and the worker.
//!
//! The worker is started with a socket (SOCK_SEQPACKET). Each packet is one message, with descriptors next to it
//! (SCM_RIGHTS): the worker's profiles, code to load, and connections. Each connection carries one request after the other,
//! as to a FastCGI application. A request consists of its variables, among them one without a name that says what to run
//! ([`Run`]), and its body. The answer is output, words for the log, and the result ([`RunOutcome`]) after the fields of
//! END_REQUEST.
//!
//! The keeper of a user's own modules tells the worker which files it may see ([`UserSetup`]). The worker asks the keeper for
//! the code of each module by the module's path.
//!
//! A message that is longer than [`INLINE`] travels as a memfd, the last of its descriptors, because a packet may not be
//! larger than the socket's buffer.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use galgo_spawn::{
    Exit, Status,
    glob::Glob,
    identity::effective_uid,
    owners::{Denied, Layout, OwnedBy, ProgramFolder, may_run},
    remote::message,
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair},
};

use crate::encoding::{Decoder, Encoder};

/// Longest message that travels in the packet itself, in bytes.
pub const INLINE: usize = 32 << 10;
/// Longest message in a memfd, in bytes.
const MOST: u64 = 16 << 20;

/// Makes a pair of connected sockets that keep messages apart, closed on exec.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(message::socket_pair()?)
}

/// Makes a connection: our end, which does not block, and the worker's.
pub fn connection_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// Sends one message, without waiting: `WouldBlock` if the socket is full.
pub fn send_message(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let spilled = (message.len() > INLINE)
        .then(|| spill_to_memfd(message))
        .transpose()?;
    let (kind, inline) = match spilled {
        Some(_) => ([1], &[][..]),
        None => ([0], message),
    };
    let mut fds = descriptors.to_vec();
    fds.extend(spilled.as_ref().map(AsFd::as_fd));
    let parts = [&kind, inline];
    Ok(message::send_message(
        socket.as_fd(),
        &parts,
        &fds,
        SendFlags::DONTWAIT,
    )?)
}

fn spill_to_memfd(message: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create("galgo-message", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(message)?;
    Ok(file.into())
}

/// Waits for one message, and reads it into `buffer`, which can be used again for the next. `None`: the peer has closed its
/// end.
pub fn receive_message(
    socket: impl AsFd,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(&[u8], Vec<OwnedFd>)>> {
    buffer.resize(INLINE + 1, 0);
    let (length, mut fds) = loop {
        match message::receive_once(socket.as_fd(), buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    if length == 0 {
        return Ok(None);
    }
    if length > buffer.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a cut message"));
    }
    if buffer.first() == Some(&1) {
        let memfd = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
        read_memfd(memfd, buffer)?;
        return Ok(Some((buffer, fds)));
    }
    let message = buffer.get(1..length).unwrap_or_default();
    Ok(Some((message, fds)))
}

fn read_memfd(memfd: OwnedFd, message: &mut Vec<u8>) -> io::Result<()> {
    let file = File::from(memfd);
    let length = file.metadata()?.len();
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    message.resize(usize::try_from(length).unwrap_or(0), 0);
    file.read_exact_at(message, 0)
}

/// The name of a module's code: the SHA-256 of the module.
pub type ModuleDigest = [u8; 32];

/// A message on the worker's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The first message: the files that the worker may see, and the number of instances at once.
    Setup(WorkerSetup),
    /// Load this code now, because requests for it will come.
    Load(ModuleDigest),
    /// Forget this code, because no more requests for it will come.
    Forget(ModuleDigest),
    /// Serve this connection, whose descriptor comes with the message.
    Connect,
    /// Replaces `Setup` for the worker of a user's own modules: the files that it may see and run.
    Own(UserSetup),
    /// From such a worker to its keeper: send the code of this module.
    Wanted(Vec<u8>),
    /// The keeper's answer.
    Found(CodeReply),
}

/// The keeper's answer about a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeReply {
    /// The name of the module's code, whose descriptor comes with the message.
    Code(ModuleDigest),
    /// The module may not be run: the reason.
    Denied(String),
    /// The module is no program: the reason.
    Bad(String),
    /// There is no thread, process or memory to compile the module at this moment.
    Short,
}

/// The files and networks that the worker may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerSetup {
    /// The folder of compiled code.
    pub cache: Vec<u8>,
    /// Limit of instances at once.
    pub instances: u64,
    /// The profiles of instances, by number.
    pub profiles: Vec<Profile>,
}

/// The files and networks that the instances of one route may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Folders: the guest's path, our path, and whether the guest may write to the folder.
    pub folders: Vec<(String, Vec<u8>, bool)>,
    /// Whether the instances may connect to other machines.
    pub network: bool,
}

/// The limits of a worker for a user's own modules. They come from the configuration, and do not depend on the server's
/// requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSetup {
    /// The absolute path of the folder of modules, or of the only module.
    pub root: Vec<u8>,
    /// The layout of that folder.
    pub layout: Layout,
    /// Patterns for the names of modules. Empty: every file of the folder may be one.
    pub names: Vec<Glob>,
    /// The owners that the modules may have.
    pub owner: OwnedBy,
    /// Limit of instances at once.
    pub instances: u64,
    /// The profile of the instances.
    pub profile: Profile,
    /// Limit of an instance's linear memory in bytes.
    pub memory: u64,
    /// Limit of an instance's processor time in seconds; 0: any.
    pub cpu: u64,
}

/// The id of the only request on a connection.
pub const ID: u16 = 1;

/// The code to run and its limits: the value of the variable without a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The name of the code.
    pub key: ModuleDigest,
    /// The index of the profile in [`WorkerSetup::profiles`].
    pub profile: u64,
    /// Limit of linear memory in bytes, over all memories of the instance.
    pub memory: u64,
    /// Limit of processor time in seconds; 0: any.
    pub cpu: u64,
    /// `argv[0]`.
    pub name: Vec<u8>,
    /// The module's path, if the worker runs a user's own modules, because such a worker takes no code by its name.
    pub module: Vec<u8>,
}

impl Run {
    /// Encodes the value.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.put_bytes(&self.key).put_number(self.profile);
        to.put_number(self.memory)
            .put_number(self.cpu)
            .put_bytes(&self.name);
        to.put_bytes(&self.module);
        to.0
    }

    /// Decodes a value; `None`: the bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let run = Self {
            key: from.take_bytes()?.try_into().ok()?,
            profile: from.take_number()?,
            memory: from.take_number()?,
            cpu: from.take_number()?,
            name: from.take_bytes()?.to_vec(),
            module: from.take_bytes()?.to_vec(),
        };
        from.0.is_empty().then_some(run)
    }
}

impl Message {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        match self {
            Self::Setup(setup) => {
                to.put_number(0)
                    .put_bytes(&setup.cache)
                    .put_number(setup.instances);
                to.put_number(setup.profiles.len() as u64);
                setup.profiles.iter().for_each(|one| one.encode(&mut to));
            }
            Self::Load(key) => drop(to.put_number(1).put_bytes(key)),
            Self::Forget(key) => drop(to.put_number(2).put_bytes(key)),
            Self::Connect => drop(to.put_number(3)),
            Self::Own(setup) => {
                to.put_number(4).put_bytes(&setup.root);
                to.put_number(index_in(LAYOUTS, setup.layout));
                to.put_number(setup.names.len() as u64);
                for names in &setup.names {
                    to.put_bytes(names.as_str().as_bytes());
                }
                to.put_number(index_in(OWNERS, setup.owner));
                to.put_number(setup.instances);
                to.put_number(setup.memory).put_number(setup.cpu);
                setup.profile.encode(&mut to);
            }
            Self::Wanted(module) => drop(to.put_number(5).put_bytes(module)),
            Self::Found(CodeReply::Code(key)) => drop(to.put_number(6).put_bytes(key)),
            Self::Found(CodeReply::Denied(why)) => drop(to.put_number(7).put_bytes(why.as_bytes())),
            Self::Found(CodeReply::Bad(why)) => drop(to.put_number(8).put_bytes(why.as_bytes())),
            Self::Found(CodeReply::Short) => drop(to.put_number(9)),
        }
        to.0
    }

    /// Decodes a message; `None`: the bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let message = match from.take_number()? {
            0 => Self::Setup(decode_setup(&mut from)?),
            1 => Self::Load(from.take_bytes()?.try_into().ok()?),
            2 => Self::Forget(from.take_bytes()?.try_into().ok()?),
            3 => Self::Connect,
            4 => Self::Own(UserSetup {
                root: from.take_bytes()?.to_vec(),
                layout: element_at(LAYOUTS, from.take_number()?)?,
                names: decode_names(&mut from)?,
                owner: element_at(OWNERS, from.take_number()?)?,
                instances: from.take_number()?,
                memory: from.take_number()?,
                cpu: from.take_number()?,
                profile: Profile::decode(&mut from)?,
            }),
            5 => Self::Wanted(from.take_bytes()?.to_vec()),
            6 => Self::Found(CodeReply::Code(from.take_bytes()?.try_into().ok()?)),
            7 => Self::Found(CodeReply::Denied(from.take_text()?)),
            8 => Self::Found(CodeReply::Bad(from.take_text()?)),
            9 => Self::Found(CodeReply::Short),
            _ => return None,
        };
        from.0.is_empty().then_some(message)
    }
}

fn decode_names(from: &mut Decoder<'_>) -> Option<Vec<Glob>> {
    let count = from.take_number()?;
    (0..count)
        .map(|_| Glob::parse(&from.take_text()?))
        .collect()
}

fn decode_setup(from: &mut Decoder<'_>) -> Option<WorkerSetup> {
    let mut setup = WorkerSetup {
        cache: from.take_bytes()?.to_vec(),
        instances: from.take_number()?,
        profiles: Vec::new(),
    };
    for _ in 0..from.take_number()? {
        setup.profiles.push(Profile::decode(from)?);
    }
    Some(setup)
}

impl Profile {
    fn encode(&self, to: &mut Encoder) {
        to.put_number(u64::from(self.network));
        to.put_number(self.folders.len() as u64);
        for (guest, host, write) in &self.folders {
            to.put_bytes(guest.as_bytes()).put_bytes(host);
            to.put_number(u64::from(*write));
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let mut profile = Self {
            network: from.take_number()? != 0,
            ..Self::default()
        };
        for _ in 0..from.take_number()? {
            let (guest, host) = (from.take_text()?, from.take_bytes()?.to_vec());
            profile
                .folders
                .push((guest, host, from.take_number()? != 0));
        }
        Some(profile)
    }
}

impl UserSetup {
    /// Checks that a module may run as this process's user; returns its path without links.
    ///
    /// # Errors
    /// The module may not run.
    pub fn may_run(&self, module: &Path) -> Result<PathBuf, Denied> {
        let root = Path::new(OsStr::from_bytes(&self.root));
        let folder = ProgramFolder {
            root,
            layout: self.layout,
            names: &self.names,
        };
        may_run(folder, module, effective_uid(), self.owner, true)
    }
}

const OWNERS: &[OwnedBy] = &[OwnedBy::Anybody, OwnedBy::UserOrRoot, OwnedBy::User];
const LAYOUTS: &[Layout] = &[Layout::Named, Layout::Hosts, Layout::Host];

fn index_in<T: PartialEq>(all: &[T], one: T) -> u64 {
    let at = all.iter().position(|known| *known == one);
    at.map_or(u64::MAX, |at| at as u64)
}

fn element_at<T: Copy>(all: &[T], place: u64) -> Option<T> {
    all.get(usize::try_from(place).ok()?).copied()
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// The instance ran, and ended so.
    Exit(Exit),
    /// The code is not in the cache, or has been changed there.
    NoCode,
    /// The instance did not begin: no thread is left to run it.
    NoThread,
    /// The module may not be run; standard error says why.
    Denied,
    /// The module is no program; standard error says why.
    Bad,
}

/// The worker's only message, sent when it takes connections.
pub const READY: &[u8] = b"ready";

/// Size of an encoded [`RunOutcome`].
pub const ENDED: usize = 40;

impl RunOutcome {
    /// Encodes the value.
    pub fn encode(self) -> [u8; ENDED] {
        let nanos = |t: Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
        let numbers = match self {
            Self::NoCode => [2, 0, 0, 0, 0],
            Self::NoThread => [3, 0, 0, 0, 0],
            Self::Denied => [4, 0, 0, 0, 0],
            Self::Bad => [5, 0, 0, 0, 0],
            Self::Exit(exit) => {
                let (kind, status) = match exit.status {
                    Status::Code(n) => (0, n),
                    Status::Signal(n) => (1, n),
                };
                let status = u64::from(status.cast_unsigned());
                let (user, system) = (nanos(exit.user), nanos(exit.system));
                [kind, status, user, system, exit.max_rss]
            }
        };
        let mut bytes = [0; ENDED];
        for (to, number) in bytes.chunks_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a value; `None`: the bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let kind = from.take_number()?;
        let status = u32::try_from(from.take_number()?).ok()?.cast_signed();
        let mut exit = |status| {
            Some(Self::Exit(Exit {
                status,
                user: Duration::from_nanos(from.take_number()?),
                system: Duration::from_nanos(from.take_number()?),
                max_rss: from.take_number()?,
            }))
        };
        match kind {
            0 => exit(Status::Code(status)),
            1 => exit(Status::Signal(status)),
            2 => Some(Self::NoCode),
            3 => Some(Self::NoThread),
            4 => Some(Self::Denied),
            5 => Some(Self::Bad),
            _ => None,
        }
    }
}

/// Reads at most `most` bytes from a descriptor.
pub(crate) fn read_text(fd: OwnedFd, most: u64) -> String {
    let mut bytes = Vec::new();
    let _ = File::from(fd).take(most).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn setup(cache: usize) -> Message {
        Message::Setup(WorkerSetup {
            cache: vec![b'c'; cache],
            instances: 9,
            profiles: vec![Profile {
                folders: vec![("/data".into(), b"/srv".to_vec(), true)],
                network: true,
            }],
        })
    }

    fn own() -> Message {
        Message::Own(UserSetup {
            root: b"/srv".to_vec(),
            layout: Layout::Host,
            names: vec![Glob::parse("*.wasm").unwrap()],
            owner: OwnedBy::User,
            instances: 9,
            profile: Profile {
                folders: vec![("/data".into(), b"/srv".to_vec(), true)],
                network: true,
            },
            memory: 1 << 20,
            cpu: 7,
        })
    }

    #[test]
    fn messages_arrive_whole_with_their_descriptors_however_long() {
        let (ours, theirs) = socket_pair().unwrap();
        for (message, fds) in [
            (setup(1), 0),
            (setup(INLINE), 0),
            (setup(1 << 20), 1),
            (Message::Connect, 1),
            (Message::Load([1; 32]), 0),
            (Message::Forget([2; 32]), 0),
            (own(), 0),
            (Message::Wanted(b"/srv/a.wasm".to_vec()), 0),
            (Message::Found(CodeReply::Code([3; 32])), 1),
            (Message::Found(CodeReply::Denied("no".into())), 0),
            (Message::Found(CodeReply::Bad("no".into())), 0),
            (Message::Found(CodeReply::Short), 0),
        ] {
            let sent = vec![ours.as_fd(); fds];
            send_message(&ours, &message.encode(), &sent).unwrap();
            let mut bytes = Vec::new();
            let (got, with) = receive_message(&theirs, &mut bytes).unwrap().unwrap();
            assert_eq!(with.len(), fds);
            assert_eq!(Message::decode(got), Some(message));
        }
        drop(ours);
        assert!(receive_message(&theirs, &mut Vec::new()).unwrap().is_none());
    }

    #[test]
    fn what_is_cut_is_no_message() {
        for message in [setup(3), own()] {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            for length in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..length]), None);
            }
        }
        let run = Run {
            key: [7; 32],
            profile: 3,
            memory: 1 << 20,
            cpu: 0,
            name: b"/cgi-bin/\xff".to_vec(),
            module: b"/srv/a.wasm".to_vec(),
        };
        let bytes = run.encode();
        assert_eq!(Run::decode(&bytes), Some(run));
        for length in 0..bytes.len() {
            assert_eq!(Run::decode(&bytes[..length]), None);
        }
    }

    #[test]
    fn an_exit_comes_back_as_it_was() {
        let exit = |status| {
            RunOutcome::Exit(Exit {
                status,
                user: Duration::from_micros(5),
                system: Duration::ZERO,
                max_rss: 65536,
            })
        };
        for ended in [
            exit(Status::Signal(9)),
            exit(Status::Code(3)),
            RunOutcome::NoCode,
            RunOutcome::NoThread,
            RunOutcome::Denied,
            RunOutcome::Bad,
        ] {
            assert_eq!(RunOutcome::decode(&ended.encode()), Some(ended));
        }
        assert_eq!(RunOutcome::decode(&[9; ENDED]), None);
        assert_eq!(RunOutcome::decode(&[]), None);
    }
}
