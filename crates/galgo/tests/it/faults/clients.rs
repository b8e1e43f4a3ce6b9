//! Clients that leave, dawdle, or ask for too much.

use std::{thread, time::Duration};

use crate::harness::{Client, End, Server, Site, encode, eventually, list, watch};

/// How a client leaves.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Leave {
    Fin,
    Rst,
}
use Leave::{Fin, Rst};

impl Leave {
    fn now(self, client: Client) {
        match self {
            Fin => drop(client),
            Rst => client.reset(),
        }
    }
}

/// Leaves once `ready` has brought the request to where it should be cut off.
fn leaves(how: Leave, site: Site, ready: impl Fn(&Server, &mut Client)) {
    let server = site.start();
    let watch = server.watch();
    let mut client = server.connect();
    ready(&server, &mut client);
    how.now(client);
    watch.after(&["client_gone"]);
}

fn gone_in_the_request_head() {
    leaves(Fin, Site::new(), |_, client| {
        client.send("GET /cgi-bin/t?head HTTP/1.1\r\nHos");
    });
}

fn gone_without_a_request() {
    for how in [Fin, Rst] {
        let server = Site::new().start();
        let watch = server.watch();
        how.now(server.connect());
        watch.after(&[]);
    }
}

fn in_the_request_body(how: Leave) {
    leaves(how, Site::new(), |server, client| {
        client.begin_post("/cgi-bin/t?take=5&touch=up&count&head", 1000);
        client.send("12345");
        server.wait_for("up");
    });
}

fn gone_in_the_request_body_fin() {
    in_the_request_body(Fin);
}

fn gone_in_the_request_body_rst() {
    in_the_request_body(Rst);
}

fn while_silent_before_the_head(how: Leave) {
    leaves(how, Site::new(), |server, client| {
        client.get("/cgi-bin/t?touch=up&hang");
        server.wait_for("up");
    });
}

fn gone_while_the_script_is_silent_before_the_head_fin() {
    while_silent_before_the_head(Fin);
}

fn gone_while_the_script_is_silent_before_the_head_rst() {
    while_silent_before_the_head(Rst);
}

fn while_silent_in_the_response(how: Leave) {
    leaves(how, Site::new(), |_, client| {
        client.get("/cgi-bin/t?head&out=a&hang");
        assert_eq!(client.head().status, 200);
        assert_eq!(client.chunk().unwrap(), b"a");
    });
}

fn gone_while_the_script_is_silent_in_the_response_fin() {
    while_silent_in_the_response(Fin);
}

fn gone_while_the_script_is_silent_in_the_response_rst() {
    while_silent_in_the_response(Rst);
}

fn while_output_flows(how: Leave) {
    leaves(how, Site::new(), |_, client| {
        client.get("/cgi-bin/t?head&endless");
        assert_eq!(client.head().status, 200);
        client.take(1_000_000);
    });
}

fn gone_while_output_flows_fin() {
    while_output_flows(Fin);
}

fn gone_while_output_flows_rst() {
    while_output_flows(Rst);
}

fn with_an_unread_body(how: Leave) {
    leaves(how, Site::new(), |server, client| {
        client.begin_post("/cgi-bin/t?touch=up&hang", 1_000_000);
        // More than the pipe to the program holds: what is left stands before the end.
        client.send([b'x'; 120_000]);
        server.wait_for("up");
    });
}

fn gone_while_the_script_does_not_read_fin() {
    with_an_unread_body(Fin);
}

fn gone_while_the_script_does_not_read_rst() {
    with_an_unread_body(Rst);
}

fn in_the_queue(how: Leave) {
    let server = Site::new().top("max_running = 1").start();
    let watch = server.watch();
    let mut first = server.connect();
    first.get("/cgi-bin/t?touch=first&await=go&head");
    server.wait_for("first");
    let mut second = server.connect();
    second.get("/cgi-bin/t?touch=second&hang");
    // It must have been read before it leaves, else nothing is left to be noticed.
    thread::sleep(Duration::from_millis(50));
    how.now(second);
    server.set("go");
    assert_eq!(first.reply().status, 200);
    drop(first);
    watch.after(&["ok", "client_gone"]);
}

fn gone_in_the_queue_fin() {
    in_the_queue(Fin);
}

fn gone_in_the_queue_rst() {
    in_the_queue(Rst);
}

