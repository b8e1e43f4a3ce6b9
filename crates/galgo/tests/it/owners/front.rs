//! A server under an attacker's control: the tests speak to the spawner and its helpers in the server's place.

pub(super) mod connections;
pub(super) mod hosts;
pub(super) mod modules;
pub(super) mod upgrade;
pub(super) mod workers;

use std::{
    io::{IoSlice, IoSliceMut, Read},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Child, Command, Stdio},
};

use crate::harness::list;
use galgo::config::Config;
use galgo_testkit::{LONG, Site, process::children, wait_until};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt::{Timeout, set_socket_timeout},
};

use super::{
    GAMES, MAN, NOBODY, apart, kill, mode, own, signal, site, strict::UNPRIVILEGED, uid_of, written,
};

list![
    it_gets_helpers_of_configured_users_only,
    it_gets_no_more_helpers_than_it_needs,
    a_helper_starts_what_is_configured_only,
    a_helper_loads_what_is_configured_only,
    messages_without_sense_do_nothing,
];

const CONFIG: &str = "shutdown_grace = \"1s\"\nlisten = [\"127.0.0.1:0\", \"127.0.0.2:0\"]\nuser = \"nobody\"\nsites = { path = \"www\", user = \"owner\" }\n\
    [[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\nenv = { FOO = \"bar\" }\n\
    [[route]]\npath = \"/own/\"\ncgi = \"own\"\nuser = \"owner\"\n\
    [[route]]\npath = \"/app\"\nfastcgi = { run = [\"games/echo\", \"one\"] }\nuser = \"games\"\nenv = { FOO = \"bar\" }\n\
    [[route]]\npath = \"/w/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\nenv = { FOO = \"bar\" }\n\
    [[route]]\npath = \"/m/\"\ncgi = \"games\"\nuser = \"games\"\nmemory = \"20M\"\npreopen = { \"/data\" = \"data\" }\n";

/// Index of the worker's route.
const APP: usize = 2;
/// Index of the route whose programs start warm.
const WARM: usize = 4;
/// Index of the route whose modules see a folder.
const MODULES: usize = 3;

/// Index of the folders of hosts, after the routes.
const HOSTS: usize = 5;

struct Spawner {
    process: Child,
    socket: OwnedFd,
    /// Digests of the routes, in their order: longer paths first.
    digests: Vec<u64>,
    site: Site,
}

impl Drop for Spawner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (a, b) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    set_socket_timeout(&a, Timeout::Recv, Some(LONG)).unwrap();
    (a, b)
}

impl Spawner {
    fn start() -> Self {
        let echo = "#!/bin/sh\necho \"$(id -u) $PATH $FOO $LD_PRELOAD $HTTP_X$*\"\n";
        let named = "#!/bin/sh\necho \"$SCRIPT_FILENAME $REDIRECT_URL\"\n";
        let says = "os.getuid(), os.environ['PATH'], os.environ['FOO'], os.environ.get('HTTP_X')";
        let loaded = crate::warm::python("import os", says);
        let site = site()
            .file("games/echo", echo, 0o755)
            .file("games/loaded", loaded, 0o755)
            .file("games/named", named, 0o755)
            .file("www/a.example/cgi-bin/echo", echo, 0o755)
            .file("temporary/.keep", "", 0o644)
            .file("data/note", "x", 0o644);
        own(&site, "games/echo", GAMES);
        own(&site, "games/loaded", GAMES);
        own(&site, "games/named", GAMES);
        mode(&site, "temporary", 0o1777);
        let site = written(site, CONFIG);
        let (socket, theirs) = pair();
        let mut command = Command::new("sh");
        let galgo = env!("CARGO_BIN_EXE_galgo");
        command.args(["-c", "exec \"$0\" spawner . 3<&0 </dev/null", galgo]);
        command
            .env("TMPDIR", temporary(&site))
            .current_dir(site.folder())
            .stdin(Stdio::from(theirs));
        let process = command.spawn().unwrap();
        let config = Config::for_dir(site.folder(), None, None).unwrap();
        let remits = config.remits().map(|(_, remit)| remit.digest());
        let spawner = Self {
            process,
            socket,
            digests: remits.collect(),
            site,
        };
        assert_eq!(spawner.digests.len(), 6);
        assert!(spawner.order(2, 0, 0).is_ok());
        spawner
    }

