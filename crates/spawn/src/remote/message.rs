//! Messages between server, spawner and helpers. They are sent over SEQPACKET sockets, with attached descriptors. Each is read
//! by a strict grammar, and gets no answer if it is not understood.

use crate::{
    env::EnvBlock,
    exit::{Exit, Status},
    host_name::{HOST_MAX, is_host},
    remote::{
        deadline::Deadline,
        left::LeftProcesses,
        template_message::{TemplateOrder, TemplateReport},
    },
    start::Priority,
    start_error::StartStage,
};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
        sendmsg, socketpair,
    },
};
use std::{
    ffi::CString,
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

/// Limit of descriptors attached to one message.
const FDS: usize = 4;

/// Size of the longest message, in bytes.
pub(crate) const MOST: usize = 256 << 10;

/// Creates a pair of connected sockets.
///
/// # Errors
/// An error of the system.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends one message. `flags` can say not to wait for room.
///
/// # Errors
/// An error of the system.
pub fn send_message(
    socket: BorrowedFd<'_>,
    parts: &[&[u8]],
    fds: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &parts, &mut control, flags | SendFlags::NOSIGNAL).map(drop)
}

/// A received message.
pub(crate) struct Received {
    /// Length of the message, 0 at the end of the conversation. If the message was longer than the buffer, the length is
    /// greater than any message's.
    pub(crate) bytes: usize,
    /// The message had more descriptors than there was room for.
    pub(crate) lacks: bool,
    pub(crate) fds: Vec<OwnedFd>,
}

/// Receives one message. Returns its length, 0 at the end of the conversation, and its descriptors. If the message was longer
/// than `buffer`, or descriptors are missing, the length is greater than any message's.
pub(crate) fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    receive_all(socket, buffer, flags).map(Received::into_parts)
}

/// Receives one message, and notes whether descriptors are missing.
pub(crate) fn receive_all(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<Received, Errno> {
    match receive_raw(socket, buffer, flags) {
        // The other side has closed the socket with unread data. The kernel reports that once, before the remaining messages.
        Err(Errno::CONNRESET) => receive_raw(socket, buffer, flags),
        received => received,
    }
}

/// Works like `receive`, but passes on the error that the kernel reports first.
///
/// # Errors
/// An error of the system. CONNRESET comes once, if the other side has closed the socket with unread data.
pub fn receive_once(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    receive_raw(socket, buffer, flags).map(Received::into_parts)
}

impl Received {
    fn into_parts(self) -> (usize, Vec<OwnedFd>) {
        let bytes = if self.lacks { usize::MAX } else { self.bytes };
        (bytes, self.fds)
    }
}

fn receive_raw(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg(
        socket,
        &mut parts,
        &mut control,
        flags | RecvFlags::CMSG_CLOEXEC,
    )?;
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(Received {
        fds: fds.flatten().collect(),
        lacks: got.flags.contains(ReturnFlags::CTRUNC),
        bytes: if got.flags.contains(ReturnFlags::TRUNC) {
            usize::MAX
        } else {
            got.bytes
        },
    })
}

/// An order to the spawner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order<'h> {
    /// Make a helper for the route with this digest, as this user. For a route with folders of hosts, `host` names the host;
    /// else `host` is empty.
    Helper {
        digest: u64,
        uid: u32,
        host: &'h str,
    },
    /// Read the configuration again, because it has changed.
    Reload,
    /// Make a listener for a worker ([`NamelessListener`](crate::NamelessListener)). From its creation on, only the spawner's
    /// user can reach the listener by a path.
    Listener,
    /// Start another server in the place of this one. The order has no details: the spawner knows from its own start what to
    /// execute.
    Upgrade,
    /// End the server of the last [`Upgrade`](Self::Upgrade) if it does not serve yet, and tell how it ended.
    EndUpgrade,
}

