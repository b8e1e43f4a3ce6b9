//! The input of a program: variables, arguments, a body, a working directory.

use std::{
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{
    pipe,
    process::{Uid, geteuid},
    thread as threads,
};

use crate::harness::{child::pattern, list, new_site, watch::Watch};
use galgo_testkit::{Server, Site, Spoken, wait_until};

list![
    s4_1_the_environment_is_the_documented_list,
    s4_1_2_content_length_is_never_invented,
    s4_1_2_a_body_without_a_length_gets_one,
    s4_1_7_query_string_is_always_set,
    s4_1_12_any_method_reaches_the_program,
    s4_2_a_chunked_body_is_streamed_as_it_comes,
    s4_2_input_ends_at_content_length,
    s4_2_a_body_as_a_file,
    s4_2_a_body_larger_than_max_body,
    s4_2_a_body_is_whole_where_its_pipe_may_not_be_widened,
    s4_4_the_command_line,
    s7_2_the_working_directory,
];

fn s4_1_the_environment_is_the_documented_list() {
    let routes = "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n\
                  env = { GIT_PROJECT_ROOT = \"/srv/git\", EMPTY = \"\" }";
    let server = new_site().config(routes).start();
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t/info%20and/more?head&env HTTP/1.1\r\nHost: www.example.org:8080\r\n\
         Content-Type: text/x-test\r\nContent-Length: 4\r\nX-Thing: a\r\nX-Thing: b\r\n\
         Cookie: c=1\r\nCookie: d=2\r\nUser-Agent: test\r\nConnection: keep-alive\r\n\
         Authorization: Basic c2VjcmV0\r\nProxy: http://evil/\r\n\r\nbody",
    );
    let reply = client.reply();
    let mut lines: Vec<_> = reply.text().lines().map(str::to_owned).collect();
    lines.sort();
    let id = lines.iter().find_map(|l| l.strip_prefix("UNIQUE_ID="));
    let id = id.expect("a request id").to_owned();
    assert_eq!(id.len(), 20);
    let site = server.site.folder().display();
    let port = server.address().port();
    let remote = client.stream.local_addr().unwrap().port();
    let version = env!("CARGO_PKG_VERSION");
    let mut wanted = vec![
        "CONTENT_LENGTH=4".to_owned(),
        "CONTENT_TYPE=text/x-test".into(),
        format!("DOCUMENT_ROOT={site}/public"),
        "EMPTY=".into(),
        "GATEWAY_INTERFACE=CGI/1.1".into(),
        "GIT_PROJECT_ROOT=/srv/git".into(),
        "HTTP_COOKIE=c=1; d=2".into(),
        "HTTP_HOST=www.example.org:8080".into(),
        "HTTP_USER_AGENT=test".into(),
        "HTTP_X_THING=a, b".into(),
        "PATH=/usr/local/bin:/usr/bin:/bin".into(),
        "PATH_INFO=/info and/more".into(),
        format!("PATH_TRANSLATED={site}/public/info and/more"),
        "QUERY_STRING=head&env".into(),
        "REDIRECT_STATUS=200".into(),
        "REMOTE_ADDR=127.0.0.1".into(),
        "REMOTE_HOST=127.0.0.1".into(),
        format!("REMOTE_PORT={remote}"),
        "REQUEST_METHOD=POST".into(),
        "REQUEST_SCHEME=http".into(),
        "REQUEST_URI=/cgi-bin/t/info%20and/more?head&env".into(),
        format!("SCRIPT_FILENAME={site}/cgi-bin/t"),
        "SCRIPT_NAME=/cgi-bin/t".into(),
        "SERVER_ADDR=127.0.0.1".into(),
        "SERVER_NAME=www.example.org".into(),
        format!("SERVER_PORT={port}"),
        match Spoken::asked() {
            Some(Spoken::Http2) => "SERVER_PROTOCOL=HTTP/2.0".into(),
            _ => "SERVER_PROTOCOL=HTTP/1.1".into(),
        },
        format!("SERVER_SOFTWARE=galgo/{version}"),
        format!("UNIQUE_ID={id}"),
    ];
    wanted.sort();
    assert_eq!(lines, wanted);
}

fn variable(request: &str, name: &str) -> Option<String> {
    let server = new_site().start();
    let text = server.ask(request).text();
    let prefix = format!("{name}=");
    text.lines()
        .find_map(|l| l.strip_prefix(&prefix).map(str::to_owned))
}

fn s4_1_2_content_length_is_never_invented() {
    let streams = new_site().defaults("stream_body = true").start();
    let chunked = "POST /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\n\r\n";
    assert!(!streams.ask(chunked).text().contains("CONTENT_LENGTH"));
    let none = "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(variable(none, "CONTENT_LENGTH"), None);
    let zero = "POST /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(variable(zero, "CONTENT_LENGTH"), Some("0".into()));
}