    /// Sends an order that names no host, and returns the answer's descriptor or the reason for a refusal.
    fn order(&self, kind: u32, uid: u32, digest: u64) -> Result<Option<OwnedFd>, String> {
        self.order_for("", kind, uid, digest)
    }

    fn order_for(
        &self,
        host: &str,
        kind: u32,
        uid: u32,
        digest: u64,
    ) -> Result<Option<OwnedFd>, String> {
        let parts = [&kind.to_ne_bytes()[..], &uid.to_ne_bytes()].concat();
        let bytes = [&parts, &digest.to_ne_bytes()[..], host.as_bytes()].concat();
        let (bytes, fd) = self.ask(&bytes, &[]);
        match bytes.split_first() {
            Some((b'Y', _)) => Ok(fd),
            Some((b'N' | b'L', why)) => Err(String::from_utf8_lossy(why).into_owned()),
            other => panic!("{other:?}"),
        }
    }

    /// Sends an order with its number and its deadline. Returns the answer without the number.
    fn ask(&self, order: &[u8], fds: &[BorrowedFd<'_>]) -> (Vec<u8>, Option<OwnedFd>) {
        send(&self.socket, &[b"1234", LATE, order].concat(), fds);
        let (mut answer, fd) = receive(&self.socket);
        let number: Vec<_> = answer.drain(..answer.len().min(4)).collect();
        assert_eq!(number, b"1234");
        (answer, fd)
    }

    fn helper(&self, uid: u32, route: usize) -> Result<OwnedFd, String> {
        let made = self.order(1, uid, self.digests[route])?;
        Ok(made.expect("a socket"))
    }

    /// Orders a helper for the programs of a host.
    fn helper_of(&self, uid: u32, host: &str) -> Result<OwnedFd, String> {
        let made = self.order_for(host, 1, uid, self.digests[HOSTS])?;
        Ok(made.expect("a socket"))
    }

    fn path(&self, name: &str) -> Vec<u8> {
        self.site.path(name).into_os_string().into_encoded_bytes()
    }
}

/// A deadline far beyond the end of the test.
const LATE: &[u8] = &[255; 8];

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let parts = [IoSlice::new(bytes)];
    let _ = sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL);
}

fn receive(socket: &OwnedFd) -> (Vec<u8>, Option<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; 4096];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    // A signal interrupts a wait that has a timeout, even if its handler has SA_RESTART (signal(7)).
    let got = retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC));
    let n = match got {
        Ok(got) => got.bytes,
        // The socket was closed with unread bytes in it.
        Err(Errno::CONNRESET) => 0,
        Err(e) => panic!("no answer came: {e}"),
    };
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    bytes.truncate(n);
    (bytes, fd)
}

/// Has a helper start a program with these strings. Returns the helper's report and the program's output.
fn start(helper: &OwnedFd, args: u16, strings: &[&[u8]]) -> (String, String) {
    let (ours, theirs) = pair();
    let mut out = order(helper, (7, Some(theirs)), args, strings);
    let report = heard(&ours);
    let mut written = String::new();
    out.read_to_string(&mut written).unwrap();
    (report, written)
}

/// Sends the order for a start: the number of a connection, and optionally the helper's end of a new one. Returns the
/// program's output.
fn order(
    helper: &OwnedFd,
    (number, new): (u64, Option<OwnedFd>),
    args: u16,
    strings: &[&[u8]],
) -> std::io::PipeReader {
    let args = args.to_ne_bytes();
    let mut bytes = [&number.to_ne_bytes()[..], b"S\x01", LATE, &args].concat();
    strings
        .iter()
        .for_each(|s| bytes.extend([*s, b"\0"].concat()));
    let (out, to) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut fds = vec![null.as_fd(), to.as_fd(), to.as_fd()];
    fds.extend(new.as_ref().map(AsFd::as_fd));
    send(helper, &bytes, &fds);
    out
}