/// The whole group gets TERM, and has its grace while the program itself lives.
fn the_group_of_a_client_that_left_gets_term() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    let child = "bg=last=child%26touch=bg%26hang";
    client.get(&format!(
        "/cgi-bin/t?{child}&await=bg&deaf&touch=up&await=child&touch=parent"
    ));
    server.wait_for("up");
    drop(client);
    server.wait_for("parent");
    watch.after(&["client_gone"]);
}

/// Then KILL, after the grace.
fn the_group_of_a_client_that_left_gets_kill() {
    let site = Site::new().defaults("kill_grace = \"100ms\"");
    leaves(Fin, site, |server, client| {
        client.get("/cgi-bin/t?bg=deaf%26touch=bg%26hang&await=bg&deaf&touch=up&hang");
        server.wait_for("up");
    });
}

fn half_closed_before_the_head_is_not_gone() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/cgi-bin/t?touch=up&await=go&head&out=all");
    server.wait_for("up");
    client.half_close();
    // An interim response shows that the server has noticed.
    assert_eq!(client.head().status, 102);
    server.set("go");
    let reply = client.reply();
    assert_eq!((reply.text(), reply.end), ("all".into(), End::Whole));
    assert!(client.is_over());
    drop(client);
    watch.after(&["ok"]);
}

fn half_closed_between_chunks_is_not_gone() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&await=go&out=b&await=on&out=c");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.chunk().unwrap(), b"a");
    client.half_close();
    // The leading zero of the next chunk's size shows that the server has noticed.
    assert_eq!(client.take(1), b"0");
    server.set("go");
    assert_eq!(client.chunk().unwrap(), b"b");
    server.set("on");
    assert_eq!(client.chunk().unwrap(), b"c");
    assert_eq!(client.chunk().unwrap(), b"");
    assert!(client.is_over());
    drop(client);
    watch.after(&["ok"]);
}

/// The probe's zero stands before the last chunk.
fn half_closed_before_the_last_chunk_is_not_gone() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&await=go");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.chunk().unwrap(), b"a");
    client.half_close();
    assert_eq!(client.take(1), b"0");
    server.set("go");
    assert_eq!(client.rest(), b"0\r\n\r\n");
    drop(client);
    watch.after(&["ok"]);
}

/// Here nothing can be sent to see who still reads: half-closed is all the server knows.
fn half_closed_in_a_body_of_known_length_is_not_gone() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    let head = encode("Content-Type: text/plain\nContent-Length: 2\n\na");
    client.get(&format!("/cgi-bin/t?out={head}&touch=up&await=go&out=b"));
    assert_eq!(client.head().status, 200);
    assert_eq!(client.take(1), b"a");
    client.half_close();
    // Another connection's request is answered behind the half-close's arrival.
    assert_eq!(server.get("/health").status, 200);
    server.set("go");
    assert_eq!(client.rest(), b"b");
    drop(client);
    watch.after(&["ok"]);
}

fn half_closed_with_the_request_is_not_gone() {
    let server = Site::new().start();
    let watch = server.watch();
    for request in [
        "GET /cgi-bin/t?head&out=a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /cgi-bin/t?head&out=a HTTP/1.0\r\n\r\n",
        "POST /cgi-bin/t?take=3&head&out=a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    ] {
        let mut client = server.connect();
        client.send(request);
        client.half_close();
        assert_eq!(client.reply().text(), "a");
        assert!(client.is_over());
    }
    watch.after(&["ok", "ok", "ok"]);
}

fn half_closed_behind_pipelined_requests_is_not_gone() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    for n in 0..3 {
        client.get(&format!("/cgi-bin/t?await=go&head&out={n}"));
    }
    client.half_close();
    assert_eq!(client.head().status, 102);
    server.set("go");
    for n in 0..3 {
        assert_eq!(client.reply().text(), n.to_string());
    }
    assert!(client.is_over());
    drop(client);
    watch.after(&["ok"; 3]);
}

fn a_head_of_one_byte_at_a_time_meets_a_total_deadline() {
    let server = Site::new().top("head_timeout = \"1s\"").start();
    let watch = server.watch();
    let mut client = server.connect();
    let dripping = drip(&client, "GET /".bytes().chain(std::iter::repeat(b'x')));
    let reply = client.reply();
    assert_eq!(reply.status, 408);
    assert!(reply.closes() && client.is_over());
    drop(client);
    dripping.join().unwrap();
    watch.after(&["client_error"]);
}

