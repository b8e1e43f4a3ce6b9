//! Output of programs for clients that read slowly.

use std::os::unix::net::UnixStream;

use galgo_proto::fcgi::Outcome;

use crate::harness::{
    child::pattern,
    list, new_site,
    upstream::{Application, ended, hear, say, stdout},
    watch::Watch,
};
use galgo_testkit::{Client, End, Server, Site};

/// More than the sockets and a pipe hold, and less than the limit for stored output.
const LARGE: usize = 6_000_000;

/// Returns a site with one permit and clocks that do not cut off a slow client.
fn one_place() -> Site {
    new_site().config("max_running = 1\nrate_grace = \"1h\"\nqueue_wait = \"1h\"")
}

/// Connects a client with a small receive buffer.
pub(crate) fn slow_reader(server: &Server) -> Client {
    Client::connect_with_buffer(16 << 10, server.address())
}

/// Another program gets the only permit before the client has read anything of the response.
fn a_slow_reader_holds_no_permit() {
    let server = one_place().start();
    let watch = Watch::begin(&server);
    for head in [
        "head",
        "out=Content-Length:%206000000%0AContent-Type:%20a/b%0A%0A",
    ] {
        let mut slow = slow_reader(&server);
        slow.get(&format!("/cgi-bin/t?{head}&fill={LARGE}"));
        assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
        let reply = slow.reply();
        assert!(reply.body == pattern(0, LARGE) && reply.end == End::Whole);
        // The connection can be used again.
        slow.get("/cgi-bin/t?head&out=more");
        assert_eq!(slow.reply().text(), "more");
    }
    let lines = watch.after(&["ok"; 6]);
    assert!(lines.iter().any(|l| l["bytes"] == LARGE));
}

/// The program prints in pieces while the client reads now and then.
fn every_byte_comes_in_its_order() {
    let server = one_place().start();
    let watch = Watch::begin(&server);
    let mut slow = slow_reader(&server);
    let steps: String = (0..40)
        .map(|n| format!("&fill=99990&touch=m{n}&fill=10"))
        .collect();
    slow.get(&format!("/cgi-bin/t?head{steps}&touch=over"));
    let mut got = Vec::new();
    assert_eq!(slow.head().status, 200);
    for n in 0..40 {
        server.wait_for(&format!("m{n}"));
        if n % 7 == 0 {
            got.extend(slow.chunk().unwrap());
        }
    }
    server.wait_for("over");
    loop {
        let chunk = slow.chunk().expect("a whole response");
        if chunk.is_empty() {
            break;
        }
        got.extend(chunk);
    }
    let wanted: Vec<u8> = (0..40)
        .flat_map(|_| [pattern(0, 99_990), pattern(0, 10)].concat())
        .collect();
    assert!(got == wanted);
    drop(slow);
    watch.after(&["ok"]);
}

/// The output is far above the limit: the rest stays with the program, and all of it arrives.
fn what_is_too_much_waits_in_its_program() {
    let server = one_place().start();
    let watch = Watch::begin(&server).memory(24 << 20);
    let mut slow = slow_reader(&server);
    slow.get("/cgi-bin/t?head&fill=2000000&touch=begun&fill=60000000");
    server.wait_for("begun");
    let reply = slow.reply();
    assert!(reply.body[..2_000_000] == pattern(0, 2_000_000));
    assert!(reply.body[2_000_000..] == pattern(0, 60_000_000) && reply.end == End::Whole);
    drop(slow);
    watch.after(&["ok"]);
}

/// The program failed long before its client could see that.
fn what_failed_while_it_waited_is_cut() {
    let server = one_place().start();
    let watch = Watch::begin(&server);
    for head in [
        "head",
        "out=Content-Length:%206000001%0AContent-Type:%20a/b%0A%0A",
    ] {
        let mut slow = slow_reader(&server);
        slow.get(&format!("/cgi-bin/t?{head}&fill={LARGE}&die=9"));
        assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
        let reply = slow.reply();
        assert!(reply.body == pattern(0, LARGE) && reply.end == End::Cut);
    }
    watch.after(&["script_error", "ok", "script_error", "ok"]);
}

