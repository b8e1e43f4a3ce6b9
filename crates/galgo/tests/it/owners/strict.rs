//! Accesses that `sandbox = "strict"` and a sandbox table forbid to programs, and accesses that still work.

pub(super) mod links;
pub(super) mod refused;
pub(super) mod replaced;
pub(super) mod said;

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
};

use crate::{
    harness::{list, needs_root, new_site, skip},
    secrets::{ATTACK, WITHOUT_LANDLOCK},
};
use galgo_testkit::{
    Server, Site,
    process::{children, command_line, pids},
    wait_until,
};

use super::{GAMES, apart, helpers, needs_a_lasting_place, own, uid_of};

list![
    nothing_else_is_seen,
    a_table_gives_more,
    networks,
    calls_that_are_not_listed_are_refused,
    places_for_temporary_files_are_its_own,
    folders_in_places_for_temporary_files,
    processes_are_hidden,
    renames_work,
    without_root_it_holds_too,
    without_landlock_it_is_said,
    a_helper_that_dies_takes_its_processes_along,
    the_servers_own_programs_need_no_owner,
];

/// Tries each action in the query, and prints one word about the result of each.
const TRIES: &str = r#"#!/usr/bin/python3
import ctypes, errno, os, socket, sys
def said(what):
    try:
        return what()
    except OSError as e:
        return errno.errorcode[e.errno]
def file(path):
    with open(path, 'rb') as f: f.read(1)
    return 'open'
def put(path):
    with open(path, 'w') as f: f.write('x')
    return 'written'
def run(path):
    pid = os.fork()
    if pid == 0:
        try: os.execv(path, [path])
        except OSError as e: os._exit(e.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return errno.errorcode.get(status, 'ran') if status else 'ran'
def tcp(port):
    with socket.create_connection(('127.0.0.1', int(port)), 5): return 'connected'
def listen(port):
    with socket.create_server(('127.0.0.1', int(port))) as s: return 'listens'
def loop(_):
    with socket.create_server(('127.0.0.1', 0)) as s:
        with socket.create_connection(s.getsockname(), 5): return 'connected'
def udp(_):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: return 'made'
def unbound(_):
    with socket.socket() as s: s.listen(); return 'listens'
def mptcp(_):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as s: return 'made'
def raw(family):
    with socket.socket(int(family), socket.SOCK_RAW, socket.IPPROTO_ICMP) as s: return 'made'
def packet(_):
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as s: return 'made'
def unix(path):
    with socket.socket(socket.AF_UNIX) as s: s.connect(path)
    return 'connected'
def call(number):
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.syscall(int(number), -1, 0, 0, 0, 0, 0)
    return 'done' if done != -1 else errno.errorcode[ctypes.get_errno()]
def rename(folder):
    os.makedirs(folder + '/a', exist_ok=True); os.makedirs(folder + '/b', exist_ok=True)
    put(folder + '/a/f'); os.rename(folder + '/a/f', folder + '/b/f')
    return 'renamed'
def names(folder): return ','.join(sorted(os.listdir(folder))) or 'empty'
def look(pid): return 'seen' if os.path.exists('/proc/' + pid) else 'hidden'
def stay(_):
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 99); import time; time.sleep(1000)
            os._exit(0)
    return 'stays'
def sleep(_):
    import time; time.sleep(1000)
print('Content-Type: text/plain\n')
for word in os.environ['QUERY_STRING'].split('&'):
    what, _, of = word.partition('=')
    print(what, said(lambda: globals()[what](of)), flush=True)
"#;

/// The server runs as `nobody`. `/strict/` is strict and `/table/` has a table, both as the server's user; `/games/` runs as
/// another user.
fn site(table: &str) -> Site {
    files()
        .config("user = \"nobody\"\n[defaults]\nstart = \"cold\"\n")
        .config("[[route]]\npath = \"/strict/\"\ncgi = \"strict\"\nsandbox = \"strict\"\n")
        .config(&format!(
            "[[route]]\npath = \"/table/\"\ncgi = \"strict\"\nsandbox = {table}\n"
        ))
        .config("[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\nsandbox = \"strict\"\n")
}