impl<'h> Order<'h> {
    /// Bytes before the host.
    const HEAD: usize = 16;
    /// Size of the longest order, in bytes.
    const SIZE: usize = Self::HEAD + HOST_MAX;
    /// Size of the longest order with its number and its deadline, in bytes.
    pub(crate) const NUMBERED: usize = size_of::<u32>() + Deadline::SIZE + Self::SIZE;

    pub(crate) fn encode(self) -> Vec<u8> {
        let (kind, uid, digest, host) = match self {
            Self::Helper { digest, uid, host } => (1u32, uid, digest, host),
            Self::Reload => (2, 0, 0, ""),
            Self::Listener => (3, 0, 0, ""),
            Self::Upgrade => (4, 0, 0, ""),
            Self::EndUpgrade => (5, 0, 0, ""),
        };
        let (kind, uid) = (kind.to_ne_bytes(), uid.to_ne_bytes());
        [&kind, &uid, &digest.to_ne_bytes()[..], host.as_bytes()].concat()
    }

    /// Reads the number and the deadline in front of an order, and the order.
    pub(crate) fn decode_numbered(bytes: &'h [u8]) -> Option<(u32, Deadline, Option<Self>)> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (by, order) = Deadline::decode(rest)?;
        Some((u32::from_ne_bytes(*number), by, Self::decode(order)))
    }

    pub(crate) fn decode(bytes: &'h [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first_chunk()?;
        let (uid, rest) = rest.split_first_chunk()?;
        let (digest, host) = rest.split_first_chunk()?;
        let host = str::from_utf8(host).ok()?;
        let (uid, digest) = (u32::from_ne_bytes(*uid), u64::from_ne_bytes(*digest));
        match (u32::from_ne_bytes(*kind), uid, digest, host) {
            (1, uid, digest, host) if host.is_empty() || is_host(host) => {
                Some(Self::Helper { digest, uid, host })
            }
            (2, 0, 0, "") => Some(Self::Reload),
            (3, 0, 0, "") => Some(Self::Listener),
            (4, 0, 0, "") => Some(Self::Upgrade),
            (5, 0, 0, "") => Some(Self::EndUpgrade),
            _ => None,
        }
    }
}

/// An answer of the spawner to an order, or of an errand to the spawner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OrderAnswer {
    /// The order is done. Its results are attached.
    Done,
    /// The order is not permitted.
    Denied(String),
    /// The order cannot be done now: something is short, or takes too long.
    NotNow(String),
    /// The helper has ended before it served, and has logged the reason.
    Ended,
}

impl OrderAnswer {
    pub(crate) fn encode(&self, number: u32) -> Vec<u8> {
        let (letter, words) = match self {
            Self::Done => (b'Y', ""),
            Self::Denied(why) => (b'N', &**why),
            Self::NotNow(why) => (b'L', &**why),
            Self::Ended => (b'E', ""),
        };
        let words = &words[..words.floor_char_boundary(SENTENCE)];
        [&number.to_ne_bytes()[..], &[letter], words.as_bytes()].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<(u32, Self)> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (letter, words) = rest.split_first()?;
        let words = str::from_utf8(words).ok()?;
        let answer = match (letter, words) {
            (b'Y', "") => Self::Done,
            (b'N', why) => Self::Denied(why.to_owned()),
            (b'L', why) => Self::NotNow(why.to_owned()),
            (b'E', "") => Self::Ended,
            _ => return None,
        };
        Some((u32::from_ne_bytes(*number), answer))
    }
}

/// An order to a helper.
#[derive(Debug)]
pub(crate) enum HelperOrder {
    /// Start a program. Sent to a template's child over the child's own socket, this is the child's request.
    Start(StartOrder),
    /// Load a program, and keep it loaded.
    Template(TemplateOrder),
}

impl HelperOrder {
    const START: u8 = b'S';
    const START_KNOCKING: u8 = b'K';
    /// Comes before a [`TemplateOrder`].
    pub(crate) const TEMPLATE: u8 = b'T';

