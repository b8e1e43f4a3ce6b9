//! More connections and requests than there is room for.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::exchange;
use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::{Client, process, wait_until};

/// Ten thousand connections, or as many as the limit of descriptors lets a server take.
fn ten_thousand_idle_connections() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = usize::try_from(limit.unwrap_or(u64::MAX)).unwrap();
    let many = (limit.saturating_sub(2000) / 2).min(10_000);
    if many < 5000 {
        crate::harness::skip!("needs a limit of 12000 descriptors: ulimit -n");
    }
    let server = new_site()
        .config("max_connections_per_client = 1000000")
        .start();
    let watch = Watch::begin(&server);
    let before = process::memory(server.pid(), "VmRSS");
    let mut idle: Vec<_> = (0..many)
        .map(|_| {
            let mut client = server.connect();
            client.get("/health");
            assert_eq!(client.reply().text(), "fine");
            client
        })
        .collect();
    let each = (process::memory(server.pid(), "VmRSS").saturating_sub(before)) / many as u64;
    assert!(each < 10 << 10, "{each} bytes for each idle connection");
    assert_eq!(server.get("/cgi-bin/t?head&out=active").text(), "active");
    // The server still serves all of these connections.
    for client in idle.iter_mut().step_by(997) {
        client.get("/health");
        assert_eq!(client.reply().text(), "fine");
    }
    drop(idle);
    watch.after(&["ok"]);
}

fn the_oldest_idle_connections_are_shed() {
    let server = new_site()
        .config("max_connections = 50\nmax_connections_per_client = 50")
        .start();
    let watch = Watch::begin(&server);
    let mut all: Vec<_> = (0..80)
        .map(|_| {
            let mut client = server.connect();
            client.get("/health");
            assert_eq!(client.reply().text(), "fine");
            client
        })
        .collect();
    // The server has closed as many of the first connections as were too many, and none of the last.
    wait_until("the end of what is too much", || {
        let closed = all[..60].iter().filter(|c| c.is_closed()).count();
        closed >= 29
    });
    assert!(!all[60..].iter().any(Client::is_closed));
    let last = all.last_mut().unwrap();
    last.get("/health");
    assert_eq!(last.reply().text(), "fine");
    drop(all);
    watch.after(&[]);
}

fn busy_connections_are_not_shed() {
    let server = new_site()
        .config("max_connections = 10\nmax_connections_per_client = 10\nmax_running = 20")
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
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(24 << 20);
    let mut client = server.connect();
    // The requests together fit into the buffers of a socket that is not read.
    for n in 0..MANY {
        client.get(&format!("/cgi-bin/t?alone&head&out={n}"));
    }
    for n in 0..MANY {
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (200, n.to_string()));
    }
    drop(client);
    watch.after(&["ok"; MANY]);
}

/// More bytes than the server reads ahead, in pieces that end where requests end.
fn pipelined_requests_that_fill_what_is_read_ahead() {
    exchange(new_site(), &["ok"], |server, client| {
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
        // The server reads this client only up to a limit while the program runs; the rest waits in the kernel.
        thread::sleep(Duration::from_millis(100));
        server.set("go");
        assert_eq!(client.reply().text(), "first");
        for _ in 0..MANY {
            assert_eq!(client.reply().text(), "fine");
        }
    });
}

fn beyond_limit_and_queue_503_at_once() {
    let server = new_site().config("max_running = 1\nqueue = 1").start();
    let watch = Watch::begin(&server);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.get("/cgi-bin/t?touch=up&await=go&head&out=first");
    server.wait_for("up");
    second.get("/cgi-bin/t?head&out=second");
    let mut third = server.connect();
    third.get("/cgi-bin/t?head&out=third");
    // Either `second` or `third` waits and the other is refused; from then on no other request gets a permit.
    wait_until("a refusal", || {
        let busy = |l: &serde_json::Value| l["outcome"] == "busy";
        server.access().iter().any(busy)
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

/// A refusal comes at once, but a client that answers it with its next request gets one refusal a tick (50 ms).
fn who_was_refused_and_asks_again_waits() {
    const TICK: Duration = Duration::from_millis(50);
    let server = new_site().config("max_running = 1\nqueue = 0").start();
    let watch = Watch::begin(&server);
    let mut first = server.connect();
    first.get("/cgi-bin/t?touch=up&await=go&head&out=first");
    server.wait_for("up");
    let mut again = server.connect();
    let before = Instant::now();
    for _ in 0..6 {
        again.get("/cgi-bin/t?head&out=again");
        assert_eq!(again.reply().status, 503);
    }
    // The first pause ends with a tick that may be near; the other pauses are whole.
    assert!(before.elapsed() > 4 * TICK, "{:?}", before.elapsed());
    server.set("go");
    assert_eq!(first.reply().text(), "first");
    drop((first, again));
    watch.after(&["ok", "busy", "busy", "busy", "busy", "busy", "busy"]);
}

fn longer_than_queue_wait_503() {
    let server = new_site()
        .config("max_running = 1\nqueue_wait = \"100ms\"")
        .start();
    let watch = Watch::begin(&server);
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

/// Every request that is let in is answered, and every other request is refused at once.
fn goodput_under_overload() {
    let server = new_site().config("max_running = 2\nqueue = 4").start();
    let watch = Watch::begin(&server).memory(24 << 20);
    // Two programs hold the permits until the queue is full and requests were refused, on the slowest machine.
    let hold = |n: usize| {
        let mut client = server.connect();
        client.get(&format!("/cgi-bin/t?touch=up{n}&await=go&head&out=held"));
        server.wait_for(&format!("up{n}"));
        client
    };
    let mut held = [hold(0), hold(1)];
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
    wait_until("a refusal", || {
        let busy = |l: &serde_json::Value| l["outcome"] == "busy";
        server.access().iter().any(busy)
    });
    server.set("go");
    for client in &mut held {
        assert_eq!(client.reply().text(), "held");
    }
    let counts = clients.into_iter().map(|c| c.join().unwrap());
    let [served, refused] = counts.fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
    assert!(
        served > 0 && refused > 0,
        "{served} served, {refused} refused"
    );
    drop(held);
    let outcomes = [vec!["ok"; served + 2], vec!["busy"; refused]].concat();
    watch.after(&outcomes);
}

fn a_route_has_a_limit_of_its_own() {
    let server = new_site()
        .config("max_running = 8\nqueue_wait = \"100ms\"")
        .config("[[route]]\npath = \"/one\"\ncgi = \"cgi-bin/t\"\nmax_running = 1")
        .start();
    let watch = Watch::begin(&server);
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
    ten_thousand_idle_connections,
    the_oldest_idle_connections_are_shed,
    busy_connections_are_not_shed,
    a_thousand_pipelined_requests,
    pipelined_requests_that_fill_what_is_read_ahead,
    beyond_limit_and_queue_503_at_once,
    who_was_refused_and_asks_again_waits,
    longer_than_queue_wait_503,
    goodput_under_overload,
    a_route_has_a_limit_of_its_own,
];
