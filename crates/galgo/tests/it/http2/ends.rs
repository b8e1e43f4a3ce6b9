//! Ends of streams and connections.

use std::io::{Read, Write};

use galgo_testkit::{process, wait_until};
use rustix::process::Signal;

use super::*;
use crate::faults::cut;

list![
    a_reset_ends_the_program,
    a_part_of_a_body_never_passes_for_the_whole,
    the_end_of_the_connection_ends_all_programs,
    a_cut_response_is_reset,
    term_lets_streams_finish,
    the_grace_ends_streams,
    an_idle_connection_ends,
    what_comes_while_a_connection_ends_resets_nothing,
];

const KILLED: &str = "kill_grace = \"100ms\"\nstream_body = true";

fn a_reset_ends_the_program() {
    for deaf in ["", "deaf&"] {
        let (server, socket) = serve(new_site().defaults(KILLED));
        let watch = Watch::begin(&server);
        let mut client = Connection::connect(&socket);
        // The reset comes before the response, during the response, and while the body is still to come.
        for (steps, ends) in [
            ("touch=on&hang", true),
            ("head&out=a&touch=on&hang", true),
            ("head&fill=10000000&touch=on&hang", true),
            ("touch=on&head&echo", false),
        ] {
            let target = format!("/cgi-bin/t?{deaf}{steps}");
            let mut stream = client.begin("POST", &target, ends);
            if !ends {
                assert!(client.write(&mut stream, &pattern(0, 40_000), false));
            }
            if !steps.contains("fill") {
                server.wait_for("on");
                std::fs::remove_file(server.mark("on")).unwrap();
            } else {
                client.runtime.block_on(&mut stream.response).unwrap();
            }
            stream.body.send_reset(Reason::CANCEL);
        }
        // The connection and its other streams go on.
        assert_eq!(client.get("/health").text(), "fine");
        drop(client);
        watch.after(&["client_gone"; 4]);
    }
}

fn a_part_of_a_body_never_passes_for_the_whole() {
    for stays in [false, true] {
        no_part_passes_for_the_whole(stays);
    }
}

fn no_part_passes_for_the_whole(stays: bool) {
    let site = new_site()
        .compiled("cgi-bin/reads", cut::READS, &[])
        .defaults(&format!("{KILLED}\nrun_to_completion = {stays}"));
    let (server, socket) = serve(site);
    let part = [b'x'; 150_000];
    for query in cut::STAYING {
        for way in ["reset", "without a length", "too short", "connection"] {
            for mark in ["up", "done"] {
                let _ = std::fs::remove_file(server.mark(mark));
            }
            let mut client = Connection::connect(&socket);
            let mut head = request("POST", &format!("/cgi-bin/reads?{query}"));
            if way != "without a length" {
                head = head.header("content-length", "1000000");
            }
            let mut stream = client.send(head, false).unwrap();
            assert!(client.write(&mut stream, &part, false), "{way}");
            server.wait_for("up");
            match way {
                "connection" => drop((stream, client)),
                "too short" => {
                    let _ = stream.body.send_data(Bytes::new(), true);
                    let reply = client.reply(stream);
                    let refused = reply.cut.is_some() || reply.status == 400;
                    assert!(refused || query == "leaves", "{reply:?}");
                }
                _ => {
                    stream.body.send_reset(Reason::CANCEL);
                    assert_eq!(client.get("/health").text(), "fine");
                }
            }
            cut::never_whole(&server, false);
        }
    }
}

fn the_end_of_the_connection_ends_all_programs() {
    let (server, socket) = serve(new_site().defaults(KILLED).config("max_running = 20"));
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let target = |i| format!("/cgi-bin/t?touch=on{i}&head&out=a&bg=hang&hang");
    let streams: Vec<_> = (0..10)
        .map(|i| client.begin("GET", &target(i), true))
        .collect();
    for i in 0..10 {
        server.wait_for(&format!("on{i}"));
    }
    drop((streams, client));
    watch.after(&["client_gone"; 10]);
}

fn a_cut_response_is_reset() {
    let (server, socket) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut client = Connection::connect(&socket);
    let short = encode("Content-Type: a/b\nContent-Length: 9\n\n");
    for steps in [
        "head&fill=100000&die=9",
        "head&out=a&touch=x&die=11",
        &format!("out={short}&out=abc"),
    ] {
        let reply = client.get(&format!("/cgi-bin/t?{steps}"));
        // If the program died before the server sent anything, the answer is a 502.
        let cut = reply.cut == Some(Reason::INTERNAL_ERROR);
        assert!(cut || reply.status == 502, "{steps}: {reply:?}");
    }
    drop(client);
    watch.after(&["script_error"; 3]);
}

