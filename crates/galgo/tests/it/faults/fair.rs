//! Clients that take more than their share of permits, of the queue or of connections: others are served meanwhile.

use std::{thread, time::Duration};

use crate::harness::{
    list, new_site,
    upstream::{Application, document, hear, say},
    watch::Watch,
};
use galgo_testkit::{Client, End, Server, Site, client::proxy_header, eventually, wait_until};

/// Connects from an address that no other client of these tests has.
fn other(server: &Server) -> Client {
    Client::connect_from([127, 0, 0, 2], server.address())
}

/// Asks from that address, and checks the answer.
fn another_is_served(server: &Server) {
    let mut client = other(server);
    client.get("/cgi-bin/t?head&out=served");
    let reply = client.reply();
    assert_eq!((reply.status, reply.text()), (200, "served".into()));
}

/// The first byte of a body is not enough to hold a permit, however many clients send one.
fn bodies_that_have_hardly_begun_hold_no_permit() {
    // Slowness must not end any client here.
    let server = new_site().config("max_running = 4\nmin_rate = 0").start();
    let watch = Watch::begin(&server);
    let begin = |n: usize| {
        let mut client = server.connect();
        match n % 2 {
            0 => client.begin_post("/cgi-bin/t?touch=up&head&count", 1000 + n * 1000),
            _ => client.send(
                "POST /cgi-bin/t?touch=up&head&count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            ),
        }
        client
    };
    let mut slow: Vec<_> = (0..100).map(begin).collect();
    for _ in 0..3 {
        for (n, client) in slow.iter_mut().enumerate() {
            client.send(if n % 2 == 0 { "x" } else { "1\r\nx\r\n" });
        }
        slow.iter().for_each(Client::wait_until_read);
        another_is_served(&server);
    }
    assert!(!server.mark("up").exists(), "a program was started");
    // A client that goes on gets its answer.
    let mut first = slow.swap_remove(1);
    first.send("5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(first.reply().text(), "8");
    drop(first);
    let gone = slow.len();
    drop(slow);
    let outcomes = [vec!["ok"; 4], vec!["client_gone"; gone]].concat();
    watch.after(&outcomes);
}

/// `100 Continue` is sent while every permit is taken, else the body would never come.
fn a_body_is_asked_for_before_there_is_a_permit() {
    let server = new_site().config("max_running = 1").start();
    let watch = Watch::begin(&server);
    let mut first = server.connect();
    first.get("/cgi-bin/t?touch=up&await=go&head");
    server.wait_for("up");
    let mut second = server.connect();
    second.send("POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(second.head().status, 100);
    second.send("hello");
    second.wait_until_read();
    server.set("go");
    assert_eq!(first.reply().status, 200);
    assert_eq!(second.reply().text(), "hello");
    drop((first, second));
    watch.after(&["ok", "ok"]);
}

/// A program gets chunks of all sizes as they were sent, however the server read ahead.
fn a_body_that_was_read_ahead_arrives_whole() {
    let server = new_site().defaults("stream_body = true").start();
    let watch = Watch::begin(&server);
    let mut asked = 0;
    for size in [1, 100, 65_535, 65_536, 65_537, 200_000] {
        let body = crate::harness::child::pattern(0, size);
        for piece in [7, 1000, 40_000] {
            // Large bodies are not sent in tiny pieces.
            if size / piece > 5000 {
                continue;
            }
            let mut client = server.connect();
            client.send(
                "POST /cgi-bin/t?head&echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            for chunk in body.chunks(piece) {
                let size = format!("{:x}\r\n", chunk.len());
                client.send([size.as_bytes(), chunk, b"\r\n"].concat());
            }
            client.send("0\r\n\r\n");
            client.get("/health");
            assert!(client.reply().body == body, "{size} bytes by {piece}");
            assert_eq!(client.reply().text(), "fine");
            asked += 1;
        }
    }
    watch.after(&vec!["ok"; asked]);
}

/// The same holds for an application, whose permits are few, too.
fn an_application_is_not_asked_before_there_is_a_body() {
    let site = new_site();
    let application = Application::start(site.folder(), |_, stream| {
        while let Some(heard) = hear(stream) {
            let length = heard.stdin.len().to_string();
            say(stream, document(length));
        }
    });
    let server = site
        .config("[[route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\nmax_running = 1")
        .start();
    let watch = Watch::begin(&server).keeps(1);
    let mut slow: Vec<_> = (0..3)
        .map(|_| {
            let mut client = server.connect();
            client.begin_post("/app", 10);
            client.send("12345");
            client.wait_until_read();
            client
        })
        .collect();
    assert_eq!(application.accepted(), 0);
    let mut another = other(&server);
    another.get("/app");
    assert_eq!(another.reply().text(), "0");
    for client in &mut slow {
        client.send("67890");
        assert_eq!(client.reply().text(), "10");
    }
    drop((slow, another));
    watch.after(&["ok"; 4]);
}

/// Returns a site on which a client that stays below `busy_rate` for a second is slow; no other clock ends a client.
fn hurried() -> Site {
    new_site().config("max_running = 2\nmin_rate = 0\nrate_grace = \"1s\"")
}

/// Two uploads that stop after they began keep their permits while no client waits. Then one upload is ended.
fn uploads_that_stop_give_way_to_those_who_wait() {
    let server = hurried().start();
    let watch = Watch::begin(&server);
    let mut slow: Vec<_> = (0..2)
        .map(|n| {
            let mut client = server.connect();
            client.begin_post(
                &format!("/cgi-bin/t?touch=up{n}&take=100000&head&out=all"),
                100_000,
            );
            client.send([b'x'; 70_000]);
            server.wait_for(&format!("up{n}"));
            client
        })
        .collect();
    // Longer than the server takes to find a client slow.
    thread::sleep(Duration::from_millis(2500));
    assert!(!slow.iter().any(Client::has_news));
    another_is_served(&server);
    let ended = eventually("the end of one", || slow.iter().position(Client::has_news));
    let reply = slow.swap_remove(ended).reply();
    assert_eq!((reply.status, reply.end), (408, End::Whole));
    let mut left = slow.remove(0);
    left.send([b'x'; 30_000]);
    assert_eq!(left.reply().text(), "all");
    drop(left);
    watch.after(&["ok", "ok", "client_error"]);
}

/// The same for clients that do not read their answer: one answer is visibly cut.
fn readers_that_stop_give_way_to_those_who_wait() {
    let server = hurried().start();
    let watch = Watch::begin(&server);
    let slow: Vec<_> = (0..2)
        .map(|_| {
            let mut client = server.connect();
            client.get("/cgi-bin/t?head&endless");
            assert_eq!(client.head().status, 200);
            client
        })
        .collect();
    another_is_served(&server);
    let first = eventually("the line of one", || {
        let gone = |l: &serde_json::Value| l["outcome"] == "client_gone";
        server.access().into_iter().find(gone)
    });
    assert_eq!(first["status"], 200);
    drop(slow);
    watch.after(&["ok", "client_gone", "client_gone"]);
}

/// Returns a client on 127.0.0.1 that holds a permit until `go`, and the clients that wait behind it.
fn crowd(server: &Server, waiting: usize) -> (Client, Vec<Client>) {
    let mut first = server.connect();
    first.get("/cgi-bin/t?touch=up&await=go&head&out=first");
    server.wait_for("up");
    let wait = |n| {
        let mut client = server.connect();
        client.get(&format!("/cgi-bin/t?touch=ran{n}&head&out={n}"));
        client.wait_until_read();
        client
    };
    (first, (0..waiting).map(wait).collect())
}

/// The next permit goes to the address that holds the fewest.
fn a_permit_goes_to_the_address_that_holds_fewest() {
    let server = new_site().config("max_running = 2").start();
    let watch = Watch::begin(&server);
    let mut held = server.connect();
    held.get("/cgi-bin/t?touch=held&await=end&head&out=held");
    server.wait_for("held");
    let (mut first, mut waiting) = crowd(&server, 5);
    let mut another = other(&server);
    another.get("/cgi-bin/t?touch=other&await=on&head&out=other");
    another.wait_until_read();
    server.set("go");
    assert_eq!(first.reply().text(), "first");
    server.wait_for("other");
    assert!(!server.mark("ran0").exists(), "another came before it");
    server.set("on");
    assert_eq!(another.reply().text(), "other");
    for (n, client) in waiting.iter_mut().enumerate() {
        assert_eq!(client.reply().text(), n.to_string());
    }
    server.set("end");
    assert_eq!(held.reply().text(), "held");
    drop((first, held, another, waiting));
    watch.after(&["ok"; 8]);
}

/// If the queue is full, the newest request of the address with most queued requests gives way.
fn a_full_queue_has_room_for_another_address() {
    let server = new_site().config("max_running = 1\nqueue = 3").start();
    let watch = Watch::begin(&server);
    let (mut first, mut waiting) = crowd(&server, 3);
    let refused = server.get("/cgi-bin/t?head");
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (503, Some("1"))
    );
    let mut another = other(&server);
    another.get("/cgi-bin/t?head&out=other");
    let reply = waiting.pop().unwrap().reply();
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    server.set("go");
    assert_eq!(first.reply().text(), "first");
    assert_eq!(another.reply().text(), "other");
    for (n, client) in waiting.iter_mut().enumerate() {
        assert_eq!(client.reply().text(), n.to_string());
    }
    drop((first, another, waiting));
    watch.after(&["ok", "ok", "ok", "ok", "busy", "busy"]);
}

/// A client that reads slowly, but faster than `min_rate`, is never cut, although the kernel has room for more only
/// seconds later.
fn a_slow_reader_is_not_taken_for_one_that_has_stopped() {
    let large = vec![b'x'; 8_000_000];
    let server = new_site()
        .config("rate_grace = \"1s\"")
        .file("public/large", &large, 0o644)
        .start();
    let watch = Watch::begin(&server);
    for target in ["/large", "/cgi-bin/t?head&fill=8000000"] {
        let mut client = Client::connect_with_buffer(4096, server.address());
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        assert_eq!(client.head().status, 200);
        // 60 KB a second.
        for _ in 0..40 {
            client.take(6000);
            thread::sleep(Duration::from_millis(100));
        }
        let rest = client.rest().len();
        assert!(
            rest >= 8_000_000 - 40 * 6000,
            "{target}: cut behind {rest} bytes more"
        );
    }
    watch.after(&["ok", "ok"]);
}

/// With `min_rate = 0` no client is ever cut because it stopped reading.
fn without_a_minimum_rate_nobody_is_too_slow() {
    let large = vec![b'x'; 20_000_000];
    let server = new_site()
        .config("rate_grace = \"1s\"\nmin_rate = 0")
        .file("public/large", &large, 0o644)
        .start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/large");
    assert_eq!(client.head().status, 200);
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(client.take(large.len()).len(), large.len());
    drop(client);
    watch.after(&["ok"]);
}

/// If every connection is taken, unfinished heads of the address with most of them make room, the oldest first.
fn unfinished_heads_make_room_for_another_address() {
    let site = new_site().config("max_connections = 40\nmax_connections_per_client = 1000");
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut first = other(&server);
    first.send("GET /health HTTP/1.1\r\nX:");
    first.wait_until_read();
    let heads: Vec<_> = (0..200)
        .map(|_| {
            let mut client = server.connect();
            client.try_send("GET /health HTTP/1.1\r\nHost:");
            client
        })
        .collect();
    for _ in 0..3 {
        another_is_served(&server);
    }
    // The unfinished head of the other address, older than all of these, goes on.
    first.send(" y\r\nHost: a\r\n\r\n");
    assert_eq!(first.reply().text(), "fine");
    wait_until("the end of what is too much", || {
        let over = heads.iter().filter(|c| c.has_news()).count();
        over >= 160
    });
    // The address with the many heads is not shut out either.
    wait_until("an answer", || {
        let mut client = server.connect();
        client.try_send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
        client.reply().status == 200
    });
    drop((first, heads));
    drop(watch);
}

/// An address has half of all connections, and no more, whatever it does with them.
fn an_address_has_half_of_all_connections() {
    let server = new_site()
        .config("max_connections = 12\nmax_running = 12")
        .start();
    let mut busy: Vec<_> = (0..6)
        .map(|n| {
            let mut client = server.connect();
            client.get(&format!("/cgi-bin/t?touch={n}&await=go&head&out={n}"));
            server.wait_for(&n.to_string());
            client
        })
        .collect();
    let mut more = server.connect();
    more.try_send("GET /health HTTP/1.1\r\nHost: a\r\n\r\n");
    let refused = more.reply();
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (503, Some("1"))
    );
    another_is_served(&server);
    server.set("go");
    for (n, client) in busy.iter_mut().enumerate() {
        assert_eq!(client.reply().text(), n.to_string());
    }
    // Connections that wait for a request make room for more of the same address.
    let mut next = server.connect();
    next.get("/health");
    assert_eq!(next.reply().text(), "fine");
    // Event loops see in different orders which connection has waited longest.
    wait_until("the end of an old one", || {
        busy.iter().any(Client::is_closed)
    });
}

/// Many clients ask over the connections of a trusted proxy.
fn a_trusted_proxy_has_as_many_connections_as_it_likes() {
    let site = new_site().config(
        "workers = 1\nmax_connections = 40\nmax_connections_per_client = 2\ntrusted_proxies = [\"127.0.0.1\"]",
    );
    let server = site.start();
    let watch = Watch::begin(&server);
    let asks = |mut client: Client| {
        client.get("/health");
        assert_eq!(client.reply().text(), "fine");
        client
    };
    let many: Vec<_> = (0..10).map(|_| asks(server.connect())).collect();
    let others: Vec<_> = (0..3).map(|_| asks(other(&server))).collect();
    wait_until("the end of the oldest", || others[0].is_closed());
    assert!(!many.iter().chain(&others[1..]).any(Client::is_closed));
    drop((many, others));
    watch.after(&[]);
}

/// Behind a proxy that speaks PROXY, connections count for the address that the proxy names, not for the proxy.
fn behind_proxy_headers_clients_are_told_apart() {
    let site = new_site()
        .config("workers = 1\nmax_connections_per_client = 2\ntrusted_proxies = [\"127.0.0.1\"]");
    let server = site
        .arguments(&["--listen", "127.0.0.1:0", "--listen", "proxy+127.0.0.1:0"])
        .start();
    let proxied = server.listens(1);
    let asks = |last: u8| {
        let mut client = Client::connect(proxied);
        client.send(proxy_header([192, 0, 2, last], [198, 51, 100, 2]));
        client.get("/health");
        assert_eq!(client.reply().text(), "fine");
        client
    };
    let one: Vec<_> = (0..3).map(|_| asks(1)).collect();
    let another: Vec<_> = (0..2).map(|_| asks(2)).collect();
    wait_until("the end of the oldest", || one[0].is_closed());
    assert!(!one[1..].iter().chain(&another).any(Client::is_closed));
}

list![
    behind_proxy_headers_clients_are_told_apart,
    unfinished_heads_make_room_for_another_address,
    an_address_has_half_of_all_connections,
    a_trusted_proxy_has_as_many_connections_as_it_likes,
    bodies_that_have_hardly_begun_hold_no_permit,
    a_body_is_asked_for_before_there_is_a_permit,
    a_body_that_was_read_ahead_arrives_whole,
    an_application_is_not_asked_before_there_is_a_body,
    uploads_that_stop_give_way_to_those_who_wait,
    readers_that_stop_give_way_to_those_who_wait,
    a_permit_goes_to_the_address_that_holds_fewest,
    a_full_queue_has_room_for_another_address,
    a_slow_reader_is_not_taken_for_one_that_has_stopped,
    without_a_minimum_rate_nobody_is_too_slow,
];
