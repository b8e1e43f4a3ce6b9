//! System calls that fail. An error is not an end: whichever call fails, an answer is whole, or visibly cut, or
//! says that something is wrong.

use std::{fs, os::unix::net::UnixStream, thread, time::Duration};

use galgo_proto::fcgi::Outcome;
use rustix::io::Errno;

use crate::harness::{
    child::pattern,
    inject,
    inject::Calls,
    list, new_site,
    upstream::{Application, ended, hear, say, stdout},
};
use galgo_testkit::{Client, End, Reply, Server};

/// A request, and the body of its only right answer.
struct Row {
    target: &'static str,
    /// Size of the request body in bytes.
    sends: usize,
    gets: fn() -> Vec<u8>,
}

const ROWS: [Row; 7] = [
    // This program makes the server wait for everything: output, standard error, the process, the client.
    Row {
        target: "/cgi-bin/t?pause=120&head&pause=120&out=hello&pause=120&out=world&pause=120",
        sends: 0,
        gets: || b"helloworld".to_vec(),
    },
    // A pipe that is full, and spliced or written to.
    Row {
        target: "/cgi-bin/t?pause=120&head&count",
        sends: 400_000,
        gets: || b"400000".to_vec(),
    },
    Row {
        target: "/cgi-bin/t?head&pause=120&echo",
        sends: 5_000,
        gets: || pattern(0, 5_000),
    },
    Row {
        target: "/cgi-bin/t?head&fill=3000000",
        sends: 0,
        gets: || pattern(0, 3_000_000),
    },
    // An application, which answers a little later how many bytes it got.
    Row {
        target: "/app",
        sends: 5,
        gets: || b"5".to_vec(),
    },
    Row {
        target: "/app",
        sends: 400_000,
        gets: || b"400000".to_vec(),
    },
    Row {
        target: "/large",
        sends: 0,
        gets: || pattern(0, 3_000_000),
    },
];

/// Returns the reply, even if the connection was cut; `None` if no reply came.
fn ask(server: &Server, row: &Row) -> Option<Reply> {
    let mut client: Client = server.connect();
    let method = if row.sends > 0 { "POST" } else { "GET" };
    let head = format!(
        "{method} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        row.target, row.sends
    );
    let mut upload = client.stream.try_clone().unwrap();
    let body = pattern(0, row.sends);
    let sending = thread::spawn(move || {
        use std::io::Write;
        upload
            .write_all(&[head.into_bytes(), body].concat())
            .is_ok()
    });
    let reply = client.reply();
    drop(client);
    sending.join().unwrap();
    (reply.status != 0).then_some(reply)
}

/// Answers with the length of each request's body.
fn counts(_: usize, stream: &mut UnixStream) {
    while let Some(heard) = hear(stream) {
        thread::sleep(Duration::from_millis(60));
        let words = heard.stdin.len().to_string();
        say(stream, stdout("Content-Type: text/plain\n\n"));
        say(stream, stdout(words));
        thread::sleep(Duration::from_millis(60));
        say(stream, [stdout(""), ended(Outcome::COMPLETE)].concat());
    }
}

/// Makes each of the first nine calls of an answer fail, one at a time; then the first three, and then twenty from
/// the third on.
fn each_call_fails(calls: Calls, error: Errno) {
    let site = new_site()
        .config("workers = 1")
        .config("[[route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\n")
        .file("public/large", pattern(0, 3_000_000), 0o644);
    let _application = Application::start(site.folder(), counts);
    let server = calls.of(site).start();
    let mut hurt = 0;
    for row in &ROWS {
        for (skip, count) in (0..9).map(|n| (n, 1)).chain([(0, 3), (2, 20)]) {
            inject::fail(&server, skip, count, error);
            let reply = ask(&server, row);
            inject::heal(&server);
            let at = format!("{} of {}: {skip}, {count}, {error}", calls.name, row.target);
            let Some(reply) = reply else {
                hurt += 1;
                continue;
            };
            match (reply.status, reply.end) {
                (200, End::Whole) => {
                    assert!(reply.body == (row.gets)(), "{at}: short and clean")
                }
                (200, _) => hurt += 1,
                (status, _) => {
                    assert!(status >= 500, "{at}: {status}");
                    hurt += 1;
                }
            }
            assert_eq!(server.get("/health").text(), "fine", "{at}");
        }
    }
    assert!(hurt > 0, "no {} was met", calls.name);
    let words = fs::read_to_string(server.path("stderr")).unwrap();
    assert!(!words.contains("panicked"), "{words}");
}

fn epoll_ctl_fails() {
    each_call_fails(Calls::all("epoll_ctl"), Errno::NOSPC);
}

fn writev_fails() {
    each_call_fails(Calls::all("writev"), Errno::IO);
}

fn splice_fails() {
    each_call_fails(Calls::all("splice"), Errno::NOMEM);
}

fn sendfile_fails() {
    each_call_fails(Calls::all("sendfile"), Errno::IO);
}

fn read_fails() {
    each_call_fails(Calls::all("read"), Errno::IO);
}

list![
    epoll_ctl_fails,
    writev_fails,
    splice_fails,
    sendfile_fails,
    read_fails,
];