fn a_body_of_one_byte_at_a_time_meets_the_minimum_rate() {
    let server = Site::new().top("rate_grace = \"1s\"").start();
    let watch = server.watch();
    let mut client = server.connect();
    // What it prints once its input ends is discarded.
    client.begin_post("/cgi-bin/t?touch=up&count&head&out=never", 100_000);
    server.wait_for("up");
    let dripping = drip(&client, std::iter::repeat(b'x'));
    let reply = client.reply();
    assert_eq!((reply.status, reply.end), (408, End::Whole));
    assert!(reply.closes() && client.is_over());
    drop(client);
    dripping.join().unwrap();
    watch.after(&["client_error"]);
}

/// Sends a byte every 20 ms from another thread until the server takes no more.
fn drip(
    client: &Client,
    bytes: impl Iterator<Item = u8> + Send + 'static,
) -> thread::JoinHandle<()> {
    use std::io::Write;
    let mut stream = client.stream.try_clone().unwrap();
    thread::spawn(move || {
        for byte in bytes {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    })
}

fn a_bad_chunk_in_the_middle_of_an_exchange() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.send(
        "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n",
    );
    assert_eq!(client.head().status, 200);
    assert_eq!(client.chunk().unwrap(), b"a");
    client.send("0x1\r\nb\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.chunk(), None, "not cut");
    drop(client);
    watch.after(&["client_error"]);
}

fn content_length_longer_than_what_is_sent() {
    let server = Site::new().top("rate_grace = \"1s\"").start();
    let watch = server.watch();
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?count&head&out=never", 100);
    client.send("only this");
    let reply = client.reply();
    assert_eq!((reply.status, reply.end), (408, End::Whole));
    assert!(!reply.text().contains("never"));
    assert!(client.is_over());
    drop(client);
    watch.after(&["client_error"]);
}

fn content_length_longer_than_what_is_sent_and_then_closed() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?count&head&out=never", 100);
    client.send("only this");
    client.half_close();
    assert!(client.is_over());
    drop(client);
    watch.after(&["client_gone"]);
}

fn a_file_to_a_reader_that_stops_reading() {
    let site = Site::new().top("rate_grace = \"1s\"");
    let server = site
        .file("public/large", vec![b'x'; 50_000_000], 0o644)
        .start();
    let watch = server.watch().memory(24 << 20);
    let mut client = server.connect();
    client.get("/large");
    assert_eq!(client.head().status, 200);
    eventually("the cut in the access log", || {
        server
            .access()
            .iter()
            .any(|l| l["outcome"] == "cut")
            .then_some(())
    });
    assert!(client.rest().len() < 50_000_000);
    drop(client);
    watch.after(&["cut"]);
}

/// Ten thousand, or as many as the limit of descriptors lets a server take.
fn ten_thousand_idle_connections() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap();
    let many = (limit.saturating_sub(2000) / 2).min(10_000);
    if many < 5000 {
        crate::harness::skip!("needs a limit of 12000 descriptors: ulimit -n");
    }
    let server = Site::new().start();
    let watch = server.watch();
    let before = watch::memory(server.pid(), "VmRSS");
    let mut idle: Vec<_> = (0..many)
        .map(|_| {
            let mut client = server.connect();
            client.get("/health");
            assert_eq!(client.reply().text(), "fine");
            client
        })
        .collect();
    let each = (watch::memory(server.pid(), "VmRSS").saturating_sub(before)) / many as u64;
    assert!(each < 10 << 10, "{each} bytes for each idle connection");
    assert_eq!(server.get("/cgi-bin/t?head&out=active").text(), "active");
    // All of them are still served.
    for client in idle.iter_mut().step_by(997) {
        client.get("/health");
        assert_eq!(client.reply().text(), "fine");
    }
    drop(idle);
    watch.after(&["ok"]);
}

fn the_oldest_idle_connections_are_shed() {
    let server = Site::new().top("max_connections = 50").start();
    let watch = server.watch();
    let mut all: Vec<_> = (0..80)
        .map(|_| {
            let mut client = server.connect();
            client.get("/health");
            assert_eq!(client.reply().text(), "fine");
            client
        })
        .collect();
    // As many of the first as are too many have been closed, and none of the last.
    eventually("the end of what is too much", || {
        let closed = all[..60].iter().filter(|c| c.is_closed()).count();
        (closed >= 29).then_some(())
    });
    assert!(!all[60..].iter().any(Client::is_closed));
    let last = all.last_mut().unwrap();
    last.get("/health");
    assert_eq!(last.reply().text(), "fine");
    drop(all);
    watch.after(&[]);
}

