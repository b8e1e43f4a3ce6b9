//! Ends of requests and connections of a front.

use super::*;
use crate::faults::cut;

list![
    a_front_that_leaves_ends_the_program,
    a_part_of_a_body_never_passes_for_the_whole,
    a_cut_response_looks_cut,
    the_front_is_told_the_exit_status,
    one_request_at_a_time_on_a_connection,
    several_connections_at_once,
    a_request_split_at_every_byte,
];

fn a_front_that_leaves_ends_the_program() {
    for deaf in ["", "deaf&"] {
        let (server, fcgi, scgi) = serve(new_site().defaults("kill_grace = \"100ms\""));
        let watch = Watch::begin(&server);
        let silent = format!("/cgi-bin/t?{deaf}touch=on&head&out=a&hang");
        let full = request(1, true, &params("GET", &silent, &[]), b"");
        let leave = |front: &mut Front, how: usize| match how {
            0 => front.send(record(ABORT, 1, b"", 0)),
            1 => front.0.stream.shutdown(Shutdown::Write).unwrap(),
            _ => front.0.stream.shutdown(Shutdown::Both).unwrap(),
        };
        for how in 0..3 {
            let mut front = Front::connect(&fcgi);
            front.send(&full);
            server.wait_for("on");
            std::fs::remove_file(server.mark("on")).unwrap();
            leave(&mut front, how);
            assert!(front.reply(1).end.is_none());
        }
        let mut front = Front::connect(&scgi);
        front.send(scgi_head("GET", &silent, "0"));
        server.wait_for("on");
        leave(&mut front, 2);
        // The front leaves while a part of its body is still to come.
        let mut front = Front::connect(&fcgi);
        let all = request(
            1,
            false,
            &params("POST", "/cgi-bin/t?head&echo", &[("CONTENT_LENGTH", "9")]),
            b"123456789",
        );
        front.send(&all[..all.len() - 280]);
        drop(front);
        watch.after(&["client_gone"; 5]);
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
        .defaults(&format!(
            "kill_grace = \"100ms\"\nstream_body = true\nrun_to_completion = {stays}"
        ));
    let (server, fcgi, scgi) = serve(site);
    let part = [b'x'; 150_000];
    let again = || {
        for mark in ["up", "done"] {
            let _ = std::fs::remove_file(server.mark(mark));
        }
    };
    for query in cut::STAYING {
        let target = format!("/cgi-bin/reads?{query}");
        let leave = |front: &mut Front, way: &str| match way {
            "abort" => front.send(record(ABORT, 1, b"", 0)),
            "end of STDIN" => front.send(record(STDIN, 1, b"", 0)),
            "half closed" => front.0.stream.shutdown(Shutdown::Write).unwrap(),
            _ => front.0.stream.shutdown(Shutdown::Both).unwrap(),
        };
        for way in ["abort", "end of STDIN", "half closed", "closed"] {
            again();
            let mut front = Front::connect(&fcgi);
            let params = params("POST", &target, &[("CONTENT_LENGTH", "1000000")]);
            let all = request(1, false, &params, &part);
            // The record that ends STDIN is missing.
            front.send(&all[..all.len() - 8 - 7]);
            server.wait_for("up");
            leave(&mut front, way);
            cut::never_whole(&server, false);
        }
        for way in ["half closed", "closed"] {
            again();
            let mut front = Front::connect(&scgi);
            front.send(scgi_head("POST", &target, "1000000"));
            front.send(part);
            server.wait_for("up");
            leave(&mut front, way);
            cut::never_whole(&server, false);
        }
    }
}

/// A cut response has no END_REQUEST.
fn a_cut_response_looks_cut() {
    let (server, fcgi, _) = serve(new_site());
    let watch = Watch::begin(&server);
    let short = format!(
        "out={}&out=abc",
        encode("Content-Type: a/b\nContent-Length: 9\n\n")
    );
    for steps in [
        "head&fill=100000&die=9",
        "head&out=a&touch=x&die=11",
        &short,
    ] {
        let mut front = Front::connect(&fcgi);
        front.send(request(
            1,
            true,
            &params("GET", &format!("/cgi-bin/t?{steps}"), &[]),
            b"",
        ));
        let reply = front.reply(1);
        // If the program died before the server sent anything, the answer is a 502.
        assert!(
            reply.end.is_none() || reply.head.starts_with("Status: 502"),
            "{steps}: {reply:?}"
        );
    }
    watch.after(&["script_error"; 3]);
}

/// The front gets the exit status whichever way the end of the body is marked.
fn the_front_is_told_the_exit_status() {
    let (server, fcgi, _) = serve(new_site());
    let watch = Watch::begin(&server);
    let typed = |more: &str| encode(format!("Content-Type: text/plain\n{more}\n"));
    let length = typed("Content-Length: 3\n");
    for (query, status) in [
        ("head&out=abc".into(), 0),
        ("head&out=abc&exit=7".into(), 7),
        ("head&exit=255".into(), 255),
        (format!("out={length}&out=abc&exit=8"), 8),
        (format!("out={}&exit=9", encode("Status: 204\n\n")), 9),
        ("head&fill=1000000&exit=10".into(), 10),
    ] {
        let mut front = Front::connect(&fcgi);
        front.send(request(
            1,
            false,
            &params("GET", &format!("/cgi-bin/t?{query}"), &[]),
            b"",
        ));
        let reply = front.reply(1);
        assert_eq!(reply.end, Some((status, 0)), "{query}");
    }
    // A program that dies of a signal after its whole body: the status is 128 plus the number of the signal.
    let mut front = Front::connect(&fcgi);
    let target = format!("/cgi-bin/t?out={length}&out=abc&await=seen&die=15");
    front.send(request(1, false, &params("GET", &target, &[]), b""));
    assert!(front.record().is_some_and(|(kind, ..)| kind == STDOUT));
    server.set("seen");
    assert_eq!(front.reply(1).end, Some((128 + 15, 0)));
    watch.after(&["ok"; 7]);
}

fn one_request_at_a_time_on_a_connection() {
    let (server, fcgi, _) = serve(new_site());
    let watch = Watch::begin(&server);
    let mut front = Front::connect(&fcgi);
    let get_values = record(
        9,
        0,
        &pairs(&[("FCGI_MPXS_CONNS", ""), ("FCGI_OTHER", "")]),
        5,
    );
    front.send(&get_values);
    assert_eq!(
        front.record().unwrap(),
        (10, 0, pairs(&[("FCGI_MPXS_CONNS", "0")]))
    );
    front.send(record(99, 0, b"what", 0));
    assert_eq!(
        front.record().unwrap(),
        (11, 0, vec![99, 0, 0, 0, 0, 0, 0, 0])
    );
    // A role other than FCGI_RESPONDER is refused.
    front.send(record(BEGIN, 3, &[0, 3, 1, 0, 0, 0, 0, 0], 0));
    assert_eq!(
        front.record().unwrap(),
        (END, 3, vec![0, 0, 0, 0, 3, 0, 0, 0])
    );
    // A second request while the first runs is refused once the first is over, and the records of the second are ignored.
    let mut outcomes = vec!["ok"];
    let mut turn = 0;
    eventually("one that is read while another runs", || {
        turn += 1;
        let first = format!("/cgi-bin/t?head&touch=on{turn}&await=go{turn}&out=a");
        front.send(request(1, true, &params("GET", &first, &[]), b""));
        server.wait_for(&format!("on{turn}"));
        let length = [("CONTENT_LENGTH", "4")];
        let second = params("POST", "/cgi-bin/t?count&head&out=b", &length);
        front.send(request(2, true, &second, b"body"));
        (0..20).for_each(|_| assert_eq!(server.get("/health").status, 200));
        server.set(&format!("go{turn}"));
        assert_eq!(front.reply(1).text(), "a");
        outcomes.push("ok");
        let record = front.record().unwrap();
        if record == (END, 2, vec![0, 0, 0, 0, 1, 0, 0, 0]) {
            return Some(());
        }
        // If the second request was still unread by then, it is served next, as on any connection.
        assert_eq!((record.0, record.1), (STDOUT, 2));
        assert_eq!(front.reply(2).end, DONE);
        outcomes.push("ok");
        None
    });
    // An abort before the variables are whole, then another request.
    front.send(
        [
            begin(5, true),
            record(PARAMS, 5, &pairs(&[("A", "b")]), 0),
            record(ABORT, 5, b"", 0),
        ]
        .concat(),
    );
    assert_eq!(front.record().unwrap(), (STDOUT, 5, vec![]));
    assert_eq!(front.record().unwrap(), (END, 5, vec![0; 8]));
    front.send(request(
        6,
        true,
        &params("GET", "/cgi-bin/t?head&out=c", &[]),
        b"",
    ));
    assert_eq!(front.reply(6).text(), "c");
    drop(front);
    watch.after(&outcomes);
}

fn several_connections_at_once() {
    let (server, fcgi, _) = serve(new_site().config("max_running = 16"));
    let watch = Watch::begin(&server);
    let mut fronts: Vec<_> = (0..8).map(|_| Front::connect(&fcgi)).collect();
    for (i, front) in fronts.iter_mut().enumerate() {
        let target = format!("/cgi-bin/t?head&touch=on{i}&await=go&out={i}");
        front.send(request(1, false, &params("GET", &target, &[]), b""));
    }
    for i in 0..8 {
        server.wait_for(&format!("on{i}"));
    }
    server.set("go");
    for (i, front) in fronts.iter_mut().enumerate() {
        assert_eq!(front.reply(1).text(), i.to_string());
    }
    watch.after(&["ok"; 8]);
}

fn a_request_split_at_every_byte() {
    let (server, fcgi, _) = serve(new_site());
    let watch = Watch::begin(&server);
    let all = request(
        1,
        true,
        &params("POST", "/cgi-bin/t?head&echo", &[("CONTENT_LENGTH", "5")]),
        b"12345",
    );
    let mut front = Front::connect(&fcgi);
    for byte in &all {
        front.send([*byte]);
    }
    assert_eq!(front.reply(1).text(), "12345");
    for cut in (1..all.len()).step_by(13) {
        front.send(&all[..cut]);
        std::thread::yield_now();
        front.send(&all[cut..]);
        assert_eq!(front.reply(1).text(), "12345", "cut at {cut}");
    }
    drop(front);
    let requests = 1 + (1..all.len()).step_by(13).count();
    watch.after(&vec!["ok"; requests]);
}