fn files() -> Site {
    needs_root();
    let site = new_site();
    if !site.is_reachable() {
        skip!("others may not reach {}", site.folder().display());
    }
    let site = site
        .file("strict/p", TRIES, 0o755)
        .compiled("strict/attack", ATTACK, &[])
        .file("games/p", TRIES, 0o755)
        .file("secret", "of the server", 0o644)
        .file("data/kept", "", 0o666);
    for name in ["games", "games/p"] {
        own(&site, name, GAMES);
    }
    super::mode(&site, "data", 0o777);
    super::mode(&site, ".", 0o755);
    site
}

fn says(server: &Server, path: &str, tries: &[String]) -> Vec<String> {
    let said = server.get(&format!("{path}?{}", tries.join("&")));
    assert_eq!(said.status, 200, "{}", server.errors());
    let word = |line: &str| line.split_once(' ').unwrap().1.to_owned();
    let said: Vec<_> = said.text().lines().map(word).collect();
    assert_eq!(said.len(), tries.len(), "{}", server.errors());
    said
}

fn at(site: &Site, what: &str, name: &str) -> String {
    format!(
        "{what}={}",
        site.path(name).canonicalize().unwrap().display()
    )
}

fn nothing_else_is_seen() {
    needs_a_lasting_place();
    let server = site("\"strict\"").start();
    let tries = [
        at(&server.site, "file", "secret"),
        at(&server.site, "put", "data/kept"),
        at(&server.site, "file", "galgo.toml"),
        at(&server.site, "put", "strict/p"),
        "file=/etc/shadow".into(),
        "file=/etc/fstab".into(),
        "names=/root".into(),
        "names=/".into(),
        "run=/usr/bin/true".into(),
        "file=/etc/ld.so.cache".into(),
        "put=/dev/null".into(),
        at(&server.site, "file", "strict/p"),
    ];
    let want = [
        "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "ran",
        "open", "written", "open",
    ];
    assert_eq!(says(&server, "/strict/p", &tries), want);
    let tries = [tries[0].clone(), tries[2].clone()];
    assert_eq!(says(&server, "/games/p", &tries), ["EACCES"; 2]);
}

fn a_table_gives_more() {
    needs_a_lasting_place();
    let site = site("{ read = [\"secret\"], write = [\"data\"], exec = [\"tool\"] }");
    let site = site.file("tool", "#!/bin/sh\n", 0o755);
    let server = site.start();
    let (tool, new) = (
        at(&server.site, "run", "tool"),
        format!("{}/new", at(&server.site, "put", "data")),
    );
    let tries = [
        at(&server.site, "file", "secret"),
        at(&server.site, "put", "data/kept"),
        new,
        tool.clone(),
        at(&server.site, "put", "secret"),
    ];
    let want = ["open", "written", "written", "ran", "EACCES"];
    assert_eq!(says(&server, "/table/p", &tries), want);
    assert_eq!(says(&server, "/strict/p", &[tool]), ["EACCES"]);
}

