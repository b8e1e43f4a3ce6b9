//! The table `attack x configuration x result` of docs/security.md: made here, and held against what stands there. To write it
//! anew, run the test with GALGO_WRITE_TABLE=1.

mod modules;

use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    ops::Range,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
};

use crate::harness::{list, new_site, skip};
use galgo_testkit::{
    Client, Server, Site, eventually,
    process::{self, command_line, pids},
    wait_until,
};
use rustix::process::Signal;

use super::{
    GAMES, MAN, NOBODY, helpers, mode, needs_a_lasting_place, own, spawner, strict::UNPRIVILEGED,
    uid_of, workers,
};

list![the_table_is_what_happens];

/// Makes each attack, and says in a line what came of it: `refused`, or what was done.
const ATTACKS: &str = r#"#!/usr/bin/python3
import ctypes, errno, os, platform, socket, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
of = dict(word.split('=', 1) for word in os.environ['QUERY_STRING'].split('&'))
PC = platform.machine() == 'x86_64'
PTRACE, WRITEV, UNSHARE = (101, 311, 272) if PC else (117, 271, 97)
PIDFD_OPEN, PIDFD_GETFD = 434, 438
NEWUSER, SEIZE = 0x10000000, 0x4206
NO = {errno.EPERM, errno.EACCES, errno.ESRCH, errno.ENOENT, errno.ENOSYS, errno.EBADF, errno.EROFS}
def call(number, *args):
    got = libc.syscall(number, *[ctypes.c_ulong(a & 0xffffffffffffffff) for a in args])
    if got == -1: raise OSError(ctypes.get_errno(), '')
    return got
def said(what, *args):
    try: what(*args)
    except OSError as e: return e.errno not in NO
    return True
def read(path):
    with open(path, 'rb') as f:
        if not f.read(1): raise OSError(errno.EACCES, '')
def put(path):
    with open(path, 'r+b' if os.path.exists(path) else 'wb') as f: f.write(b'#')
def write(pid):
    text = ctypes.create_string_buffer(b'EVIL')
    part = struct.pack('QQ', ctypes.addressof(text), 4)
    part = ctypes.create_string_buffer(part)
    call(WRITEV, pid, ctypes.addressof(part), 1, ctypes.addressof(part), 1, 0)
def process(pid):
    ways = [('signals', lambda: os.kill(pid, 18)), ('environment', lambda: read(f'/proc/{pid}/environ')),
            ('memory', lambda: open(f'/proc/{pid}/mem', 'r+b').close()), ('traces', lambda: call(PTRACE, SEIZE, pid, 0, 0)),
            ('writes', lambda: write(pid)), ('descriptors', lambda: call(PIDFD_GETFD, call(PIDFD_OPEN, pid, 0), 0, 0))]
    return ', '.join(name for name, way in ways if said(way)) or 'refused'
def done(what, *args): return 'done' if said(what, *args) else 'refused'
def connect(): socket.create_connection(('127.0.0.1', int(of['port'])), 5).close()
def listen(): socket.create_server(('0.0.0.0', 0)).close()
def abstract():
    with socket.socket(socket.AF_UNIX) as s: s.connect('\0' + of['abstract'])
def is_open(fd):
    try: return os.fstat(fd) is not None
    except OSError: return False
def look():
    if of['server'] not in os.listdir('/proc'): raise OSError(errno.ENOENT, '')
def gain():
    said = subprocess.run([of['rooted'], '-u'], capture_output=True)
    if said.stdout != b'0\n': raise OSError(errno.EPERM, '')
def stay():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            libc.prctl(1, 0)
            libc.signal(15, 1)
            os.closerange(0, 64)
            os.execv('/bin/sleep', ['sleep', of['stays']])
        os._exit(0)
    os.wait()