/// Returns the next report about a program.
fn heard(connection: &OwnedFd) -> String {
    let (report, _) = receive(connection);
    match report.split_first() {
        Some((b'S', _)) => "started".into(),
        // The program has ended by then.
        Some((b'X', how)) if how.starts_with(&[0; 16]) => "started".into(),
        Some((_, why)) => String::from_utf8_lossy(why).into_owned(),
        None => "closed".into(),
    }
}

fn it_gets_helpers_of_configured_users_only() {
    let spawner = Spawner::start();
    for uid in (0..1000).chain([NOBODY, u32::MAX]) {
        assert_eq!(spawner.helper(uid, 0).is_ok(), uid == GAMES, "{uid}");
        // User ids below `min_uid` get no helper.
        assert_eq!(spawner.helper(uid, 1).is_ok(), uid == NOBODY, "{uid}");
    }
    for digest in [
        0,
        1,
        u64::MAX,
        spawner.digests[0] ^ 1,
        spawner.digests[0].swap_bytes(),
    ] {
        assert!(spawner.order(1, GAMES, digest).is_err());
    }
    for kind in [0, 3, 4, 5, 6, u32::MAX] {
        assert!(spawner.order(kind, GAMES, spawner.digests[0]).is_err());
    }
}

fn it_gets_no_more_helpers_than_it_needs() {
    let spawner = Spawner::start();
    let processors = std::thread::available_parallelism().unwrap().get();
    let most = 16 + 2 * processors;
    let asked = (0..most + 100).map(|_| spawner.helper(GAMES, 0));
    let (helpers, refused): (Vec<_>, Vec<_>) = asked.partition(Result::is_ok);
    assert_eq!(helpers.len(), most);
    for why in refused {
        let why = why.unwrap_err();
        assert!(why.starts_with("too many helpers run"), "{why}");
    }
    // Other routes and users have their own limits.
    assert!(spawner.helper(GAMES, WARM).is_ok() && spawner.helper(NOBODY, 1).is_ok());
    drop(helpers);
    wait_until("room for another helper", || {
        spawner.helper(GAMES, 0).is_ok()
    });
}

fn a_helper_starts_what_is_configured_only() {
    let spawner = Spawner::start();
    let helper = spawner.helper(GAMES, 0).unwrap();
    let echo = spawner.path("games/echo");
    let (report, said) = start(
        &helper,
        0,
        &[&echo, b"PATH=/evil", b"FOO=evil", b"HTTP_X=1"],
    );
    assert_eq!(
        (&*report, &*said),
        ("started", "5 /usr/local/bin:/usr/bin:/bin bar  1\n")
    );
    // Configured variables have their values even if the order omits them.
    let (_, said) = start(&helper, 0, &[&echo]);
    assert_eq!(said, "5 /usr/local/bin:/usr/bin:/bin bar  \n");
    let theirs = spawner.path("own/man");
    let ours = spawner.path("games/../own/man");
    for (args, strings, why) in [
        (0, &[&b"/bin/sh"[..]][..], "is not below"),
        (0, &[&theirs], "is not below"),
        (0, &[&ours], "is not below"),
        (0, &[b"echo"], "is not below"),
        (0, &[&echo, b"LD_PRELOAD=/evil.so"], "may not be set"),
        (0, &[&echo, b"HTTP_PROXY=evil"], "may not be set"),
        (0, &[&echo, b"=x"], "closed"),
        (0, &[&echo, b"HTTP_X=1", b"HTTP_X=2"], "closed"),
        (
            0,
            &[&echo, b"REDIRECT_URL=/x", b"PATH_INFO=/y"],
            "may not be set",
        ),
        (
            0,
            &[
                &echo,
                b"PATH_TRANSLATED=/proc/self/fd/0",
                b"REDIRECT_URL=/x",
            ],
            "may not be set",
        ),
        (1, &[&echo, b"word"], "takes no arguments"),
        (2, &[&echo, b"word"], "closed"),
    ] {
        let (report, said) = start(&helper, args, strings);
        assert!(report.contains(why) && said.is_empty(), "{report} {said}");
    }
    // PHP runs the file of this variable.
    let named = spawner.path("games/named");
    let (_, said) = start(
        &helper,
        0,
        &[
            &named,
            b"SCRIPT_FILENAME=/proc/self/fd/0",
            b"REDIRECT_URL=/x",
        ],
    );
    assert_eq!(said.as_bytes(), [&named[..], b" /x\n"].concat());
    // A file of root, started for another user.
    let nobodys = spawner.helper(NOBODY, 1).unwrap();
    let (report, said) = start(&nobodys, 0, &[&spawner.path("own/root")]);
    assert!(
        report.contains("can run only as that user") && said.is_empty(),
        "{report}"
    );
    let (report, _) = start(&nobodys, 0, &[&spawner.path("own/man")]);
    assert!(
        report.contains(&format!("belongs to the user {MAN}")),
        "{report}"
    );
    let (report, said) = start(&nobodys, 0, &[&spawner.path("own/nobody")]);
    assert!(
        report == "started" && said.contains("65534"),
        "{report} {said}"
    );
}