fn networks() {
    const PROTOCOL: &str = "EPROTONOSUPPORT";
    for (network, want) in [
        ("none", ["EACCES"; 6]),
        (
            "loopback",
            [
                "ECONNREFUSED",
                "listens",
                "listens",
                "connected",
                "made",
                PROTOCOL,
            ],
        ),
        (
            "out",
            ["connected", "EACCES", "EACCES", "EACCES", "made", PROTOCOL],
        ),
        (
            "all",
            [
                "connected",
                "listens",
                "listens",
                "connected",
                "made",
                PROTOCOL,
            ],
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = site(&format!("{{ network = {network:?} }}")).start();
        let tries = [
            format!("tcp={port}"),
            "listen=0".into(),
            "unbound".into(),
            "loop".into(),
            "udp".into(),
            "mptcp".into(),
        ];
        assert_eq!(says(&server, "/table/p", &tries), want, "{network}");
        let others = ["packet", "raw=2", "raw=10"].map(str::to_owned);
        assert_eq!(
            says(&server, "/table/p", &others),
            ["EACCES"; 3],
            "{network}"
        );
    }
}

fn calls_that_are_not_listed_are_refused() {
    let server = site("\"strict\"").start();
    // ptrace, and setns with it, are refused to all programs; lookup_dcookie, and a call that does not exist, are on no list.
    let calls = [libc_number("ptrace"), libc_number("setns"), 212, 100_000];
    let tries = calls.map(|number| format!("call={number}"));
    let said = says(&server, "/strict/p", &tries);
    assert_eq!(said, ["EPERM", "EPERM", "ENOSYS", "ENOSYS"]);
}

fn libc_number(name: &str) -> i64 {
    match (name, cfg!(target_arch = "x86_64")) {
        ("ptrace", true) => 101,
        ("ptrace", false) => 117,
        ("setns", true) => 308,
        _ => 268,
    }
}

fn places_for_temporary_files_are_its_own() {
    let server = site("\"strict\"").start();
    let mark = format!("/tmp/galgo-test-{}", server.pid());
    fs::write(&mark, "").unwrap();
    // These folders all show the same files.
    let name = format!("galgo-test-put-{}", server.pid());
    let put = format!("/tmp/{name}");
    let tries = [
        format!("file={mark}"),
        format!("put={put}"),
        format!("file=/var/tmp/{name}"),
        format!("file=/dev/shm/{name}"),
        format!("run={put}"),
    ];
    let said = says(&server, "/strict/p", &tries);
    assert_eq!(said, ["ENOENT", "written", "open", "open", "EACCES"]);
    fs::remove_file(&mark).unwrap();
    assert!(!fs::exists(&put).unwrap());
    // Another user has other files.
    assert_eq!(
        says(&server, "/games/p", &[format!("file={put}")]),
        ["ENOENT"]
    );
    // Any user may connect to this socket of a service.
    let path = format!("/run/galgo-test-{}", server.pid());
    let listens = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(
        says(&server, "/strict/p", &[format!("unix={path}")]),
        ["ENOENT"]
    );
    drop(listens);
    fs::remove_file(path).unwrap();
}

/// A listed folder can be found even if its parent folder is empty in the sandbox.
fn folders_in_places_for_temporary_files() {
    for parent in ["/tmp", "/run", "/dev/shm"] {
        let site = Site::within(Path::new(parent), env!("CARGO_BIN_EXE_galgo"));
        let site = site
            .file("strict/p", TRIES, 0o755)
            .file("data/kept", "", 0o666)
            .config("user = \"nobody\"\n[defaults]\nstart = \"cold\"\n[[route]]\npath = \"/strict/\"\ncgi = \"strict\"\n\
                sandbox = { write = [\"data\"], read = [\"data/kept\"] }");
        super::mode(&site, ".", 0o755);
        super::mode(&site, "data", 0o777);
        let server = site.arguments(&["--listen", "127.0.0.1:0"]).start();
        let tries = [
            at(&server.site, "put", "data/kept"),
            at(&server.site, "file", "galgo.toml"),
        ];
        let said = says(&server, "/strict/p", &tries);
        assert_eq!(said, ["written", "ENOENT"], "{parent}");
        assert_eq!(fs::read_to_string(server.path("data/kept")).unwrap(), "x");
    }
}

fn processes_are_hidden() {
    let server = site("\"strict\"").start();
    let tries = [
        "look=self".into(),
        format!("look={}", server.pid()),
        "look=1".into(),
    ];
    let said = says(&server, "/strict/p", &tries);
    assert_eq!(said, ["seen", "hidden", "hidden"]);
    let numbers = says(&server, "/strict/p", &["names=/proc".into()]);
    let seen: Vec<&str> = numbers[0]
        .split(',')
        .filter(|n| n.parse::<u32>().is_ok())
        .collect();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

fn renames_work() {
    let server = site("{ write = [\"data\"] }").start();
    let rename = [at(&server.site, "rename", "data")];
    assert_eq!(says(&server, "/table/p", &rename), ["renamed"]);
    assert_eq!(
        says(&server, "/table/p", &["rename=/tmp".into()]),
        ["renamed"]
    );
}

/// Starts the server without the right to make namespaces.
fn without_root_it_holds_too() {
    let site = files().config(
        "[defaults]\nstart = \"cold\"\n[[route]]\npath = \"/table/\"\ncgi = \"strict\"\n\
         sandbox = { write = [\"data\"], network = \"loopback\" }\n",
    );
    own(&site, ".", 65534);
    let server = site.through(&UNPRIVILEGED).start();
    let tries = [
        at(&server.site, "file", "secret"),
        at(&server.site, "put", "data/kept"),
        "put=/tmp/galgo-test-strict".into(),
        "names=/proc".into(),
        "udp".into(),
        "run=/usr/bin/true".into(),
        at(&server.site, "rename", "data"),
    ];
    let want = [
        "EACCES", "written", "EACCES", "EACCES", "EACCES", "ran", "renamed",
    ];
    assert_eq!(says(&server, "/table/p", &tries), want);
    server.says("network = \"loopback\" needs root");
}

pub(super) const UNPRIVILEGED: [&str; 4] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

fn without_landlock_it_is_said() {
    let site = site("{ write = [\"data\"] }").compiled("without", WITHOUT_LANDLOCK, &[]);
    let without = site.path("without");
    let server = site.through(&[without.to_str().unwrap()]).start();
    server.says("a strict sandbox without Landlock");
    let tries = [
        at(&server.site, "put", "data/kept"),
        "udp".into(),
        "call=212".into(),
        "look=1".into(),
        format!("look={}", server.pid()),
    ];
    let said = says(&server, "/table/p", &tries);
    // The program sees its own helper as process 1, run by the same user, and no other process.
    assert_eq!(said[..3], ["written", "EACCES", "ENOSYS"]);
    assert_eq!(said[4], "hidden");
}

fn a_helper_that_dies_takes_its_processes_along() {
    let server = site("\"strict\"").start();
    let mut client = server.connect();
    client.get("/games/p?stay&sleep");
    assert_eq!(client.head().status, 200, "{}", server.errors());
    let said = client.until(b"stay stays");
    assert!(said.is_some(), "{}", server.errors());
    let has_programs = |pid: &u32| !children(*pid).is_empty();
    let helper = helpers(&server).into_iter().find(has_programs).unwrap();
    assert_eq!(uid_of(helper), apart(5));
    super::kill(helper);
    let folder = server.path("games");
    let is_left = |pid: u32| command_line(pid).contains(&*folder.to_string_lossy());
    wait_until("the end of all that it has started", || {
        !pids().any(is_left)
    });
    let tries = ["look=self".into()];
    assert_eq!(says(&server, "/games/p", &tries), ["seen"]);
}

fn the_servers_own_programs_need_no_owner() {
    let site = site("\"strict\"");
    own(&site, "strict/p", 6);
    super::mode(&site, "strict", 0o777);
    std::os::unix::fs::symlink("p", site.path("strict/link")).unwrap();
    let server = site.start();
    let tries = ["look=self".to_owned()];
    assert_eq!(says(&server, "/strict/p", &tries), ["seen"]);
    assert_eq!(says(&server, "/strict/link", &tries), ["seen"]);
    // The programs still cannot reach the server.
    let met = server
        .get(&format!("/strict/attack?{}", server.pid()))
        .text();
    let line = met
        .lines()
        .find(|l| l.starts_with(&format!("{} ", server.pid())));
    assert!(
        line.is_some_and(|l| l
            .split(' ')
            .skip(1)
            .all(|e| matches!(e, "1" | "3" | "13" | "38" | "2"))),
        "{met}"
    );
}