    /// Encodes the head of a start, with the number of arguments after the program, and the deadline of the start. For `knocks`
    /// see [`Launch`](crate::Launch).
    pub(crate) fn encode_start(
        args: usize,
        knocks: bool,
        priority: Priority,
        by: Deadline,
    ) -> Option<[u8; START_HEAD]> {
        let letter = if knocks {
            Self::START_KNOCKING
        } else {
            Self::START
        };
        let mut head = [0; START_HEAD];
        (head[0], head[1]) = (letter, priority_byte(priority).unwrap_or(NORMAL));
        head[2..10].copy_from_slice(&by.encode());
        head[10..].copy_from_slice(&u16::try_from(args).ok()?.to_ne_bytes());
        Some(head)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (letter, rest) = bytes.split_first()?;
        match *letter {
            Self::START => StartOrder::decode(rest, false).map(Self::Start),
            Self::START_KNOCKING => StartOrder::decode(rest, true).map(Self::Start),
            Self::TEMPLATE => TemplateOrder::decode(rest).map(Self::Template),
            _ => None,
        }
    }
}

/// Bytes before the program of a start.
const START_HEAD: usize = 2 + Deadline::SIZE + size_of::<u16>();

/// An order to a helper to start a program. The message begins with the number of its connection
/// ([`connection`](super::connection)), and the program's standard descriptors are attached.
#[derive(Debug, Default)]
pub(crate) struct StartOrder {
    pub(crate) program: CString,
    /// The arguments after the program.
    pub(crate) args: Vec<CString>,
    pub(crate) env: EnvBlock,
    /// See [`Launch`](crate::Launch). The helper itself knocks if it does not start the program.
    pub(crate) knocks: bool,
    pub(crate) priority: Priority,
    /// After this time the server no longer waits for the start.
    pub(crate) by: Option<Deadline>,
}

impl StartOrder {
    /// Whether the server still waits for the start.
    pub(crate) fn is_wanted(&self) -> bool {
        self.by.is_none_or(|by| !by.has_passed())
    }

    /// Reads the priority, the deadline, the number of arguments, the program, its arguments and its variables. The strings
    /// each end with a NUL.
    pub(crate) fn decode(bytes: &[u8], knocks: bool) -> Option<Self> {
        let (priority, rest) = bytes.split_first()?;
        let priority = match *priority {
            NORMAL => Priority::Normal,
            low => priority_from_byte(low)?,
        };
        let (by, rest) = Deadline::decode(rest)?;
        let (head, rest) = rest.split_first_chunk()?;
        let args = usize::from(u16::from_ne_bytes(*head));
        let mut strings = rest.strip_suffix(&[0])?.split(|&b| b == 0);
        let program = CString::new(strings.next()?).ok()?;
        let args: Vec<CString> = (0..args)
            .map(|_| CString::new(strings.next()?).ok())
            .collect::<Option<_>>()?;
        let mut env = EnvBlock::default();
        let mut count = 0;
        for variable in strings {
            let at = variable.iter().position(|&b| b == b'=')?;
            env.set_variable(&variable[..at], &variable[at + 1..]);
            count += 1;
        }
        // The server never sends an empty name, or the same name twice.
        (env.iter().count() == count).then_some(Self {
            program,
            args,
            env,
            knocks,
            priority,
            by: Some(by),
        })
    }
}

/// A report of a helper, over a program's connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProgramReport {
    /// The program runs, in a process group with this number.
    Started(i32),
    /// The program could not be started.
    Failed(StartStage, i32),
    /// The program may not be started.
    Denied(String),
    /// The process is a template's child, and waits for its request.
    Waits,
    /// The program has ended. If it left processes of its group, the helper reports once more when they are gone.
    Exited(Exit, LeftProcesses),
}

/// Longest sentence of [`ProgramReport::Denied`], in bytes.
const SENTENCE: usize = 1000;