inherited = [fd for fd in range(3, 1024) if is_open(fd)]
print('Content-Type: text/plain\n')
for name in ['server', 'spawner', 'helper', 'other', 'same']: print(process(int(of[name])))
for path in ['users', 'servers', 'open']: print(done(read, of[path]))
for path in [os.path.realpath(of['program']), of['shared'], of['left']]: print(done(put, path))
for what in [connect, listen, abstract, look]: print(done(what))
print(done(call, UNSHARE, NEWUSER))
print(done(gain))
print('some' if inherited else 'none')
stay()
"#;

const ROWS: [&str; 18] = [
    "signals, looks into, traces or changes the server, or takes a descriptor of it",
    "the spawner",
    "a helper",
    "a program of another user",
    "another program of its own user",
    "reads a file that another user alone may read",
    "reads a file that the server's user alone may read",
    "reads a file outside of its folder that everybody may read",
    "changes its own program, which belongs to its user",
    "changes a file outside of its folder that everybody may change",
    "leaves a file in /tmp for others",
    "connects to a port of this machine",
    "listens on a TCP port",
    "connects to an abstract socket of another process",
    "sees the machine's processes",
    "makes a user namespace",
    "gains root's rights by a set-user-ID program",
    "has descriptors beside 0, 1 and 2",
];
/// What WASI has no call for.
const NO_CALL: &str = "no call";
const LAST: &str = "keeps a process running, in a session of its own, deaf to TERM";

/// A configuration, and the path that answers by it.
const COLUMNS: [(&str, &str); 14] = [
    ("`cgi`", "/cgi-bin/attacks"),
    ("warm", "/warm/attacks"),
    ("strict", "/cgi-strict/attacks"),
    ("`user`", "/games/attacks"),
    ("`user`, strict", "/games-strict/attacks"),
    ("warm, `user`", "/games-warm/attacks"),
    ("warm, `user`, strict", "/games-warm-strict/attacks"),
    ("worker, `user`", "/worker"),
    ("worker, `user`, strict", "/worker-strict"),
    ("module", "/cgi-bin/attacks.wasm"),
    ("module, `user`", "/games/attacks.wasm"),
    ("module, `user`, strict", "/games-strict/attacks.wasm"),
    ("without root", "/cgi-bin/attacks"),
    ("without root, strict", "/cgi-strict/attacks"),
];
/// Of those the columns whose server root has started.
const AS_ROOT: usize = 12;

const STRICT: &str =
    "[[route]]\npath = \"/cgi-strict/\"\ncgi = \"cgi-bin\"\nsandbox = \"strict\"\n";

/// A server that an ordinary user has started: the one that the other server becomes.
fn without_root() -> Server {
    let site = new_site()
        .compiled("cgi-bin/attack", crate::secrets::ATTACK, &[])
        .file("cgi-bin/attacks", ATTACKS, 0o755)
        .config("[defaults]\nstart = \"cold\"\n")
        .config(STRICT);
    for name in [".", "cgi-bin/attacks"] {
        own(&site, name, NOBODY);
    }
    mode(&site, ".", 0o755);
    site.through(&UNPRIVILEGED).start()
}

