//! The same attacks by a module, as far as WASI has calls for them. The module has one open folder as a starting point.

use std::{fmt::Write as _, fs, os::unix::fs::MetadataExt};

use super::{super::own, Attackers, COLUMNS, NO_CALL, ROWS};
use crate::wasm::{host, programs, replace_in};

/// A way in which a module tries an attack.
enum Way {
    /// Opens any of these files, for writing if the flag is true, else for reading.
    Files(Vec<String>, bool),
    /// Finds an open descriptor with a higher number than the folder's.
    Descriptors,
    /// Gets more linear memory than its limit.
    Memory,
    /// Writes more than the limit into a file of the folder.
    Disk,
    /// Computes endlessly; a separate module does that.
    Processor,
    NoCall,
}

/// Returns paths that would lead out of the folder.
fn ways_to(path: &str) -> Vec<String> {
    let up = "../".repeat(20);
    let relative = path.trim_start_matches('/');
    vec![
        path.to_owned(),
        format!("{up}{relative}"),
        format!("./{up}{relative}"),
    ]
}

/// Returns the way for each row, in the order of the rows; `told` has the arguments that a program would get.
fn ways(told: &str, program: &str, left: &str) -> Vec<Way> {
    let of = |name: &str| {
        let mut words = told.split('&').filter_map(|word| word.split_once('='));
        words.find(|(n, _)| *n == name).unwrap().1
    };
    let read = |path: &str| Way::Files(ways_to(path), false);
    let write = |path: &str| Way::Files(ways_to(path), true);
    let process = |name| {
        let files = of(name).split(',').flat_map(|pid| {
            let files = ["environ", "mem", "maps", "root/etc/passwd"];
            files.map(|file| ways_to(&format!("/proc/{pid}/{file}")))
        });
        Way::Files(files.flatten().collect(), false)
    };
    let processes = [
        "server",
        "spawner",
        "helper",
        "templates",
        "waiting",
        "other",
        "same",
    ];
    let mut all: Vec<_> = processes.map(process).into();
    // Limits and priority of these processes.
    all.extend(processes.map(|_| Way::NoCall));
    let files = ["users", "servers", "key", "config", "log", "open"];
    all.extend(files.map(|file| read(of(file))));
    let servers = ["key", "config", "log"].map(|file| ways_to(of(file)));
    all.push(Way::Files(servers.concat(), true));
    all.extend([write(program), write(of("shared")), write(left)]);
    all.extend([Way::NoCall, Way::NoCall, Way::NoCall, Way::NoCall]);
    all.push(read(&format!("/proc/{}/status", of("server"))));
    all.extend([Way::NoCall, Way::NoCall, Way::Descriptors]);
    all.extend([Way::Memory, Way::NoCall, Way::Disk, Way::Processor]);
    all
}

/// Writes 64 pieces of 64 KiB into the file that the data at 1536 names.
const DISK: &str = "
    (drop (call $open (i32.const 3) (i32.const 0) (i32.const 1536) (i32.const 11) (i32.const 1)
      (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 12)))
    (local.set $fd (i32.const 0))
    (block $full (loop $again
      (i32.store (i32.const 0) (i32.const 0))
      (i32.store (i32.const 4) (i32.const 65536))
      (br_if $full (call $write (i32.load (i32.const 12)) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $fd) (i32.const 64)))))
    (call $verdict (i32.eq (local.get $fd) (i32.const 64)))";

/// Builds a module that prints for each way whether it succeeded.
fn module(ways: &[Way], large: &str) -> Vec<u8> {
    assert_eq!(large.len(), 11);
    const CREATE: u32 = 1;
    const READ: u32 = 1 << 1;
    const WRITE: u32 = 1 << 6;
    let (mut start, mut data, mut at) = (
        String::from("(local $fd i32) (call $head)"),
        format!("(data (i32.const 1536) {large:?})"),
        2048,
    );
    for way in ways {
        match way {
            Way::NoCall | Way::Processor => continue,
            Way::Memory => {
                start += "(call $verdict (i32.ne (memory.grow (i32.const 5000)) (i32.const -1)))";
            }
            Way::Disk => start += DISK,
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

/// Calls that programs make for the rows with [`NO_CALL`], by the names that WASI would give them.
const CALLS: [&str; 5] = [
    "sock_open",
    "sock_connect",
    "sock_listen",
    "proc_fork",
    "proc_exec",
];

pub(super) fn column(of: &Attackers<'_>, at: usize) -> Vec<String> {
    host();
    let (server, folder) = (of.server, of.folder);
    let path = format!("/{folder}/{}", COLUMNS[at].1);
    let user = server.path(folder).metadata().unwrap().uid();
    let put = |name: &str, module: &[u8]| {
        replace_in(server, folder, name, module);
        own(&server.site, &format!("{folder}/{name}"), user);
    };
    let large = format!("large-{folder:_>5}");
    let left = format!("/tmp/galgo-left-{}", of.mark(at));
    let program = server.path(folder).join("attacks.wasm");
    let mut ways = ways(&of.told, &program.display().to_string(), &left);
    assert_eq!(ways.len(), ROWS.len());
    // The module must find this file in its folder; otherwise the other results would mean nothing.
    ways.push(Way::Files(vec!["note".into()], false));
    put("attacks.wasm", &module(&ways, &large));
    let reply = server.get(&path);
    let said = reply.text();
    let mut said = said.lines();
    assert_eq!(reply.status, 200, "{path} {}", server.errors());
    let results: Vec<String> = ways
        .iter()
        .map(|way| match way {
            Way::NoCall => NO_CALL.to_owned(),
            Way::Processor => {
                put(
                    "computes.wasm",
                    &programs::command("(loop $on (br $on))", ""),
                );
                let target = path.replace("attacks.wasm", "computes.wasm");
                assert_eq!(server.get(&target).status, 502);
                "is ended".to_owned()
            }
            Way::Descriptors => word(said.next(), ["some", "none"]),
            _ => word(said.next(), ["done", "refused"]),
        })
        .collect();
    assert_eq!(results.last().unwrap(), "done");
    fs::remove_file(server.path("data").join(&large)).unwrap();
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