/// Bytes for priorities, sent in place of a signal's number, and at the head of a start. No signal has these numbers.
const PRIORITIES: [(Priority, u8); 2] = [(Priority::Idle, 0), (Priority::IdleLeavingOne, u8::MAX)];
/// Normal priority, at the head of a start only.
const NORMAL: u8 = 1;

/// Returns the byte that lowers a program to this priority; `None` for normal priority.
pub(crate) fn priority_byte(to: Priority) -> Option<u8> {
    let found = PRIORITIES.iter().find(|(priority, _)| *priority == to);
    found.map(|(_, byte)| *byte)
}

/// Returns the priority for a byte of [`priority_byte`]; `None` if the byte is a signal.
pub(crate) fn priority_from_byte(byte: u8) -> Option<Priority> {
    let found = PRIORITIES.iter().find(|(_, one)| *one == byte);
    found.map(|(priority, _)| *priority)
}

/// Longest report, in bytes.
pub(crate) const REPORT: usize = SENTENCE + 1;

impl ProgramReport {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = |kind: u8, numbers: &[u64]| {
            let mut bytes = vec![kind];
            numbers.iter().for_each(|n| bytes.extend(n.to_ne_bytes()));
            bytes
        };
        let signed = |n: i32| u64::from(n.cast_unsigned());
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        match self {
            Self::Waits => vec![b'W'],
            Self::Started(pid) => numbers(b'S', &[signed(*pid)]),
            Self::Failed(stage, errno) => numbers(b'F', &[*stage as u64, signed(*errno)]),
            Self::Denied(why) => {
                let end = why.floor_char_boundary(SENTENCE);
                [b"D", &why.as_bytes()[..end]].concat()
            }
            Self::Exited(exit, left) => {
                let (signal, number) = match exit.status {
                    Status::Code(n) => (0, n),
                    Status::Signal(n) => (1, n),
                };
                let Exit {
                    user,
                    system,
                    max_rss,
                    ..
                } = exit;
                let all = [
                    signal,
                    signed(number),
                    micros(*user),
                    micros(*system),
                    *max_rss,
                    *left as u64,
                ];
                numbers(b'X', &all)
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        if *kind == b'D' {
            return Some(Self::Denied(String::from_utf8(rest.to_vec()).ok()?));
        }
        let (words, odd) = rest.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let signed = |n: u64| Some(u32::try_from(n).ok()?.cast_signed());
        match (kind, &words[..], odd) {
            (b'W', [], []) => Some(Self::Waits),
            (b'S', &[pid], []) => signed(pid).filter(|pid| *pid > 0).map(Self::Started),
            (b'F', &[stage, errno], []) => Some(Self::Failed(
                StartStage::from_number(stage)?,
                signed(errno)?,
            )),
            (b'X', &[signal, number, user, system, max_rss, left], []) => {
                let number = signed(number)?;
                let status = match signal {
                    0 => Status::Code(number),
                    1 => Status::Signal(number),
                    _ => return None,
                };
                let exit = Exit {
                    status,
                    user: Duration::from_micros(user),
                    system: Duration::from_micros(system),
                    max_rss,
                };
                Some(Self::Exited(exit, LeftProcesses::from_number(left)?))
            }
            _ => None,
        }
    }
}

/// Reads a message with each grammar of the server, the spawner and the helpers. For fuzzing.
#[doc(hidden)]
pub fn read_all(bytes: &[u8]) {
    if let Some(order) = Order::decode(bytes) {
        assert_eq!(order.encode(), *bytes, "an order says one thing");
    }
    if let Some(HelperOrder::Start(order)) = HelperOrder::decode(bytes) {
        assert!(order.args.len() <= bytes.len() && order.env.as_bytes().len() <= bytes.len());
    }
    if let Some((number, answer)) = OrderAnswer::decode(bytes) {
        assert!(OrderAnswer::decode(&answer.encode(number)).is_some());
    }
    if let Some(report) = ProgramReport::decode(bytes) {
        assert!(ProgramReport::decode(&report.encode()).is_some());
    }
    if let Some(report) = TemplateReport::decode(bytes) {
        assert!(TemplateReport::decode(&report.encode()).is_some());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::remote::message::*;
    use std::os::fd::AsFd;

    #[test]
    fn orders_are_read_back_and_nothing_else_is() {
        let helper = |host| Order::Helper {
            digest: 0x0102_0304_0506_0708,
            uid: 1000,
            host,
        };
        let long = format!("{}.example", "a".repeat(HOST_MAX - 8));
        for order in [
            helper(""),
            helper("a.xn--bcher-kva.example"),
            helper(&long),
            Order::Reload,
            Order::Listener,
            Order::Upgrade,
            Order::EndUpgrade,
        ] {
            let bytes = order.encode();
            assert!(bytes.len() <= Order::SIZE);
            assert_eq!(Order::decode(&bytes), Some(order));
            assert_ne!(Order::decode(&bytes[1..]), Some(order));
            let more = [&bytes[..], b"/"].concat();
            assert_eq!(Order::decode(&more), None);
        }
        assert_eq!(Order::decode(&[9; Order::SIZE]), None);
        let too_long = format!("a{long}");
        for host in [
            ".", "..", "a..b", "a.", "../a", "a/b", "A", "a b", "a\0", &too_long,
        ] {
            assert_eq!(Order::decode(&helper(host).encode()), None, "{host}");
        }
    }

    #[test]
    fn answers_are_read_back_by_their_number() {
        let by = Deadline::within(Duration::from_secs(9));
        let order = [
            &7u32.to_ne_bytes()[..],
            &by.encode(),
            &Order::Reload.encode(),
        ]
        .concat();
        assert!(order.len() <= Order::NUMBERED);
        assert_eq!(
            Order::decode_numbered(&order),
            Some((7, by, Some(Order::Reload)))
        );
        assert_eq!(Order::decode_numbered(&order[..13]), Some((7, by, None)));
        for answer in [
            OrderAnswer::Done,
            OrderAnswer::Denied("no".into()),
            OrderAnswer::NotNow("ä".repeat(5000)),
            OrderAnswer::Ended,
        ] {
            let bytes = answer.encode(9);
            assert!(bytes.len() <= REPORT + 8);
            let (number, read) = OrderAnswer::decode(&bytes).unwrap();
            assert_eq!((number, read.encode(9)), (9, bytes));
        }
        assert_eq!(OrderAnswer::decode(b"\0\0\0\0?"), None);
    }

    #[test]
    fn what_was_told_before_an_order_that_came_too_late_is_heard() {
        let (ours, theirs) = socket_pair().unwrap();
        send_message(theirs.as_fd(), &[b"told"], &[], SendFlags::empty()).unwrap();
        send_message(ours.as_fd(), &[b"late"], &[], SendFlags::empty()).unwrap();
        drop(theirs);
        let mut buffer = [0; 8];
        let mut next = || {
            receive_message(ours.as_fd(), &mut buffer, RecvFlags::DONTWAIT)
                .unwrap()
                .0
        };
        assert_eq!([next(), next()], [4, 0]);
    }

    #[test]
    fn starts() {
        let read = |args: u16, rest: &[u8]| {
            let by = Deadline::within(Duration::from_secs(9));
            let head = [&[NORMAL], &by.encode()[..], &args.to_ne_bytes()];
            let bytes = [&head.concat(), rest].concat();
            let order = StartOrder::decode(&bytes, false)?;
            assert_eq!((order.priority, order.by), (Priority::Normal, Some(by)));
            let all = std::iter::once(order.program).chain(order.args);
            let all: Vec<String> = all.map(|s| s.into_string().unwrap()).collect();
            let env: Vec<String> = order
                .env
                .iter()
                .map(|(n, v)| format!("{}={}", n.escape_ascii(), v.escape_ascii()))
                .collect();
            Some((all.join(" "), env.join(" ")))
        };
        let some = |all: &str, env: &str| Some((all.to_owned(), env.to_owned()));
        assert_eq!(read(0, b"/p\0"), some("/p", ""));
        assert_eq!(read(1, b"/p\0one\0A=b=c\0B=\0"), some("/p one", "A=b=c B="));
        for (args, rest) in [
            (0, &b""[..]),
            (0, b"/p"),
            (1, b"/p\0"),
            (9, b"/p\0a\0"),
            (0, b"/p\0A\0"),
            (0, b"/p\0=b\0"),
            (0, b"/p\0A=b\0A=c\0"),
            (0, b"/p\0A=b\0\0"),
        ] {
            assert_eq!(read(args, rest), None, "{rest:?}");
        }
    }

    #[test]
    fn a_start_says_its_priority() {
        let all = [Priority::Normal, Priority::Idle, Priority::IdleLeavingOne];
        for priority in all {
            let by = Deadline::within(Duration::ZERO);
            let head = HelperOrder::encode_start(0, true, priority, by).unwrap();
            let read = HelperOrder::decode(&[&head[..], b"/p\0"].concat());
            let Some(HelperOrder::Start(order)) = read else {
                panic!("{read:?}")
            };
            assert!(order.priority == priority && order.knocks && !order.is_wanted());
            assert_eq!(
                priority_byte(priority).and_then(priority_from_byte),
                (priority > Priority::Normal).then_some(priority)
            );
        }
        assert!(HelperOrder::decode(b"S\x02\0\0\0\0\0\0\0\0\0\0/p\0").is_none());
    }

    #[test]
    fn reports_are_read_back() {
        let exit = Exit {
            status: Status::Signal(9),
            user: Duration::from_micros(7),
            system: Duration::from_secs(8),
            max_rss: 1 << 40,
        };
        for report in [
            ProgramReport::Waits,
            ProgramReport::Started(77),
            ProgramReport::Failed(StartStage::Exec, 13),
            ProgramReport::Denied("no".into()),
            ProgramReport::Exited(exit, LeftProcesses::Outside),
        ] {
            let bytes = report.encode();
            assert_eq!(ProgramReport::decode(&bytes).as_ref(), Some(&report));
            for end in 1..bytes.len() {
                let cut = ProgramReport::decode(&bytes[..end]);
                assert!(
                    matches!(cut, None | Some(ProgramReport::Denied(_))),
                    "{cut:?}"
                );
            }
        }
        let long = ProgramReport::Denied("ä".repeat(5000)).encode();
        assert!(long.len() <= REPORT && ProgramReport::decode(&long).is_some());
    }

    /// Uses a generator of numbers (xorshift) in place of a fuzzer. Each message is read or refused.
    #[test]
    fn whatever_comes_is_read_or_refused() {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let valid = [
            &[NORMAL, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0][..],
            b"/p\0one\0A=b\0",
        ]
        .concat();
        let (mut read, mut refused) = (0, 0);
        for _ in 0..1_000_000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let mut bytes = valid.clone();
            let at = x as usize % bytes.len();
            bytes[at] = (x >> 8) as u8;
            bytes.truncate((x >> 16) as usize % (bytes.len() + 1));
            read_all(&bytes);
            read_all(&[&b"T"[..], &bytes].concat());
            let start = [&b"S"[..], &bytes].concat();
            read_all(&start);
            match HelperOrder::decode(&start) {
                Some(HelperOrder::Start(order)) => {
                    // Check that the program and its arguments lie in the message, one after the other.
                    let program = order.program.as_bytes_with_nul();
                    assert!(start.windows(program.len()).any(|part| part == program));
                    read += 1;
                }
                _ => refused += 1,
            }
        }
        assert!(
            read > 1000 && refused > 1000,
            "{read} read, {refused} refused"
        );
    }
}
