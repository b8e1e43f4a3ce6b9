//! The same attacks by a module, as far as WASI has calls for them. One folder is opened for it, so that it has something to
//! begin with.

use std::fmt::Write as _;

use galgo_testkit::Server;

use super::{COLUMNS, GAMES, NO_CALL, NOBODY, ROWS, mark, own};
use crate::wasm::{host, programs, replace_in};

/// What an attack tries.
enum Way {
    /// Opening one of these files, to read or, if it is true, to write.
    Files(Vec<String>, bool),
    /// Finding an open descriptor behind the folder's.
    Descriptors,
    NoCall,
}

/// Leads out of the folder, if anything does.
fn ways_to(path: &str) -> Vec<String> {
    let up = "../".repeat(20);
    let relative = path.trim_start_matches('/');
    vec![
        path.to_owned(),
        format!("{up}{relative}"),
        format!("./{up}{relative}"),
    ]
}

/// Those of the rows, in their order; `told` is what a program is told.
fn ways(server: &Server, told: &str, program: &str, left: &str) -> Vec<Way> {
    let of = |name: &str| {
        let mut words = told.split('&').filter_map(|word| word.split_once('='));
        words.find(|(n, _)| *n == name).unwrap().1
    };
    let read = |path: &str| Way::Files(ways_to(path), false);
    let write = |path: &str| Way::Files(ways_to(path), true);
    let process = |name| {
        let files = ["environ", "mem", "maps", "root/etc/passwd"];
        let files = files.map(|file| ways_to(&format!("/proc/{}/{file}", of(name))));
        Way::Files(files.concat(), false)
    };
    let mut all: Vec<_> = ["server", "spawner", "helper", "other", "same"]
        .map(process)
        .into();
    all.extend(["users", "servers", "open"].map(|file| read(of(file))));
    let program = server.path(program).display().to_string();
    all.extend([write(&program), write(of("shared")), write(left)]);
    all.extend([Way::NoCall, Way::NoCall, Way::NoCall]);
    all.push(read(&format!("/proc/{}/status", of("server"))));
    all.extend([Way::NoCall, Way::NoCall, Way::Descriptors]);
    all
}

/// A module that says of each whether it went well.
fn module(ways: &[Way]) -> Vec<u8> {
    const CREATE: u32 = 1;
    const READ: u32 = 1 << 1;
    const WRITE: u32 = 1 << 6;
    let (mut start, mut data, mut at) = (
        String::from("(local $fd i32) (call $head)"),
        String::new(),
        2048,
    );
    for way in ways {
        match way {
            Way::NoCall => continue,
            Way::Files(files, writes) => {
                let (flags, rights) = if *writes { (CREATE, WRITE) } else { (0, READ) };
                start += "(call $verdict (i32.const 0)";
                for file in files {
                    let length = file.len();
                    write!(
                        start,
                        "(i32.eqz (call $open (i32.const 3) (i32.const 1) (i32.const {at}) (i32.const {length}) (i32.const {flags})
                           (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 12))) (i32.or)"
                    )
                    .unwrap();
                    write!(data, "(data (i32.const {at}) {file:?})").unwrap();
                    at += length;
                }
                start += ")";
            }
            Way::Descriptors => {
                start += "(local.set $fd (i32.const 4))
                    (block $found (loop $again
                      (br_if $found (i32.ne (i32.const 8) (call $read (local.get $fd) (i32.const 0) (i32.const 0) (i32.const 8))))
                      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
                      (br_if $again (i32.lt_u (local.get $fd) (i32.const 4096)))))
                    (call $verdict (i32.lt_u (local.get $fd) (i32.const 4096)))";
            }
        }
    }
    assert!(at < 60_000);
    programs::command(&start, &data)
}

/// Calls that programs make for what stands as [`NO_CALL`], by the names that they would have.
const CALLS: [&str; 5] = [
    "sock_open",
    "sock_connect",
    "sock_listen",
    "proc_fork",
    "proc_exec",
];

pub(super) fn column(server: &Server, at: usize, told: &str) -> Vec<String> {
    host();
    let (_, path) = COLUMNS[at];
    let (folder, user) = match path.starts_with("/cgi-bin") {
        true => ("cgi-bin", NOBODY),
        false => ("games", GAMES),
    };
    let put = |name: &str, module: &[u8]| {
        replace_in(server, folder, name, module);
        own(&server.site, &format!("{folder}/{name}"), user);
    };
    let left = format!("/tmp/galgo-left-{}", mark(server, at));
    let own_file = format!("{folder}/attacks.wasm");
    let mut ways = ways(server, told, &own_file, &left);
    assert_eq!(ways.len(), ROWS.len());
    // What it begins with is there: else nothing would be found anywhere.
    ways.push(Way::Files(vec!["note".into()], false));
    put("attacks.wasm", &module(&ways));
    let reply = server.get(path);
    let said = reply.text();
    let mut said = said.lines();
    assert_eq!(reply.status, 200, "{path} {}", server.errors());
    let results: Vec<String> = ways
        .iter()
        .map(|way| match (way, matches!(way, Way::NoCall)) {
            (_, true) => NO_CALL.to_owned(),
            (Way::Descriptors, _) => word(said.next(), ["some", "none"]),
            _ => word(said.next(), ["done", "refused"]),
        })
        .collect();
    assert_eq!(results.last().unwrap(), "done");
    for call in CALLS {
        let text = format!(
            "(module (import \"wasi_snapshot_preview1\" \"{call}\" (func)) (func (export \"_start\")))"
        );
        let name = format!("{call}.wasm");
        put(&name, &wat::parse_str(text).unwrap());
        let target = path.replace("attacks.wasm", &name);
        assert_eq!(server.get(&target).status, 502, "{call}");
        server.says(&format!("wasi_snapshot_preview1.{call}"));
    }
    results[..ROWS.len()].to_vec()
}

fn word(said: Option<&str>, [yes, no]: [&str; 2]) -> String {
    match said {
        Some("yes") => yes.into(),
        Some("no") => no.into(),
        other => panic!("{other:?}"),
    }
}
