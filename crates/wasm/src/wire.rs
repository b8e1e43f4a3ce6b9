//! What the server and the worker say to each other: one packet a message on a SOCK_SEQPACKET
//! socket, descriptors beside it (SCM_RIGHTS).
//!
//! A message that is longer than [`INLINE`] travels as a memfd, the last of its descriptors, for a
//! packet may not be larger than the socket's buffer.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    time::Duration,
};

use galgo_spawn::{Exit, Status};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv,
        recvmsg, send, sendmsg, socketpair,
    },
};

/// Bytes of a message that travel in the packet itself.
pub const INLINE: usize = 32 << 10;
/// Bytes of a message in a memfd.
const MOST: u64 = 16 << 20;
/// Descriptors of a message, the memfd included.
const DESCRIPTORS: usize = 5;

/// A pair of connected sockets that keep messages apart, closed on exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Sends one message, without waiting: `WouldBlock` where the socket is full.
pub fn send_message(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let spilled = (message.len() > INLINE)
        .then(|| spill(message))
        .transpose()?;
    let (kind, inline) = match spilled {
        Some(_) => ([1], &[][..]),
        None => ([0], message),
    };
    let mut fds = descriptors.to_vec();
    fds.extend(spilled.as_ref().map(AsFd::as_fd));
    if fds.len() > DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let parts = [IoSlice::new(&kind), IoSlice::new(inline)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &parts, &mut control, flags)?;
    Ok(())
}

fn spill(message: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create("galgo-message", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(message)?;
    Ok(file.into())
}

/// Waits for one message, in a `buffer` that is used again for the next. `None`: the peer has closed its
/// end.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(&[u8], Vec<OwnedFd>)>> {
    buffer.resize(INLINE + 1, 0);
    let mut fds = Vec::with_capacity(DESCRIPTORS);
    let received = loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(buffer)];
        match recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
            Ok(received) => {
                for part in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = part {
                        fds.extend(rights);
                    }
                }
                break received;
            }
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    if received.flags.intersects(cut) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a cut message"));
    }
    if buffer.first() == Some(&1) {
        let memfd = fds.pop().ok_or(io::ErrorKind::InvalidData)?;
        unspill(memfd, buffer)?;
        return Ok(Some((buffer, fds)));
    }
    let message = buffer.get(1..received.bytes).unwrap_or_default();
    Ok(Some((message, fds)))
}

fn unspill(memfd: OwnedFd, message: &mut Vec<u8>) -> io::Result<()> {
    let file = File::from(memfd);
    let length = file.metadata()?.len();
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    message.resize(usize::try_from(length).unwrap_or(0), 0);
    file.read_exact_at(message, 0)
}

/// Puts numbers and texts one behind the other.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

#[allow(missing_docs)]
impl Writer {
    pub fn number(&mut self, n: u64) -> &mut Self {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Takes them apart again. `None`: the message is shorter than it says.
#[derive(Debug)]
pub struct Reader<'m>(pub &'m [u8]);

#[allow(missing_docs)]
impl<'m> Reader<'m> {
    pub fn number(&mut self) -> Option<u64> {
        let (n, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*n))
    }

    pub fn bytes(&mut self) -> Option<&'m [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}

/// The name of a module's code: the SHA-256 of the module.
pub type Key = [u8; 32];

/// What the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The first message: what the worker may see, and how much it runs at once.
    Setup(Setup),
    /// Load this code now: it will be asked for.
    Load(Key),
    /// This code will not be asked for again.
    Forget(Key),
    /// Run; beside it standard input, output, error and the control socket.
    Run(Run),
}

/// What the worker may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// The folder of compiled code.
    pub cache: Vec<u8>,
    /// Instances at once.
    pub instances: u64,
    /// What instances may see, by number.
    pub profiles: Vec<Profile>,
}

/// What the instances of one route may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Folders: the guest's path, ours, whether it may be written to.
    pub folders: Vec<(String, Vec<u8>, bool)>,
    /// May connect to other machines.
    pub network: bool,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The code.
    pub key: Key,
    /// The place of its profile in [`Setup::profiles`].
    pub profile: u64,
    /// Bytes of linear memory, over all memories of the instance.
    pub memory: u64,
    /// Seconds of processor time; 0: any.
    pub cpu: u64,
    /// `argv[0]`.
    pub name: Vec<u8>,
    /// The environment: `NAME=value\0` one behind the other.
    pub env: Vec<u8>,
}

impl Message {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Setup(setup) => {
                to.number(0).bytes(&setup.cache).number(setup.instances);
                to.number(setup.profiles.len() as u64);
                for profile in &setup.profiles {
                    to.number(u64::from(profile.network));
                    to.number(profile.folders.len() as u64);
                    for (guest, host, write) in &profile.folders {
                        to.bytes(guest.as_bytes()).bytes(host);
                        to.number(u64::from(*write));
                    }
                }
            }
            Self::Load(key) => drop(to.number(1).bytes(key)),
            Self::Forget(key) => drop(to.number(2).bytes(key)),
            Self::Run(run) => {
                to.number(3).bytes(&run.key).number(run.profile);
                to.number(run.memory).number(run.cpu);
                to.bytes(&run.name).bytes(&run.env);
            }
        }
        to.0
    }

    /// From bytes; `None`: they are no message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let message = match from.number()? {
            0 => Self::Setup(setup(&mut from)?),
            1 => Self::Load(from.bytes()?.try_into().ok()?),
            2 => Self::Forget(from.bytes()?.try_into().ok()?),
            3 => Self::Run(Run {
                key: from.bytes()?.try_into().ok()?,
                profile: from.number()?,
                memory: from.number()?,
                cpu: from.number()?,
                name: from.bytes()?.to_vec(),
                env: from.bytes()?.to_vec(),
            }),
            _ => return None,
        };
        from.0.is_empty().then_some(message)
    }
}