fn site() -> Site {
    let worker = |path: &str, key: &str| {
        format!(
            "[[route]]\npath = {path:?}\nuser = \"games\"\n{key}fastcgi = {{ run = [\"games/app\"], workers = 1 }}\n"
        )
    };
    let site = super::site()
        .compiled("games/app", workers::SHELL, &[])
        .compiled("own/attack", crate::secrets::ATTACK, &[])
        .compiled("cgi-bin/attack", crate::secrets::ATTACK, &[])
        .file("cgi-bin/attacks", ATTACKS, 0o755)
        .file("games/attacks", ATTACKS, 0o755)
        .file("users", "of man", 0o600)
        .file("servers", "of the server", 0o600)
        .file("open", "for all", 0o644)
        .file("shared", "for all", 0o666)
        .config("[[route]]\npath = \"/warm/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n")
        .config("[[route]]\npath = \"/man/\"\ncgi = \"own\"\nuser = \"man\"\n")
        .config(STRICT)
        .config("[[route]]\npath = \"/games-strict/\"\ncgi = \"games\"\nuser = \"games\"\nsandbox = \"strict\"\npreopen_rw = { \"/data\" = \"data\" }\n")
        .config("[[route]]\npath = \"/games-warm/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\n")
        .config("[[route]]\npath = \"/games-warm-strict/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\nsandbox = \"strict\"\n")
        .config("[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\npreopen_rw = { \"/data\" = \"data\" }\n")
        .config("[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\npreopen_rw = { \"/data\" = \"data\" }\n")
        .file("data/note", "x", 0o644)
        .config(&worker("/worker", ""))
        .config(&worker("/worker-strict", "sandbox = \"strict\"\n"));
    for (name, uid) in [
        ("games/app", GAMES),
        ("games/attacks", GAMES),
        ("cgi-bin/attacks", NOBODY),
        ("own", MAN),
        ("own/attack", MAN),
        ("users", MAN),
        ("servers", NOBODY),
    ] {
        own(&site, name, uid);
    }
    mode(&site, "shared", 0o666);
    mode(&site, "data", 0o777);
    fs::copy("/usr/bin/id", site.path("rooted")).unwrap();
    mode(&site, "rooted", 0o4755);
    site.waiting()
}

/// A program that runs as long as the client is there, and its process.
fn stays(server: &Server, path: &str) -> (Client, u32) {
    let mut client = server.connect();
    client.get(&format!("{path}?stay"));
    assert_eq!(client.head().status, 200, "{}", server.errors());
    let pid = String::from_utf8(client.chunk().unwrap()).unwrap();
    (client, pid.trim().parse().unwrap())
}

fn with_argument(argument: &str) -> Vec<u32> {
    pids()
        .filter(|pid| command_line(*pid).contains(argument))
        .collect()
}

/// What came of each attack in one configuration.
fn column(server: &Server, at: usize, told: &str) -> Vec<String> {
    let (_, path) = COLUMNS[at];
    if is_module(at) {
        return modules::column(server, at, told);
    }
    let stays = mark(server, at);
    let left = format!("/tmp/galgo-left-{stays}");
    let told = format!("{told}&stays={stays}&left={left}");
    let of_server = ["/cgi", "/warm"].iter().any(|own| path.starts_with(own));
    let folder = if of_server { "cgi-bin" } else { "games" };
    let program = server.path(folder).join("attacks");
    let told = format!("{told}&program={}", program.display());
    let said = match is_worker(at) {
        false => {
            let said = server.get(&format!("{path}?{told}")).text();
            // Templates are made of the first requests of their kind, which start cold unless they wait.
            assert!(server.errors().contains("attacks: loaded") || !path.contains("warm"));
            said
        }
        true => {
            let mut client = server.connect();
            let command = format!("QUERY_STRING='{told}' ./attacks | tail -n +3");
            client.post(path, command.as_bytes());
            client.reply().text()
        }
    };
    let mut said: Vec<String> = said.lines().map(String::from).collect();
    assert_eq!(
        said.len(),
        ROWS.len(),
        "{path} {said:?} {}",
        server.errors()
    );
    if fs::remove_file(left).is_err() {
        let at = ROWS.iter().position(|row| row.contains("/tmp")).unwrap();
        if said[at] == "done" {
            said[at] = "in a /tmp of its own".into();
        }
    }
    said
}

fn is_module(at: usize) -> bool {
    COLUMNS[at].1.ends_with(".wasm")
}

fn is_worker(at: usize) -> bool {
    COLUMNS[at].1.starts_with("/worker")
}

/// What is in the argument of the process that an attack leaves running.
fn mark(server: &Server, at: usize) -> String {
    format!("{}{at}", 1_000_000 + server.pid())
}