fn busy_connections_are_not_shed() {
    let server = Site::new()
        .top("max_connections = 10\nmax_running = 10")
        .start();
    let mut busy: Vec<_> = (0..10)
        .map(|n| {
            let mut client = server.connect();
            client.get(&format!("/cgi-bin/t?touch={n}&await=go&head&out={n}"));
            server.wait_for(&n.to_string());
            client
        })
        .collect();
    let mut more = server.connect();
    more.get("/health");
    let refused = more.reply();
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (503, Some("1"))
    );
    assert!(refused.closes() && more.is_over());
    server.set("go");
    for (n, client) in busy.iter_mut().enumerate() {
        assert_eq!(client.reply().text(), n.to_string());
    }
}

fn a_thousand_pipelined_requests() {
    const MANY: usize = 1000;
    let server = Site::new().start();
    let watch = server.watch().memory(24 << 20);
    let mut client = server.connect();
    let mut sender = Client {
        stream: client.stream.try_clone().unwrap(),
        ..server.connect()
    };
    let sending = thread::spawn(move || {
        for n in 0..MANY {
            sender.get(&format!("/cgi-bin/t?alone&head&out={n}"));
        }
    });
    for n in 0..MANY {
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (200, n.to_string()));
    }
    sending.join().unwrap();
    drop(client);
    watch.after(&["ok"; MANY]);
}

/// More than is read ahead, in pieces that end where requests do.
fn pipelined_requests_that_fill_what_is_read_ahead() {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    let request = |target: &str| {
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nX: ");
        while request.len() < 124 {
            request.push('x');
        }
        request + "\r\n\r\n"
    };
    client.send(request("/cgi-bin/t?touch=up&await=go&head&out=first"));
    server.wait_for("up");
    const MANY: usize = 2000;
    client.send(request("/health").repeat(MANY));
    // The program's client is read no further than a bound; everything behind waits in the kernel.
    thread::sleep(Duration::from_millis(100));
    server.set("go");
    assert_eq!(client.reply().text(), "first");
    for _ in 0..MANY {
        assert_eq!(client.reply().text(), "fine");
    }
    drop(client);
    watch.after(&["ok"]);
}

fn too_large(request: impl AsRef<[u8]>, status: u16) {
    let server = Site::new().start();
    let watch = server.watch();
    let mut client = server.connect();
    client.try_send(request);
    let reply = client.reply();
    assert_eq!((reply.status, reply.end), (status, End::Whole));
    assert!(reply.closes() && client.is_over());
    drop(client);
    watch.after(&["client_error"]);
}