/// Most programs read as many bytes as `CONTENT_LENGTH` says; without it the body would look empty.
fn s4_1_2_a_body_without_a_length_gets_one() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t?head&env&count HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(client.head().status, 100);
    client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let text = client.reply().text();
    assert!(
        text.contains("CONTENT_LENGTH=5\n") && text.ends_with("\n5"),
        "{text}"
    );
    // A body larger than the part that is held in memory.
    client.send(
        "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let body = pattern(0, 3_000_000);
    for piece in body.chunks(1_000_000) {
        client.send([b"f4240\r\n", piece, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert!(client.reply().body == body);
    // An empty body has a length, too.
    client.send("POST /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert!(client.reply().text().contains("CONTENT_LENGTH=0\n"));
    drop(client);
    watch.after(&["ok"; 3]);
}

fn s4_1_7_query_string_is_always_set() {
    let server = new_site().file(
        "cgi-bin/query",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nprintf '%s' \"${QUERY_STRING-unset}\"\n",
        0o755,
    );
    let server = server.start();
    assert_eq!(server.get("/cgi-bin/query").text(), "");
    assert_eq!(server.get("/cgi-bin/query?").text(), "");
    assert_eq!(server.get("/cgi-bin/query?a%20b").text(), "a%20b");
}

fn s4_1_12_any_method_reaches_the_program() {
    for method in [
        "GET", "POST", "PUT", "DELETE", "PROPFIND", "x-own", "OPTIONS",
    ] {
        let request = format!("{method} /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(variable(&request, "REQUEST_METHOD"), Some(method.into()));
    }
}

fn s4_2_a_chunked_body_is_streamed_as_it_comes() {
    let server = new_site().defaults("stream_body = true").start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    // Enough bytes for the program to be started.
    client.send("10000\r\n");
    client.send([b'a'; 1 << 16]);
    client.send("\r\n");
    assert_eq!(client.head().status, 200);
    let mut echoed = 0;
    while echoed < 1 << 16 {
        echoed += client.chunk().unwrap().len();
    }
    client.send("2\r\nd");
    assert_eq!(client.chunk().unwrap(), b"d");
    client.send("e\r\n0\r\n\r\n");
    assert_eq!(client.chunk().unwrap(), b"e");
    // The program's input ends with the last chunk, not with the connection.
    assert_eq!(client.chunk().unwrap(), b"");
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"]);
}

/// No byte of the next request is ever taken for the body of this one.
fn s4_2_input_ends_at_content_length() {
    let server = new_site().start();
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         GET /cgi-bin/t?head&count HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(client.reply().text(), "abc");
    assert_eq!(client.reply().text(), "0");
}

fn s4_2_a_body_as_a_file() {
    let server = new_site().defaults("body = \"file\"").start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    // The length of a chunked body is known once the server has all of it.
    client.send(
        "POST /cgi-bin/t?head&env HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    );
    assert!(client.reply().text().contains("CONTENT_LENGTH=5\n"));
    // The first body stays in memory, the second goes through a file.
    for size in [5, 3_000_000] {
        client.post("/cgi-bin/t?head&echo", &pattern(0, size));
        assert!(client.reply().body == pattern(0, size));
    }
    client.get("/cgi-bin/t?head&count");
    assert_eq!(client.reply().text(), "0");
    drop(client);
    watch.after(&["ok"; 4]);
}

fn s4_2_a_body_larger_than_max_body() {
    let server = new_site().defaults("max_body = 10").start();
    let watch = Watch::begin(&server);
    let declared =
        "POST /cgi-bin/t?touch=ran&head HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n";
    assert_eq!(server.ask(declared).status, 413);
    assert!(!server.mark("ran").exists());
    let chunked = "POST /cgi-bin/t?count&head HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   b\r\nhello world\r\n0\r\n\r\n";
    assert_eq!(server.ask(chunked).status, 413);
    // The server refuses by the announced sizes, before any data, so that no client waits for a refusal.
    let head =
        "POST /cgi-bin/t?count&head HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for size in ["b\r\n", "ffffffffffffffff\r\n", "5\r\nhello\r\n6\r\n"] {
        let mut client = server.connect();
        client.send(format!("{head}{size}"));
        assert_eq!(client.reply().status, 413, "{size:?}");
    }
    watch.after(&["client_error"; 5]);
}

fn s4_4_the_command_line() {
    let arguments = |site: Site, target: &str| -> Vec<String> {
        let server = site.start();
        let text = server.get(target).text();
        text.lines().skip(1).map(str::to_owned).collect()
    };
    let site = || {
        new_site().file(
        "cgi-bin/words",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s\\n' \"$0\"\nfor a; do echo \"$a\"; done\n",
        0o755,
    )
    };
    assert!(arguments(site(), "/cgi-bin/words?one+two").is_empty());
    let asked = || site().defaults("query_args = true");
    assert_eq!(
        arguments(asked(), "/cgi-bin/words?one+t%20wo"),
        ["one", "t wo"]
    );
    assert!(arguments(asked(), "/cgi-bin/words?a=b").is_empty());
    assert!(arguments(asked(), "/cgi-bin/words?-s").is_empty());
}

/// 7.2: the working directory is the program's own folder; argv[0] is the path of the program.
fn s7_2_the_working_directory() {
    let server = new_site()
        .file("cgi-bin/deep/er/x", "", 0o644)
        .own_binary("cgi-bin/deep/er/t");
    let server = server.start();
    let text = server.get("/cgi-bin/deep/er/t/info?head&cwd&args").text();
    let folder = server.path("cgi-bin/deep/er");
    assert_eq!(text, format!("{0}\n{0}/t\n", folder.display()));
}

/// A program that reads its input to the end, and prints its length, a checksum and the size of the pipe.
const READER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    static unsigned char piece[65536];
    unsigned long long length = 0, sum = 0;
    for (ssize_t n; (n = read(0, piece, sizeof piece)) > 0; length += n)
        for (ssize_t i = 0; i < n; i++) sum = sum * 31 + piece[i];
    printf("Content-Type: text/plain\n\n%llu %llu %d", length, sum, fcntl(0, F_GETPIPE_SZ));
}
"#;

/// Takes all the pipe space that a user may have. From then on each new pipe of that user is as small as can be,
/// and none may be widened (pipe(7)).
fn pipes_of_a_user() -> Vec<(OwnedFd, OwnedFd)> {
    let soft = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    let pages: usize = soft.trim().parse().unwrap();
    assert!(pages > 0, "fs.pipe-user-pages-soft is off");
    let count = pages * rustix::param::page_size() / WIDE;
    let mut pipes = Vec::new();
    for _ in 0..=count {
        let ends = pipe::pipe().unwrap();
        // Without privileges the last calls fail.
        let _ = pipe::fcntl_setpipe_size(&ends.0, WIDE);
        pipes.push(ends);
    }
    pipes
}

/// Size of the pipe for a body of this length or more.
const WIDE: usize = 1 << 20;

fn s4_2_a_body_is_whole_where_its_pipe_may_not_be_widened() {
    // A separate thread gives up capabilities here; other threads must keep theirs.
    let server = std::thread::spawn(without_room_for_pipes).join().unwrap();
    // This thread still has the rights of the user that made the server's folder, so it removes the folder.
    drop(server);
}

/// Becomes a user that no other process runs as, if that is permitted: all processes of a user share one allowance
/// of pipe space.
fn become_somebody(site: &Site) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !geteuid().is_root() || !site.is_reachable() {
        return;
    }
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(site.folder(), open).unwrap();
    let n = std::process::id() << 6 | NEXT.fetch_add(1, Ordering::Relaxed) & 63;
    let user = Uid::from_raw(1 << 30 | n);
    threads::set_thread_res_uid(user, user, user).unwrap();
}

fn without_room_for_pipes() -> Server {
    // Limits of pipes do not hold for root, so processes that this thread starts must not be privileged.
    for capability in [
        threads::CapabilitySet::SYS_RESOURCE,
        threads::CapabilitySet::SYS_ADMIN,
    ] {
        let _ = threads::remove_capability_from_bounding_set(capability);
    }
    let site = new_site().compiled("cgi-bin/reader", READER, &[]);
    become_somebody(&site);
    let server = site.start();
    let body = pattern(0, 3 << 20);
    let sum = body
        .iter()
        .fold(0_u64, |sum, &b| sum.wrapping_mul(31).wrapping_add(b.into()));
    let read = || {
        let mut client = server.connect();
        client.post("/cgi-bin/reader", &body);
        let text = client.reply().text().to_owned();
        let (whole, size) = text.rsplit_once(' ').unwrap();
        assert_eq!(whole, format!("{} {sum}", body.len()));
        size.parse::<usize>().unwrap()
    };
    // If the thread could not change its user, another test of the same user may hold as many pipes at the moment.
    wait_until("a pipe that was widened", || read() == WIDE);
    let pipes = pipes_of_a_user();
    let size = read();
    assert!(size < WIDE, "the pipe was widened: {size}");
    drop(pipes);
    server
}