/// What becomes of the processes that were left running, in each configuration.
fn ends(server: &Server, columns: Range<usize>) -> Vec<&'static str> {
    let left = |at: usize| with_argument(&mark(server, at));
    for at in columns.clone().filter(|at| is_worker(*at)) {
        assert_eq!(left(at).len(), 1, "{}", COLUMNS[at].0);
    }
    let app = server.path("games/app").display().to_string();
    for worker in pids().filter(|pid| command_line(*pid).contains(&app)) {
        // It may be about to end by itself, as the next one begins.
        let _ = rustix::process::kill_process(process::pid(worker), Signal::KILL);
    }
    wait_until("the end of what was left running", || {
        columns.clone().all(|at| left(at).is_empty())
    });
    let end = |at| match at {
        at if is_worker(at) => "ends with the worker",
        at if is_module(at) => NO_CALL,
        _ => "is ended",
    };
    columns.map(end).collect()
}

fn the_table_is_what_happens() {
    needs_a_lasting_place();
    if !galgo_spawn::keeps_apart().unwrap() {
        skip!("this kernel cannot keep programs apart");
    }
    let site = site();
    let at = |name: &str| {
        site.path(name)
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    };
    let files = ["users", "servers", "open", "shared", "rooted"];
    let files = files.map(|name| format!("{name}={}", at(name)));
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let port_number = port.local_addr().unwrap().port();
    let server = site.start();
    let name = format!("galgo-test-{}", server.pid());
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let (_man, man) = stays(&server, "/man/attack");
    let (_games, games) = stays(&server, "/games/attack");
    let (_nobody, nobody) = stays(&server, "/cgi-bin/attack");
    let told = |server: &Server, same: u32| {
        // A helper of a user whose programs are not in a PID namespace.
        let of_same = |pid: &u32| uid_of(*pid) == uid_of(same);
        let helper = eventually("a helper", || {
            let all = helpers(server);
            all.iter().copied().find(of_same).or(all.first().copied())
        });
        format!(
            "server={}&spawner={}&helper={helper}&same={same}&other={man}&port={port_number}&abstract={name}&{}",
            server.pid(),
            spawner(server),
            files.join("&")
        )
    };
    let of_server = |at: usize| ["`cgi`", "warm", "strict"].contains(&COLUMNS[at].0);
    let same = |at| if of_server(at) { nobody } else { games };
    let as_root = (0..AS_ROOT).map(|at| column(&server, at, &told(&server, same(at))));
    let mut columns: Vec<_> = as_root.collect();
    let plain = without_root();
    // The first request of a strict sandbox makes the helper.
    assert_eq!(plain.get("/cgi-strict/attack").status, 200);
    let (_own, own) = stays(&plain, "/cgi-bin/attack");
    columns.extend((AS_ROOT..COLUMNS.len()).map(|at| column(&plain, at, &told(&plain, own))));
    let mut last = ends(&server, 0..AS_ROOT);
    last.extend(ends(&plain, AS_ROOT..COLUMNS.len()));
    for (column, end) in columns.iter_mut().zip(last) {
        column.push(end.into());
    }
    compare(&table(&columns));
}

fn table(columns: &[Vec<String>]) -> String {
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    let mut table = format!(
        "| a program … | {names} |\n|{}\n",
        "---|".repeat(COLUMNS.len() + 1)
    );
    for (at, row) in ROWS.iter().chain([&LAST]).enumerate() {
        let results: Vec<_> = columns.iter().map(|column| &*column[at]).collect();
        writeln!(table, "| {row} | {} |", results.join(" | ")).unwrap();
    }
    table
}

/// With what stands in the documentation.
fn compare(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- made by owners::table -->\n").unwrap();
    let (there, after) = rest.split_once("<!-- end -->\n").unwrap();
    if std::env::var_os("GALGO_WRITE_TABLE").is_some() {
        let page = format!("{before}<!-- made by owners::table -->\n{table}<!-- end -->\n{after}");
        fs::write(path, page).unwrap();
        return;
    }
    assert_eq!(table, there, "docs/security.md says otherwise");
}