/// Orders a template. Returns the helper's first report and the template's socket.
fn load(helper: &OwnedFd, program: &[u8], modules: &[u8]) -> (String, OwnedFd) {
    let since = [&u64::MAX.to_ne_bytes()[..], &0u32.to_ne_bytes()].concat();
    let bytes = [&[0; 8][..], b"TM", &since, program, b"\0", modules].concat();
    let (ours, theirs) = pair();
    let null = std::fs::File::open("/dev/null").unwrap();
    let fds = [null.as_fd(), null.as_fd(), null.as_fd(), theirs.as_fd()];
    send(helper, &bytes, &fds);
    drop(theirs);
    let (said, _) = receive(&ours);
    (String::from_utf8_lossy(&said).into_owned(), ours)
}

/// Requests a template's next child. Returns the report about the child and the child's output.
fn ask_template(template: &OwnedFd, strings: &[&[u8]]) -> (String, String) {
    let (ours, theirs) = pair();
    send(template, b"12345678C", &[theirs.as_fd()]);
    drop(theirs);
    assert_eq!(receive(&ours).0, b"W");
    let mut bytes = [b"S\x01", LATE, b"\0\0"].concat();
    strings
        .iter()
        .for_each(|s| bytes.extend([*s, b"\0"].concat()));
    let (mut out, to) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    send(&ours, &bytes, &[null.as_fd(), to.as_fd(), to.as_fd()]);
    drop(to);
    let (report, _) = receive(&ours);
    let mut written = String::new();
    out.read_to_string(&mut written).unwrap();
    (String::from_utf8_lossy(&report).into_owned(), written)
}

