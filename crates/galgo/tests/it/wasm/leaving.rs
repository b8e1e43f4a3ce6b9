//! Responses that clients or clocks cut off: other requests are not affected.

use std::fs;

use super::{programs, site, worker};
use crate::harness::list;
use galgo_testkit::{Client, Server, wait_until};

list![
    answers_that_are_broken_off_end_only_their_instances,
    clients_leave_at_every_point_of_an_exchange,
];

/// Bytes of a response that fits into no buffer on the way.
const LONG: usize = 32 << 20;

/// Prints [`LONG`] bytes after its head.
fn long() -> Vec<u8> {
    programs::command(
        "(local $n i32) (call $head)
         (loop $again (call $say (i32.const 4096) (i32.const 65536))
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (br_if $again (i32.lt_u (local.get $n) (i32.const 512))))",
        "",
    )
}

/// A worker with an instance that lives as long as the test. If the server gives that worker up, no other takes its place.
struct Scene {
    server: Server,
    worker: u32,
    asleep: Vec<Client>,
}

impl Scene {
    fn new(routes: &str) -> Self {
        let server = site(&[
            ("a.wasm", programs::hello()),
            ("echo.wasm", programs::echo()),
            ("long.wasm", long()),
            ("sleep.wasm", programs::sleeps("awake\n")),
            ("nap.wasm", programs::sleeps("")),
        ]);
        // A request that gets no connection to the worker is refused after this time.
        let server = server
            .config("queue_wait = \"5s\"")
            .defaults("first_byte_timeout = \"10m\"")
            .config(routes)
            .start();
        for name in ["a", "echo"] {
            assert_eq!(server.get(&format!("/cgi-bin/{name}.wasm")).status, 200);
        }
        let mut scene = Self {
            worker: worker(&server),
            server,
            asleep: Vec::new(),
        };
        scene.takes_new_connections();
        scene
    }

    /// Starts an instance that keeps its connection, so that other requests need new connections.
    fn takes_new_connections(&mut self) {
        let mut client = self.server.connect();
        client.get("/cgi-bin/sleep.wasm");
        self.asleep.push(client);
        let all = self.asleep.len();
        wait_until("an instance on another connection", || {
            self.server.errors().matches("awake").count() == all
        });
        assert_eq!(self.server.get("/cgi-bin/a.wasm").text(), "yes\n");
        if self.asleep.len() > 4 {
            self.wakes_nobody();
        }
    }

    /// Asserts that all sleeping instances still sleep, in the original worker.
    fn wakes_nobody(&self) {
        assert!(self.asleep.iter().all(|client| !client.is_closed()));
        assert_eq!(worker(&self.server), self.worker);
        let errors = self.server.errors();
        assert!(!errors.contains("starts another"), "{errors}");
    }
}

fn answers_that_are_broken_off_end_only_their_instances() {
    let in_time = "[[route]]\npath = \"/in-time/\"\ncgi = \"cgi-bin\"\ntotal_timeout = \"1s\"\n";
    let mut scene = Scene::new(in_time);
    let reply = scene.server.get("/cgi-bin/long.wasm");
    assert_eq!((reply.status, reply.body.len()), (200, LONG));
    let mut late = scene.server.connect();
    late.get("/in-time/long.wasm");
    assert_eq!(late.head().status, 200);
    for n in 0..13 {
        let mut client = scene.server.connect();
        client.get("/cgi-bin/long.wasm");
        assert_eq!(client.head().status, 200);
        assert_eq!(client.take(n * 50_000).len(), n * 50_000);
        match n % 4 {
            0 => client.reset(),
            _ => drop(client),
        }
        if n % 3 == 0 {
            scene.takes_new_connections();
        }
    }
    // The client did not read this response until the clock had run out.
    outcome(&scene.server, "/in-time/long.wasm", 1);
    assert!(late.rest().len() < LONG);
    outcome(&scene.server, "/cgi-bin/long.wasm", 14);
    scene.takes_new_connections();
    scene.wakes_nobody();
}

/// Waits until `all` requests for a target are over.
fn outcome(server: &Server, target: &str, all: usize) {
    wait_until("the end of what was broken off", || {
        let lines = server.access();
        lines.iter().filter(|l| l["target"] == target).count() == all
    });
}

/// Actions of a client before it leaves.
const POINTS: [fn(&mut Client, usize); 10] = [
    |_, _| {},
    |client, n| client.send(&b"GET /cgi-bin/a.wasm HTTP/1.1\r\nHost: h\r\n\r\n"[..n % 40]),
    |client, _| client.get("/cgi-bin/a.wasm"),
    |client, _| client.get("/cgi-bin/nap.wasm"),
    |client, _| client.begin_post("/cgi-bin/echo.wasm", 1 << 20),
    |client, n| {
        client.begin_post("/cgi-bin/echo.wasm", 1 << 20);
        client.send(vec![b'x'; n * 997]);
    },
    |client, n| {
        client.post("/cgi-bin/echo.wasm", &vec![b'x'; n * 997]);
    },
    |client, _| client.get("/cgi-bin/long.wasm"),
    |client, _| {
        client.get("/cgi-bin/long.wasm");
        assert_eq!(client.head().status, 200);
    },
    |client, n| {
        client.get("/cgi-bin/long.wasm");
        assert_eq!(client.head().status, 200);
        client.take(n * 9973);
    },
];

fn clients_leave_at_every_point_of_an_exchange() {
    let mut scene = Scene::new("");
    for n in 0..100 {
        let mut client = scene.server.connect();
        POINTS[n % POINTS.len()](&mut client, n);
        match n / POINTS.len() % 2 {
            0 => client.reset(),
            _ => drop(client),
        }
        assert_eq!(scene.server.get("/cgi-bin/a.wasm").text(), "yes\n", "{n}");
        if n % 25 == 0 {
            scene.takes_new_connections();
        }
    }
    scene.takes_new_connections();
    scene.wakes_nobody();
    // The only threads left belong to sleeping instances or wait for a connection.
    wait_until("few threads", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", scene.worker)).unwrap();
        tasks.count() < 64
    });
    assert!(!scene.server.errors().contains("panicked"));
}
