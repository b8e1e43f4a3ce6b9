//! Time: streaming, the three clocks, programs that fail, many requests at once.

use crate::harness::{encode, list, new_site, watch::Watch};
use galgo_testkit::{End, Server, eventually, wait_until};
use std::{
    thread,
    time::{Duration, Instant},
};

list![
    server_sent_events_arrive_one_by_one,
    first_byte_timeout_is_a_504,
    a_deaf_program_is_killed_after_its_grace,
    idle_timeout_cuts,
    idle_timeout_is_no_total,
    total_timeout_before_the_head_is_a_504,
    total_timeout_cuts_what_never_ends,
    run_to_completion,
    run_to_completion_is_no_excuse_for_the_total_clock,
    a_failed_program_shows_its_cause_to_its_author,
    a_failure_behind_the_head_is_not_lost,
    every_client_gets_its_own_response,
];

fn server_sent_events_arrive_one_by_one() {
    let server = new_site().start();
    let mut client = server.connect();
    let event = |n: usize| format!("out={}&await={n}", encode(format!("data: {n}\n\n")));
    let events: Vec<_> = (0..10).map(event).collect();
    let head = encode("Content-Type: text/event-stream\n\n");
    client.get(&format!("/cgi-bin/t?out={head}&{}", events.join("&")));
    assert_eq!(
        client.head().field("content-type"),
        Some("text/event-stream")
    );
    for n in 0..10 {
        assert_eq!(client.chunk().unwrap(), format!("data: {n}\n\n").as_bytes());
        server.set(&n.to_string());
    }
    assert_eq!(client.chunk().unwrap(), b"");
}

/// Returns how many programs have ended after a timeout: each then has its line in the access log.
fn ended(server: &Server) -> usize {
    let lines = server.access();
    let late = lines.iter().filter(|l| l["outcome"] == "script_timeout");
    late.count()
}

fn first_byte_timeout_is_a_504() {
    let server = new_site()
        .defaults("first_byte_timeout = \"200ms\"\nkill_grace = \"1m\"")
        .start();
    let watch = Watch::begin(&server);
    // Words on standard error are no head. The loop repeats until a program came far enough, within
    // its time, to be told to end.
    let mut asked = 0;
    wait_until("one that was told to end", || {
        let reply = server.get("/cgi-bin/t?touch=up&last=told&err=still%20busy&hang");
        assert_eq!((reply.status, reply.end), (504, End::Whole));
        asked += 1;
        wait_until("its end", || ended(&server) == asked);
        server.mark("told").exists()
    });
    server.says("first_byte_timeout");
    watch.after(&vec!["script_timeout"; asked]);
}

fn a_deaf_program_is_killed_after_its_grace() {
    let settings = "first_byte_timeout = \"100ms\"\nkill_grace = \"100ms\"";
    let server = new_site().defaults(settings).start();
    let watch = Watch::begin(&server);
    assert_eq!(
        server.get("/cgi-bin/t?deaf&bg=deaf%26hang&hang").status,
        504
    );
    watch.after(&["script_timeout"]);
}

fn idle_timeout_cuts() {
    let server = new_site().defaults("idle_timeout = \"200ms\"").start();
    let watch = Watch::begin(&server);
    let document = encode("Content-Type: text/plain\n\na");
    let reply = server.get(&format!("/cgi-bin/t?out={document}&hang"));
    assert_eq!((reply.text(), reply.end), ("a".into(), End::Cut));
    server.says("idle_timeout");
    watch.after(&["script_timeout"]);
}

/// Each byte that moves restarts the clock.
fn idle_timeout_is_no_total() {
    const IDLE: Duration = Duration::from_millis(500);
    let server = new_site().defaults("idle_timeout = \"500ms\"").start();
    let mut turn = 0;
    // Try once more if the machine stood still for so long that the clock had to run out.
    eventually("a program that is never idle", || {
        turn += 1;
        let mut client = server.connect();
        let steps: String = (0..12)
            .map(|n| format!("&out=x&await={turn}-{n}"))
            .collect();
        let mut moved = Instant::now();
        client.get(&format!("/cgi-bin/t?head{steps}"));
        client.head();
        for n in 0..12 {
            let came = client.chunk();
            assert!(came.is_some() || moved.elapsed() >= IDLE, "cut at {n}");
            assert_eq!(came?, b"x");
            thread::sleep(Duration::from_millis(60));
            // The program prints its next byte only after this moment.
            moved = Instant::now();
            server.set(&format!("{turn}-{n}"));
        }
        let end = client.chunk();
        assert!(end.is_some() || moved.elapsed() >= IDLE, "cut at the end");
        assert_eq!(end?, b"");
        Some(())
    });
}

fn total_timeout_before_the_head_is_a_504() {
    let server = new_site().defaults("total_timeout = \"200ms\"").start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/cgi-bin/t?hang").status, 504);
    server.says("total_timeout");
    watch.after(&["script_timeout"]);
}