fn a_helper_loads_what_is_configured_only() {
    let spawner = Spawner::start();
    let loaded = spawner.path("games/loaded");
    let cold = spawner.helper(GAMES, 0).unwrap();
    assert!(load(&cold, &loaded, b"").0.contains("start cold"));
    let helper = spawner.helper(GAMES, WARM).unwrap();
    for (program, why) in [
        (&b"/usr/bin/python3"[..], "is not below"),
        (&spawner.path("own/man"), "is not below"),
        (&spawner.path("games/../own/man"), "is not below"),
        (&spawner.path("games/none"), "cannot be examined"),
        (&spawner.path("games/echo"), "E\0"),
    ] {
        let (said, _) = load(&helper, program, b"");
        assert!(said.starts_with('E') && said.contains(why), "{said}");
    }
    // Modules count only if the helper itself finds that the program searches for them there.
    std::fs::write(
        spawner.site.path("games/planted.py"),
        "open('../marks/planted', 'w')",
    )
    .unwrap();
    own(&spawner.site, "games/planted.py", GAMES);
    let (said, template) = load(&helper, &loaded, b"planted\nos;exit()\n../planted");
    assert!(said.starts_with('P'), "{said}");
    while receive(&template).0[0] != b'R' {}
    let echo = spawner.path("games/echo");
    let ask = |strings: &[&[u8]]| ask_template(&template, strings);
    for (strings, why) in [
        (&[&echo[..]][..], "of another program"),
        (&[b"/usr/bin/python3"], "is not below"),
        (&[&loaded, b"LD_PRELOAD=/evil.so"], "may not be set"),
        (&[&loaded, b"PYTHONPATH=/evil"], "may not be set"),
        (&[&loaded, b"HTTP_PROXY=evil"], "may not be set"),
        (&[&loaded, b"no variable"], ""),
    ] {
        let (report, said) = ask(strings);
        assert!(
            !report.starts_with('S') && report.contains(why) && said.is_empty(),
            "{report} {said}"
        );
    }
    let (report, said) = ask(&[&loaded, b"PATH=/evil", b"FOO=evil", b"HTTP_X=1"]);
    assert!(report.starts_with('S'), "{report}");
    assert!(
        said.ends_with("warm 5 /usr/local/bin:/usr/bin:/bin bar 1"),
        "{said}"
    );
    assert!(!spawner.site.path("marks/planted").exists());
}

fn temporary(site: &Site) -> std::path::PathBuf {
    site.path("temporary")
}

/// Returns how many random messages spawner and helper each get; GALGO_TEST_MESSAGES changes the number.
fn messages() -> usize {
    let asked = std::env::var("GALGO_TEST_MESSAGES").ok();
    asked.map_or(1_000_000, |asked| asked.parse().unwrap())
}

fn messages_without_sense_do_nothing() {
    let spawner = Spawner::start();
    let helper = spawner.helper(GAMES, 0).unwrap();
    let echo = [&spawner.path("games/echo")[..], b"\0HTTP_X=1\0"].concat();
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let null = std::fs::File::open("/dev/null").unwrap();
    for round in 0..messages() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let mut noise: Vec<u8> = (0..x % 40).map(|n| (x >> (n % 56)) as u8).collect();
        if x & 3 == 0 {
            // The noise has the length of a real order and an existing kind.
            noise = [&1u32.to_ne_bytes()[..], &[(x >> 9) as u8; 12]].concat();
        }
        let (said, fd) = spawner.ask(&noise, &[]);
        assert!(said.starts_with(b"N") && fd.is_none(), "{said:?}");
        // A message without a number and a deadline, or past its deadline, gets no answer.
        if !noise.is_empty() {
            noise.truncate(11);
            send(&spawner.socket, &noise, &[]);
            send(&spawner.socket, &[0; 32], &[]);
        }
        // Too few or too many descriptors, descriptors that are no sockets, or an invalid count of arguments.
        let letter = [b'S', b'T', (x >> 48) as u8][round % 3];
        let number = (x >> 33).to_ne_bytes();
        let args = (x as u16).to_ne_bytes();
        let mut bytes = [&number[..], &[letter, 1], LATE, &args, &echo].concat();
        let at = (x >> 16) as usize % bytes.len();
        bytes[at] ^= (x >> 40) as u8 | 1;
        let fds = [null.as_fd(); 8];
        send(&helper, &bytes, &fds[..round % 8]);
    }
    let (report, _) = start(&helper, 0, &[&spawner.path("games/echo")]);
    assert_eq!(report, "started");
    assert!(spawner.helper(GAMES, 0).is_ok(), "the spawner is there");
    drop(helper);
    // The spawner has released all that it held.
    wait_until("the end of the helpers", || {
        children(spawner.process.id()).is_empty()
    });
}