/// The process has ended but its background child has not: the child's output belongs to the response.
fn a_background_child_prints_behind_what_waits() {
    let server = one_place().start();
    let watch = Watch::begin(&server);
    let mut slow = slow_reader(&server);
    slow.get(&format!(
        "/cgi-bin/t?head&fill={LARGE}&bg=fill=100000&exit=0"
    ));
    assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
    let reply = slow.reply();
    assert!(reply.body == [pattern(0, LARGE), pattern(0, 100_000)].concat());
    assert_eq!(reply.end, End::Whole);
    drop(slow);
    watch.after(&["ok"; 2]);
}

/// If a client leaves, its stored output is removed, and a program that still prints is ended.
fn a_client_that_leaves_leaves_nothing_behind() {
    let server = one_place().start();
    let watch = Watch::begin(&server);
    for rest in ["touch=a", "touch=b&fill=60000000"] {
        let mut slow = slow_reader(&server);
        slow.get(&format!("/cgi-bin/t?head&fill={LARGE}&{rest}"));
        server.wait_for(&rest[6..7]);
        assert_eq!(slow.head().status, 200);
        slow.reset();
    }
    watch.after(&["client_gone"; 2]);
}

/// Without room for files no output is stored.
fn where_no_file_can_be_made_programs_wait() {
    let server = one_place().config("spool_limit = 0").start();
    let watch = Watch::begin(&server);
    let mut slow = slow_reader(&server);
    slow.get(&format!("/cgi-bin/t?head&fill={LARGE}&fill={LARGE}"));
    let reply = slow.reply();
    assert!(reply.body == [pattern(0, LARGE), pattern(0, LARGE)].concat());
    assert_eq!(reply.end, End::Whole);
    drop(slow);
    watch.after(&["ok"]);
}

/// A slow client does not hold a connection to an application either, whatever the size of the records.
fn a_slow_reader_holds_no_application() {
    let answer = |n: usize, stream: &mut UnixStream| {
        let piece = if n.is_multiple_of(2) { 60_000 } else { 3_000 };
        while hear(stream).is_some() {
            say(stream, stdout("Content-Type: text/plain\n\n"));
            let all = pattern(0, LARGE);
            all.chunks(piece)
                .for_each(|piece| say(stream, stdout(piece)));
            say(stream, [stdout(""), ended(Outcome::COMPLETE)].concat());
        }
    };
    let site = one_place()
        .config("[[route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\nmax_running = 1\nidle_timeout = \"1h\"\n");
    let _application = Application::start(site.folder(), answer);
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut slow: Vec<_> = (0..4).map(|_| slow_reader(&server)).collect();
    for client in &mut slow {
        client.get("/app");
        // The application's connection is free as soon as the application has answered.
        assert_eq!(client.head().status, 200);
    }
    for client in &mut slow {
        let mut got = Vec::new();
        while let Some(chunk) = client.chunk().filter(|chunk| !chunk.is_empty()) {
            got.extend(chunk);
        }
        assert!(got == pattern(0, LARGE));
        client.get("/health");
        assert_eq!(client.reply().text(), "fine");
    }
    drop(slow);
    watch.after(&["ok"; 4]);
}

/// Stored output in memory has one limit for all requests: without a share of it a program keeps its permit.
fn without_memory_a_slow_reader_holds_its_place() {
    let site = new_site().config("max_running = 1\nrate_grace = \"1h\"\nqueue_wait = \"300ms\"");
    let server = site.config("spool_memory = \"255K\"").start();
    let watch = Watch::begin(&server);
    let mut slow = slow_reader(&server);
    slow.get(&format!("/cgi-bin/t?touch=runs&head&fill={LARGE}"));
    server.wait_for("runs");
    assert_eq!(server.get("/cgi-bin/t?head&out=there").status, 503);
    let reply = slow.reply();
    assert!(reply.body == pattern(0, LARGE) && reply.end == End::Whole);
    drop(slow);
    watch.after(&["ok", "busy"]);
}

list![
    without_memory_a_slow_reader_holds_its_place,
    a_slow_reader_holds_no_application,
    a_slow_reader_holds_no_permit,
    every_byte_comes_in_its_order,
    what_is_too_much_waits_in_its_program,
    what_failed_while_it_waited_is_cut,
    a_background_child_prints_behind_what_waits,
    a_client_that_leaves_leaves_nothing_behind,
    where_no_file_can_be_made_programs_wait,
];
