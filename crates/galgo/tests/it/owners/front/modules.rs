//! An attacker in the server's place, and the worker that runs modules: runs that the server may order from it.

use std::{
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use super::{APP, GAMES, MAN, MODULES, NOBODY, Spawner, own, pair, receive, send, start};
use crate::{
    harness::list,
    wasm::{host, programs},
};
use galgo_proto::{
    Parsed,
    fcgi::{
        self, Params, Role,
        reply::{ReplyEvent, ReplyReader},
    },
    vars::Sink,
};
use galgo_spawn::Status;
use galgo_testkit::{process::children, wait_until};
use galgo_wasm::wire::{self, Message, Run, RunOutcome};

list![
    a_helper_starts_their_worker_as_configured,
    their_worker_runs_what_is_configured_only,
    their_worker_takes_messages_without_sense,
];

const ID: u16 = 1;

/// A worker that was started on the server's order, and the socket to it.
struct Worker {
    socket: OwnedFd,
    /// Connection to the helper; the worker ends when this is closed.
    _program: OwnedFd,
}

impl Worker {
    /// Starts a worker on a [`Spawner`] whose site has some modules.
    fn start() -> (Self, Spawner) {
        host();
        let spawner = Spawner::start();
        let bomb = programs::command(
            "(call $head)
             (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
             (call $verdict (i32.le_u (memory.size) (i32.const 320)))",
            "",
        );
        for (name, module, uid) in [
            ("games/a.wasm", programs::hello(), GAMES),
            ("games/bomb.wasm", bomb, GAMES),
            ("games/note.wasm", programs::opens("note"), GAMES),
            ("games/up.wasm", programs::opens("../galgo.toml"), GAMES),
            ("games/foreign.wasm", programs::hello(), MAN),
            ("own/nobody.wasm", programs::hello(), NOBODY),
        ] {
            spawner.site.write(name, module);
            own(&spawner.site, name, uid);
        }
        let helper = spawner.helper(GAMES, MODULES).unwrap();
        let (socket, theirs) = pair();
        let (program, other) = pair();
        let null = std::fs::File::open("/dev/null").unwrap();
        let stderr = std::io::stderr();
        let fds = [theirs.as_fd(), null.as_fd(), stderr.as_fd(), other.as_fd()];
        send(
            &helper,
            b"12345678S\x01\xff\xff\xff\xff\xff\xff\xff\xff\0\0modules\0",
            &fds,
        );
        drop((theirs, other));
        assert!(receive(&program).0.starts_with(b"S"));
        let mut buffer = Vec::new();
        let said = wire::receive_message(&socket, &mut buffer).unwrap();
        assert_eq!(said.expect("a worker").0, wire::READY);
        let worker = Self {
            socket,
            _program: program,
        };
        (worker, spawner)
    }

    fn connect(&self) -> UnixStream {
        let (ours, theirs) = wire::connection_pair().unwrap();
        let connect = Message::Connect.encode();
        wire::send_message(&self.socket, &connect, &[theirs.as_fd()]).unwrap();
        let ours = UnixStream::from(ours);
        ours.set_nonblocking(false).unwrap();
        ours
    }

    /// Runs a module. Returns how the run ended, and all of its output.
    fn run(&self, change: impl FnOnce(&mut Run)) -> (RunOutcome, String) {
        let mut run = Run {
            key: [7; 32],
            profile: 0,
            memory: 1 << 30,
            cpu: 0,
            name: b"a".to_vec(),
            module: Vec::new(),
        };
        change(&mut run);
        let mut bytes = fcgi::begin_request(ID, Role::RESPONDER, false).to_vec();
        let mut params = Params::new(ID, &mut bytes);
        params.put_variable(b"", &run.encode());
        params.finish();
        bytes.extend(fcgi::Header::new(fcgi::RecordType::STDIN, ID, 0).to_bytes());
        let mut conn = self.connect();
        conn.write_all(&bytes).unwrap();
        answer(conn)
    }
}

fn answer(mut conn: UnixStream) -> (RunOutcome, String) {
    let mut all = Vec::new();
    let (mut reply, mut at, mut said) = (
        ReplyReader::with_extra_bytes(ID, wire::ENDED),
        0,
        Vec::new(),
    );
    loop {
        let Parsed::Complete(event, used) = reply.next_event(&all[at..]).unwrap() else {
            let mut more = [0; 4096];
            let n = conn.read(&mut more).unwrap();
            assert!(n > 0, "it is cut: {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&more[..n]);
            continue;
        };
        at += used;
        match event {
            ReplyEvent::Stdout(n) | ReplyEvent::Stderr(n) => {
                while all.len() < at + n {
                    let mut more = [0; 4096];
                    let n = conn.read(&mut more).unwrap();
                    all.extend_from_slice(&more[..n]);
                }
                said.extend_from_slice(&all[at..at + n]);
                at += n;
            }
            ReplyEvent::StdoutEnd => {}
            ReplyEvent::End(..) => break,
        }
    }
    let ended = RunOutcome::decode(reply.extra_bytes()).expect("an end");
    (ended, String::from_utf8_lossy(&said).into_owned())
}

fn a_helper_starts_their_worker_as_configured() {
    host();
    let spawner = Spawner::start();
    let helper = spawner.helper(GAMES, MODULES).unwrap();
    for (args, strings, why) in [
        (1, &[&b"modules"[..], b"worker"][..], "no arguments"),
        (0, &[b"modules", b"HTTP_X=1"], "no variables"),
        (0, &[b"modules", b"LD_PRELOAD=/evil.so"], "no variables"),
        (0, &[b"./modules"], "is not below"),
        (0, &[b"own-worker"], "is not below"),
        (0, &[&spawner.path("galgo-wasm")], "is not below"),
    ] {
        let (report, said) = start(&helper, args, strings);
        assert!(report.contains(why) && said.is_empty(), "{report} {said}");
    }
    // The helper of a FastCGI worker runs no modules.
    let app = spawner.helper(GAMES, APP).unwrap();
    let (report, said) = start(&app, 0, &[b"modules"]);
    assert!(report.contains("no modules run on this route") && said.is_empty());
    for uid in [0, MAN, NOBODY] {
        assert!(spawner.helper(uid, MODULES).is_err());
    }
}

fn is_fine(end: (RunOutcome, String), want: &str) {
    let (ended, said) = end;
    let RunOutcome::Exit(exit) = ended else {
        panic!("{ended:?} {said}");
    };
    assert_eq!(exit.status, Status::Code(0));
    assert!(said.ends_with(want), "{said}");
}

fn their_worker_runs_what_is_configured_only() {
    let (worker, spawner) = Worker::start();
    let module = |name: &str| spawner.path(name);
    is_fine(
        worker.run(|run| run.module = module("games/a.wasm")),
        "\nyes\n",
    );
    for (path, why) in [
        (module("own/nobody.wasm"), "is not below"),
        (module("games/../own/nobody.wasm"), "is not below"),
        (module("games/foreign.wasm"), "belongs to the user 6"),
        (module("games/none.wasm"), "none.wasm"),
        (b"/etc/passwd".to_vec(), "is not below"),
        (b"a.wasm".to_vec(), "is not below"),
        (Vec::new(), "is not below"),
        (b"a\0.wasm".to_vec(), ""),
    ] {
        let (ended, said) = worker.run(|run| run.module = path);
        assert!(
            ended == RunOutcome::Denied && said.contains(why),
            "{ended:?} {said}"
        );
    }
    // A run never gets more memory, or another folder, than configured, whatever the order says.
    for memory in [1 << 30, u64::MAX] {
        let end = worker.run(|run| {
            run.module = module("games/bomb.wasm");
            run.memory = memory;
        });
        is_fine(end, "\nyes\n");
    }
    for profile in [0, 1, u64::MAX] {
        for (name, want) in [("note", "\nyes\n"), ("up", "\nno\n")] {
            let end = worker.run(|run| {
                run.module = module(&format!("games/{name}.wasm"));
                run.profile = profile;
            });
            is_fine(end, want);
        }
    }
    // The worker ends when the server's socket to it is closed.
    let helpers = children(spawner.process.id());
    drop(worker);
    wait_until("the end of the worker", || {
        helpers.iter().all(|helper| children(*helper).is_empty())
    });
}

fn their_worker_takes_messages_without_sense() {
    let (worker, spawner) = Worker::start();
    let module = spawner.path("games/a.wasm");
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let run = Run {
        key: [7; 32],
        profile: 0,
        memory: 1 << 20,
        cpu: 0,
        name: b"a".to_vec(),
        module: module.clone(),
    };
    let valid = run.encode();
    for _ in 0..300 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let noise: Vec<u8> = (0..1 + x % 60).map(|n| (x >> (n % 57)) as u8).collect();
        // Noise in place of the connection's records, and in place of the order to run.
        let mut conn = worker.connect();
        let _ = conn.write_all(&noise);
        drop(conn);
        let mut bytes = fcgi::begin_request(ID, Role::RESPONDER, false).to_vec();
        let mut params = Params::new(ID, &mut bytes);
        let mut changed = valid.clone();
        let at = (x >> 8) as usize % changed.len();
        changed[at] ^= (x >> 40) as u8 | 1;
        params.put_variable(b"", &changed);
        params.finish();
        let mut conn = worker.connect();
        let _ = conn.write_all(&bytes);
        // The worker has read the bytes, whatever happened then.
        let _ = conn.shutdown(std::net::Shutdown::Write);
        let _ = conn.read_to_end(&mut Vec::new());
    }
    // Messages that the server's own worker would accept.
    for message in [
        Message::Wanted(b"/etc/passwd".to_vec()),
        Message::Found(wire::CodeReply::Short),
        Message::Forget([7; 32]),
    ] {
        wire::send_message(&worker.socket, &message.encode(), &[]).unwrap();
    }
    is_fine(worker.run(|run| run.module = module), "\nyes\n");
}