fn setup(from: &mut Reader<'_>) -> Option<Setup> {
    let mut setup = Setup {
        cache: from.bytes()?.to_vec(),
        instances: from.number()?,
        profiles: Vec::new(),
    };
    for _ in 0..from.number()? {
        let mut profile = Profile {
            network: from.number()? != 0,
            ..Profile::default()
        };
        for _ in 0..from.number()? {
            let (guest, host) = (from.text()?, from.bytes()?.to_vec());
            profile.folders.push((guest, host, from.number()? != 0));
        }
        setup.profiles.push(profile);
    }
    Some(setup)
}

/// What the worker says of a run, on its control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It ran.
    Exit(Exit),
    /// Its code is not in the cache, or is not what was put there.
    NoCode,
}

/// Sends how a run ended. The server may have lost interest, which is no error.
pub fn send_ended(control: impl AsFd, ended: Ended) {
    let mut to = Writer::default();
    match ended {
        Ended::NoCode => to.number(2),
        Ended::Exit(exit) => {
            let (kind, status) = match exit.status {
                Status::Code(n) => (0, n),
                Status::Signal(n) => (1, n),
            };
            let nanos = |t: Duration| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX);
            to.number(kind).number(u64::from(status.cast_unsigned()));
            to.number(nanos(exit.user)).number(nanos(exit.system));
            to.number(exit.max_rss)
        }
    };
    let _ = send(control, &to.0, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes how a run ended, without waiting. `Ok(None)`: the worker is gone.
///
/// # Errors
/// `WouldBlock`: it has not ended yet.
pub fn take_ended(control: impl AsFd) -> io::Result<Option<Ended>> {
    let mut bytes = [0; 64];
    let (length, _) = match recv(control, &mut bytes, RecvFlags::DONTWAIT) {
        Err(Errno::CONNRESET) => return Ok(None),
        other => other?,
    };
    Ok(bytes.get(..length).and_then(decode_ended))
}

fn decode_ended(bytes: &[u8]) -> Option<Ended> {
    let mut from = Reader(bytes);
    let kind = from.number()?;
    if kind == 2 {
        return Some(Ended::NoCode);
    }
    let status = u32::try_from(from.number()?).ok()?.cast_signed();
    Some(Ended::Exit(Exit {
        status: match kind {
            0 => Status::Code(status),
            _ => Status::Signal(status),
        },
        user: Duration::from_nanos(from.number()?),
        system: Duration::from_nanos(from.number()?),
        max_rss: from.number()?,
    }))
}

/// Reads all of a descriptor, up to `most` bytes.
pub(crate) fn read_text(fd: OwnedFd, most: u64) -> String {
    let mut bytes = Vec::new();
    let _ = File::from(fd).take(most).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(env: usize) -> Message {
        Message::Run(Run {
            key: [7; 32],
            profile: 3,
            memory: 1 << 20,
            cpu: 0,
            name: b"/cgi-bin/\xff".to_vec(),
            env: vec![b'x'; env],
        })
    }

    #[test]
    fn messages_arrive_whole_with_their_descriptors_however_long() {
        let (ours, theirs) = pair().unwrap();
        for (message, fds) in [
            (run(0), 1),
            (run(INLINE), 4),
            (run(1 << 20), 4),
            (Message::Load([1; 32]), 0),
            (Message::Forget([2; 32]), 0),
        ] {
            let sent = vec![ours.as_fd(); fds];
            send_message(&ours, &message.encode(), &sent).unwrap();
            let mut bytes = Vec::new();
            let (got, with) = receive(&theirs, &mut bytes).unwrap().unwrap();
            assert_eq!(with.len(), fds);
            assert_eq!(Message::decode(got), Some(message));
        }
        drop(ours);
        assert!(receive(&theirs, &mut Vec::new()).unwrap().is_none());
    }

    #[test]
    fn what_is_cut_is_no_message() {
        let setup = Message::Setup(Setup {
            cache: b"/c".to_vec(),
            instances: 9,
            profiles: vec![Profile {
                folders: vec![("/data".into(), b"/srv".to_vec(), true)],
                network: true,
            }],
        });
        for message in [setup, run(9)] {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            for length in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..length]), None);
            }
        }
    }

    #[test]
    fn an_exit_comes_back_as_it_was_and_a_dead_worker_is_noticed() {
        let exit = Exit {
            status: Status::Signal(9),
            user: Duration::from_micros(5),
            system: Duration::ZERO,
            max_rss: 65536,
        };
        let (ours, theirs) = pair().unwrap();
        let early = take_ended(&ours).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        for ended in [Ended::Exit(exit), Ended::NoCode] {
            send_ended(&theirs, ended);
            assert_eq!(take_ended(&ours).unwrap(), Some(ended));
        }
        drop(theirs);
        assert_eq!(take_ended(&ours).unwrap(), None);
    }
}