fn a_target_of_100_kb() {
    let target = "/cgi-bin/t?".to_owned() + &"x".repeat(100_000);
    too_large(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
}

fn cookies_of_64_kib() {
    let cookie = "Cookie: a=b; ccccccc=ddddddd\r\n".repeat(2300);
    too_large(
        format!("GET /cgi-bin/t?head HTTP/1.1\r\nHost: a\r\n{cookie}\r\n"),
        431,
    );
}

fn ten_thousand_request_headers() {
    let fields = "X: y\r\n".repeat(10_000);
    too_large(
        format!("GET /cgi-bin/t?head HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
        431,
    );
}

/// What a larger `max_head` lets through and no program can be given.
fn a_field_longer_than_any_variable() {
    let server = Site::new().top("max_head = \"1M\"").start();
    let watch = server.watch();
    let cookie = "x".repeat(200_000);
    let request = format!("GET /cgi-bin/t?head HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
    assert_eq!(server.ask(request).status, 431);
    watch.after(&["client_error"]);
}

fn beyond_limit_and_queue_503_at_once() {
    let server = Site::new().top("max_running = 1\nqueue = 1").start();
    let watch = server.watch();
    let (mut first, mut second) = (server.connect(), server.connect());
    first.get("/cgi-bin/t?touch=up&await=go&head&out=first");
    server.wait_for("up");
    second.get("/cgi-bin/t?head&out=second");
    let mut third = server.connect();
    third.get("/cgi-bin/t?head&out=third");
    // One of these two waits, the other is refused; then nobody else gets a place.
    eventually("a refusal", || {
        let busy = |l: &serde_json::Value| l["outcome"] == "busy";
        server.access().iter().any(busy).then_some(())
    });
    let refused = server.get("/cgi-bin/t?touch=ran&head");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert!(!server.mark("ran").exists());
    server.set("go");
    assert_eq!(first.reply().text(), "first");
    let mut statuses = [second.reply().status, third.reply().status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
    drop((first, second, third));
    watch.after(&["ok", "ok", "busy", "busy"]);
}

fn longer_than_queue_wait_503() {
    let server = Site::new()
        .top("max_running = 1\nqueue_wait = \"100ms\"")
        .start();
    let watch = server.watch();
    let mut first = server.connect();
    first.get("/cgi-bin/t?touch=up&await=go&head&out=first");
    server.wait_for("up");
    let late = server.get("/cgi-bin/t?head");
    assert_eq!((late.status, late.field("retry-after")), (503, Some("1")));
    server.set("go");
    assert_eq!(first.reply().text(), "first");
    drop(first);
    watch.after(&["ok", "busy"]);
}

/// Every request that is let in is answered, and every other at once.
fn goodput_under_overload() {
    let server = Site::new().top("max_running = 2\nqueue = 4").start();
    let watch = server.watch().memory(24 << 20);
    let clients: Vec<_> = (0..64)
        .map(|_| {
            let mut client = server.connect();
            thread::spawn(move || {
                let mut counts = [0; 2];
                for _ in 0..20 {
                    client.get("/cgi-bin/t?head&out=x");
                    let reply = client.reply();
                    match reply.status {
                        200 => assert_eq!(reply.text(), "x"),
                        status => assert_eq!(status, 503),
                    }
                    counts[usize::from(reply.status == 503)] += 1;
                }
                counts
            })
        })
        .collect();
    let counts = clients.into_iter().map(|c| c.join().unwrap());
    let [served, refused] = counts.fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
    assert!(
        served > 0 && refused > 0,
        "{served} served, {refused} refused"
    );
    let outcomes = [vec!["ok"; served], vec!["busy"; refused]].concat();
    watch.after(&outcomes);
}

fn a_route_has_a_limit_of_its_own() {
    let server = Site::new()
        .top("max_running = 8\nqueue_wait = \"100ms\"")
        .table("[[route]]\npath = \"/one\"\ncgi = \"cgi-bin/t\"\nmax_running = 1")
        .start();
    let watch = server.watch();
    let mut first = server.connect();
    first.get("/one?touch=up&await=go&head&out=first");
    server.wait_for("up");
    assert_eq!(server.get("/one?head").status, 503);
    // Other routes have room.
    assert_eq!(server.get("/cgi-bin/t?head").status, 200);
    server.set("go");
    assert_eq!(first.reply().text(), "first");
    drop(first);
    watch.after(&["ok", "busy", "ok"]);
}

list![
    gone_without_a_request,
    gone_in_the_request_head,
    gone_in_the_request_body_fin,
    gone_in_the_request_body_rst,
    gone_while_the_script_is_silent_before_the_head_fin,
    gone_while_the_script_is_silent_before_the_head_rst,
    gone_while_the_script_is_silent_in_the_response_fin,
    gone_while_the_script_is_silent_in_the_response_rst,
    gone_while_output_flows_fin,
    gone_while_output_flows_rst,
    gone_while_the_script_does_not_read_fin,
    gone_while_the_script_does_not_read_rst,
    gone_in_the_queue_fin,
    gone_in_the_queue_rst,
    the_group_of_a_client_that_left_gets_term,
    the_group_of_a_client_that_left_gets_kill,
    half_closed_before_the_head_is_not_gone,
    half_closed_between_chunks_is_not_gone,
    half_closed_before_the_last_chunk_is_not_gone,
    half_closed_in_a_body_of_known_length_is_not_gone,
    half_closed_with_the_request_is_not_gone,
    half_closed_behind_pipelined_requests_is_not_gone,
    a_head_of_one_byte_at_a_time_meets_a_total_deadline,
    a_body_of_one_byte_at_a_time_meets_the_minimum_rate,
    a_bad_chunk_in_the_middle_of_an_exchange,
    content_length_longer_than_what_is_sent,
    content_length_longer_than_what_is_sent_and_then_closed,
    a_file_to_a_reader_that_stops_reading,
    ten_thousand_idle_connections,
    the_oldest_idle_connections_are_shed,
    busy_connections_are_not_shed,
    a_thousand_pipelined_requests,
    pipelined_requests_that_fill_what_is_read_ahead,
    a_target_of_100_kb,
    cookies_of_64_kib,
    ten_thousand_request_headers,
    a_field_longer_than_any_variable,
    beyond_limit_and_queue_503_at_once,
    longer_than_queue_wait_503,
    goodput_under_overload,
    a_route_has_a_limit_of_its_own,
];