fn total_timeout_cuts_what_never_ends() {
    let server = new_site().defaults("total_timeout = \"500ms\"").start();
    let watch = Watch::begin(&server).memory(24 << 20);
    // Try once more if the program had not printed its head by then.
    let mut asked = 0;
    wait_until("a response that began", || {
        let reply = server.get("/cgi-bin/t?head&endless");
        asked += 1;
        let began = (reply.status, reply.end) == (200, End::Cut);
        assert!(began || reply.status == 504, "{}", reply.head);
        began
    });
    server.says("total_timeout");
    watch.after(&vec!["script_timeout"; asked]);
}

fn run_to_completion() {
    let server = new_site().defaults("run_to_completion = true").start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&touch=up&await=gone&fill=1000000&touch=done");
    assert_eq!(client.head().status, 200);
    server.wait_for("up");
    client.reset();
    server.set("gone");
    server.wait_for("done");
    let lines = watch.after(&["client_gone"]);
    assert_eq!(lines[0]["exit"], 0);
}

fn run_to_completion_is_no_excuse_for_the_total_clock() {
    let settings = "run_to_completion = true\ntotal_timeout = \"300ms\"";
    let server = new_site().defaults(settings).start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/cgi-bin/t?touch=up&hang");
    server.wait_for("up");
    client.reset();
    watch.after(&["client_gone"]);
}

fn a_failed_program_shows_its_cause_to_its_author() {
    let query = "/cgi-bin/t?err=%3Cwhy%3E%0A&exit=3";
    let server = new_site().config("dev_errors = true").start();
    let reply = server.get(query);
    assert_eq!(reply.status, 502);
    for words in ["it exited with status 3", "&lt;why&gt;"] {
        assert!(reply.text().contains(words), "{words} in {}", reply.text());
    }
    // Without `dev_errors` the page does not tell the reason.
    let server = new_site().config("dev_errors = false").start();
    let text = server.get(query).text();
    assert!(!text.contains("exited") && !text.contains("why"), "{text}");
}

/// An exception after the head would leave a blank page. With `dev_errors` the client sees an error
/// page instead, and the log has the exit status in any case.
fn a_failure_behind_the_head_is_not_lost() {
    let query = "/cgi-bin/t?head&err=%3Cwhy%3E%0A&exit=3";
    let server = new_site().config("dev_errors = true").start();
    let reply = server.get(query);
    assert_eq!(reply.status, 502);
    for words in [
        "a head but no document, and ended with status 3",
        "&lt;why&gt;",
    ] {
        assert!(reply.text().contains(words), "{words} in {}", reply.text());
    }
    server.says("a head but no document, and ended with status 3");
    // A page that was printed is shown, and a page that is empty on purpose stays empty.
    for (steps, status) in [
        ("head&out=page&exit=3", 200),
        ("head", 200),
        ("out=Status:%20204%0A%0A&exit=3", 204),
    ] {
        assert_eq!(
            server.get(&format!("/cgi-bin/t?{steps}")).status,
            status,
            "{steps}"
        );
    }
    let head = server.ask("HEAD /cgi-bin/t?head&exit=3 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(head.status, 200);
    // Without `dev_errors` the client gets the output of the program unchanged.
    let server = new_site().config("dev_errors = false").start();
    let reply = server.get(query);
    assert_eq!((reply.status, reply.text().as_str()), (200, ""));
    server.says("] /cgi-bin/t: exited with status 3 after its response");
}

/// Each request carries a nonce, and some clients leave in the middle: no client gets the response of another.
fn every_client_gets_its_own_response() {
    let server = new_site().config("max_running = 4").start();
    let watch = Watch::begin(&server).memory(24 << 20);
    let until = Instant::now() + Duration::from_secs(6);
    let one = |seed: u64| {
        let mut random = seed;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            random >> 33
        };
        let mut client = server.connect();
        let mut matched = 0_usize;
        while Instant::now() < until || matched < 8 {
            let nonce = format!("n{seed}-{}", next());
            match next() % 6 {
                0 => {
                    // Abandoned: in the response, or before it.
                    client.get(&format!("/cgi-bin/t?head&out={nonce}&fill=100000"));
                    if next() % 2 == 0 {
                        client.head();
                    }
                    client = server.connect();
                    continue;
                }
                1 => {
                    let location = encode(format!("Location: /cgi-bin/t?head&out={nonce}\n\n"));
                    client.get(&format!("/cgi-bin/t?out={location}"));
                }
                2 => {
                    client.post("/cgi-bin/t?head&echo", nonce.as_bytes());
                }
                3 => client.post(
                    &format!("/cgi-bin/t?head&out={nonce}"),
                    b"nobody reads this",
                ),
                4 => client.get(&format!("/cgi-bin/t?head&out={nonce}")),
                _ => client.get(&format!("/cgi-bin/t?err={nonce}&head&out={nonce}")),
            }
            let reply = client.reply();
            assert_eq!((reply.status, reply.text()), (200, nonce));
            matched += 1;
        }
        matched
    };
    let matched: usize = thread::scope(|scope| {
        let clients: Vec<_> = (1..=16)
            .map(|seed| scope.spawn(move || one(seed)))
            .collect();
        clients.into_iter().map(|c| c.join().unwrap()).sum()
    });
    assert!(matched > 100, "{matched} responses");
    drop(watch);
    assert!(!server.errors().contains("panicked"));
}