fn term_lets_streams_finish() {
    let (server, socket) = serve(new_site().config("shutdown_grace = \"1h\""));
    let [mut client, mut idle, mut new] = [(); 3].map(|()| Connection::connect(&socket));
    assert_eq!(idle.get("/health").text(), "fine");
    let mute = client.begin("GET", "/cgi-bin/t?touch=on&await=go&head&out=done", true);
    let begun = client.begin("GET", "/cgi-bin/t?head&out=begin&await=go&out=end", true);
    let (mut reply, body) = client.head(begun);
    assert_eq!(reply.status, 200);
    server.wait_for("on");
    server.signal(Signal::TERM);
    // The idle connection ends at once, by a GOAWAY without an error.
    let idle = idle.driver.join().unwrap();
    assert!(idle.is_ok(), "{idle:?}");
    // The first request of a connection may have been on its way, so it is answered.
    assert_eq!(new.get("/health").text(), "fine");
    let new = new.driver.join().unwrap();
    assert!(new.is_ok(), "{new:?}");
    // The busy connection takes no more requests once the client has got the GOAWAY.
    eventually("GOAWAY", || {
        match client.send(request("GET", "/health"), true) {
            Ok(stream) => client.reply(stream).cut.map(drop),
            Err(_) => Some(()),
        }
    });
    server.set("go");
    let mut body = body.unwrap();
    while client.more(&mut reply, &mut body) {}
    assert_eq!((reply.text().as_str(), reply.cut), ("beginend", None));
    assert_eq!(client.reply(mute).text(), "done");
    drop(body);
    assert!(client.end().is_ok());
    ended(server);
}

/// Waits for the end of the server and of all its programs.
fn ended(mut server: Server) {
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    // The kernel takes its time to end killed processes.
    wait_until("the end of its programs", || {
        process::of_site(server.site.folder()).is_empty()
    });
}

fn the_grace_ends_streams() {
    let (server, socket) = serve(new_site().config("shutdown_grace = \"300ms\""));
    let mut client = Connection::connect(&socket);
    let mute = client.begin("GET", "/cgi-bin/t?deaf&touch=on&hang", true);
    let begun = client.begin("GET", "/cgi-bin/t?deaf&head&out=begin&bg=hang&hang", true);
    let (mut reply, body) = client.head(begun);
    server.wait_for("on");
    server.signal(Signal::TERM);
    let mut body = body.unwrap();
    while client.more(&mut reply, &mut body) {}
    assert!(reply.text() == "begin" && reply.cut.is_some());
    assert!(client.reply(mute).cut.is_some());
    let log = server.path("access.log");
    let shut = || {
        std::fs::read_to_string(&log)
            .unwrap()
            .matches("\"shutdown\"")
            .count()
    };
    eventually("two lines", || (shut() == 2).then_some(()));
    ended(server);
}

fn an_idle_connection_ends() {
    let config = "keep_alive = \"100ms\"\nhead_timeout = \"1h\"";
    let (_server, socket) = serve(new_site().config(config));
    // A connection may wait longer for its first request than another connection for its second.
    let mut new = Connection::connect(&socket);
    let mut client = Connection::connect(&socket);
    assert_eq!(client.get("/health").text(), "fine");
    // The last frames of the client may come too late.
    let _ = client.driver.join().unwrap();
    assert_eq!(new.get("/health").text(), "fine");
}

/// A preface, and a GET of /health (RFC 9113, 3.4 and 6.2; RFC 7541, Appendix A).
const ASKS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
    \0\0\x16\x01\x05\0\0\0\x01\x82\x86\x04\x07/health\x01\x09localhost";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0galgo???";

/// A reset could overtake GOAWAY, without which a client does not know which of its requests were answered.
fn what_comes_while_a_connection_ends_resets_nothing() {
    let (_server, socket) = serve(new_site().config("keep_alive = \"100ms\""));
    // On a machine that stands still for seconds, the test may write too late on one connection.
    eventually("a connection that still reads", || {
        let mut raw = UnixStream::connect(&socket).unwrap();
        raw.write_all(ASKS).unwrap();
        let mut heard = Vec::new();
        raw.read_to_end(&mut heard).unwrap();
        assert!(
            heard.windows(4).any(|w| w == b"fine"),
            "{}",
            heard.escape_ascii()
        );
        raw.write_all(PING).ok()
    });
}
