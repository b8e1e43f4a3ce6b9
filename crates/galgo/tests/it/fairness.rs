//! Limits for one address while another address waits: served in turn, limited by count and by rate.

use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::{Client, Server, Site, eventually, wait_until};

/// An address other than that of [`Server::connect`].
const OTHER: [u8; 4] = [127, 0, 0, 2];

fn from(address: [u8; 4], server: &Server, target: &str) -> Client {
    let mut client = Client::connect_from(address, server.address());
    client.get(target);
    client
}

/// Sends a request whose program is named `name`: the program reports that it runs, and waits for the mark `{name}-on`.
fn asks(server: &Server, address: [u8; 4], name: &str) -> Client {
    let target = format!("/cgi-bin/t?touch={name}&await={name}-on&head&out={name}");
    let client = from(address, server, &target);
    client.wait_until_read();
    client
}

/// Lets the program `name` end, so that its client gets the answer.
fn ends(server: &Server, name: &str, client: &mut Client) {
    server.set(&format!("{name}-on"));
    assert_eq!(client.reply().text(), name);
}

const ONE: [u8; 4] = [127, 0, 0, 1];

/// The queue is full of requests from one address. The only request of another address is served next; its second request is
/// served after one request of the first address.
fn addresses_are_served_in_turn() {
    let server = new_site()
        .config("max_running = 1\nqueue = 5\ncpu_share = 0")
        .start();
    let watch = Watch::begin(&server);
    let mut first = asks(&server, ONE, "a0");
    server.wait_for("a0");
    let mut many: Vec<_> = (1..=5)
        .map(|n| asks(&server, ONE, &format!("a{n}")))
        .collect();
    let mut other = asks(&server, OTHER, "b0");
    let mut next = asks(&server, OTHER, "b1");
    ends(&server, "a0", &mut first);
    server.wait_for("b0");
    assert!(!server.mark("a1").exists(), "before the other address");
    ends(&server, "b0", &mut other);
    server.wait_for("a1");
    assert!(!server.mark("b1").exists(), "twice in a row");
    ends(&server, "a1", &mut many[0]);
    server.wait_for("b1");
    assert!(!server.mark("a2").exists(), "before the other address");
    ends(&server, "b1", &mut next);
    for n in 2..=3 {
        ends(&server, &format!("a{n}"), &mut many[n - 1]);
    }
    drop((first, many, other, next));
    // The server refused the newest two of the five queued requests to make room.
    watch.after(&["ok", "ok", "ok", "ok", "ok", "ok", "busy", "busy"]);
}

/// An address whose programs take long leaves a permit for other addresses.
fn an_address_leaves_permits_for_others() {
    let server = new_site().config("max_running = 8").start();
    let watch = Watch::begin(&server);
    let name = |n: usize| format!("a{n}");
    let mut many: Vec<_> = (0..9).map(|n| asks(&server, ONE, &name(n))).collect();
    for n in 0..7 {
        server.wait_for(&name(n));
    }
    let mut other = asks(&server, OTHER, "b");
    server.wait_for("b");
    // A permit was free before `b` asked, and neither of these took it.
    assert!(!server.mark("a7").exists() && !server.mark("a8").exists());
    ends(&server, "b", &mut other);
    for (n, client) in many.iter_mut().enumerate() {
        ends(&server, &name(n), client);
    }
    drop((many, other));
    watch.after(&["ok"; 10]);
}

/// Returns the scheduling policy of a process and how many processors it may use: proc_pid_stat(5), proc_pid_status(5).
fn scheduled(pid: u32) -> (u32, u32) {
    let read = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let (stat, status) = (read("stat"), read("status"));
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let policy = fields.skip(38).find_map(|field| field.parse().ok());
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed:"));
    let ones = |digit: char| digit.to_digit(16).map(u32::count_ones);
    (
        policy.unwrap(),
        allowed.unwrap().chars().filter_map(ones).sum(),
    )
}

/// A program that writes its process id into a mark and waits for the mark `go`.
pub const WAITS: &str = "#!/bin/sh
echo $$ > ../marks/$QUERY_STRING
while [ ! -e ../marks/go ]; do sleep 0.1; done
printf 'Content-Type: text/plain\\n\\nok'
";

/// If an address has more programs than can run at once, these run behind the programs of other addresses and leave a processor
/// free. That holds for programs already running and for new ones.
fn the_programs_of_a_crowd_run_behind_those_of_others() {
    let site = new_site().file("cgi-bin/waits", WAITS, 0o755);
    run_behind_others(site, "/cgi-bin/waits");
}

/// Checks the same with the program [`WAITS`] at `path`.
pub fn run_behind_others(site: Site, path: &str) {
    const NORMAL: u32 = 0;
    const IDLE: u32 = 5;
    let server = site.config("max_running = 1000").start();
    let (_, processors) = scheduled(server.pid());
    let pid_of = |name: &str| {
        let read = || {
            std::fs::read_to_string(server.mark(name))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        eventually("its process id", read)
    };
    let mut clients = Vec::new();
    let mut asks = |address, name: &str| {
        clients.push(from(address, &server, &format!("{path}?{name}")));
        pid_of(name)
    };
    let crowd: Vec<u32> = (0..=processors)
        .map(|n| asks(ONE, &format!("a{n}")))
        .collect();
    let normal = (NORMAL, processors);
    assert!(crowd.iter().all(|pid| scheduled(*pid) == normal), "alone");
    let other = asks(OTHER, "b");
    let behind = (IDLE, (processors - 1).max(1));
    for pid in crowd.into_iter().chain([asks(ONE, "last")]) {
        wait_until("it runs behind the other's", || scheduled(pid) == behind);
    }
    assert_eq!(scheduled(other), normal);
    server.set("go");
    for mut client in clients {
        assert_eq!(client.reply().text(), "ok");
    }
}

/// Clients without an address share all permits: a front server that connects over a Unix socket may take all of them.
fn clients_without_an_address_share_all_permits() {
    let site = new_site().config("max_running = 8");
    let socket = site.path("s");
    let unix = format!("unix:{}", socket.display());
    let server = site.arguments(&["-l", "127.0.0.1:0", "-l", &unix]).start();
    let watch = Watch::begin(&server);
    let name = |n: usize| format!("a{n}");
    let many: Vec<_> = (0..8)
        .map(|n| {
            let mut client = Client::unix(&socket);
            client.get(&format!("/cgi-bin/t?touch={0}&await=go&head", name(n)));
            server.wait_for(&name(n));
            client
        })
        .collect();
    server.set("go");
    for mut client in many {
        assert_eq!(client.reply().status, 200);
    }
    watch.after(&["ok"; 8]);
}

/// An address that has used more processor time than all others is served after them, although it asked first.
fn who_has_used_the_processor_is_served_behind_others() {
    let third = [127, 0, 0, 3];
    let server = new_site().config("max_running = 2").start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/cgi-bin/t?burn=300&head").status, 200);
    let mut held = asks(&server, third, "c");
    server.wait_for("c");
    let mut first = asks(&server, OTHER, "b0");
    server.wait_for("b0");
    let mut burner = asks(&server, ONE, "a");
    let mut second = asks(&server, OTHER, "b1");
    ends(&server, "b0", &mut first);
    server.wait_for("b1");
    assert!(!server.mark("a").exists(), "before who has used less");
    ends(&server, "b1", &mut second);
    ends(&server, "a", &mut burner);
    ends(&server, "c", &mut held);
    drop((held, first, second, burner));
    watch.after(&["ok"; 5]);
}

/// Returns a site whose routes may each be asked three times at once, then once an hour. The route `/free/` has no limit.
fn limited() -> Site {
    new_site()
        .file("public/a", "a", 0o644)
        .config("[[route]]\npath = \"/free/\"\nfiles = \"public\"\nrate_limit = \"none\"")
        .defaults("rate_limit = { requests = 1, per = \"1h\", burst = 3 }")
}

/// Asks for `/a` with additional fields and returns the status.
fn status(client: &mut Client, fields: &str) -> u16 {
    client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.reply().status
}

/// A 429 says when to come again and keeps the connection open. Other routes have counts of their own, or no limit.
fn an_address_may_ask_a_route_so_often() {
    let server = limited().start();
    let mut client = server.connect();
    let statuses = [(); 5].map(|()| status(&mut client, ""));
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    client.get("/a");
    let refused = client.reply();
    let after: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&after), "{after}");
    for target in [
        "/free/a",
        "/free/a",
        "/free/a",
        "/free/a",
        "/cgi-bin/t?head",
    ] {
        client.get(target);
        assert_eq!(client.reply().status, 200, "{target}");
    }
    // A new connection of the same address does not have counts of its own.
    assert_eq!(status(&mut server.connect(), ""), 429);
    let mut other = Client::connect_from(OTHER, server.address());
    assert_eq!(status(&mut other, ""), 200);
    let is_limited = |line: &&serde_json::Value| line["outcome"] == "rate_limited";
    wait_until("the lines", || {
        server.access().iter().filter(is_limited).count() == 4
    });
    server.says("more requests than the rate_limit of the route allows");
    // A reload keeps the counts of routes that do not change.
    server.reload();
    assert_eq!(status(&mut server.connect(), ""), 429);
}

/// The server does not take the body of a refused request for the next request.
fn a_refused_upload_is_read_or_the_connection_ends() {
    let server = limited().start();
    let mut client = server.connect();
    for _ in 0..3 {
        client.post("/cgi-bin/t?head&count", b"12345");
        assert_eq!(client.reply().text(), "5");
    }
    client.post(
        "/cgi-bin/t?head&count",
        b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(client.reply().status, 429);
    client.get("/free/a");
    assert_eq!(client.reply().text(), "a");
}

/// Behind a trusted proxy the limit counts the address that the proxy names; for IPv6, its /64. Such a field from other clients
/// does not count.
fn the_limit_is_of_the_client_behind_a_proxy() {
    let server = limited()
        .config("trusted_proxies = [\"127.0.0.1\"]")
        .start();
    let mut proxy = server.connect();
    for (client, expected) in [
        ("192.0.2.1", 200),
        ("192.0.2.1", 200),
        ("192.0.2.2", 200),
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        ("192.0.2.2", 200),
        ("2001:db8::1", 200),
        ("2001:db8::2", 200),
        ("2001:db8::ffff:3", 200),
        ("2001:db8::4", 429),
        ("2001:db8:0:1::1", 200),
    ] {
        let field = format!("X-Forwarded-For: {client}\r\n");
        assert_eq!(status(&mut proxy, &field), expected, "{client}");
    }
    let mut stranger = Client::connect_from(OTHER, server.address());
    let statuses =
        [1, 2, 3, 4].map(|n| status(&mut stranger, &format!("X-Forwarded-For: 192.0.2.{n}0\r\n")));
    assert_eq!(statuses, [200, 200, 200, 429]);
}

/// IPv6 and IPv4 of one machine are two addresses; over a Unix socket there is none.
fn addresses_are_of_their_family() {
    let site = limited();
    let socket = site.path("s");
    let unix = format!("unix:{}", socket.display());
    let arguments = ["-l", "127.0.0.1:0", "-l", "[::1]:0", "-l", &unix];
    let server = site.arguments(&arguments).start();
    for at in [server.address(), server.listens(1)] {
        let statuses = [(); 4].map(|()| status(&mut Client::connect(at), ""));
        assert_eq!(statuses, [200, 200, 200, 429]);
    }
    let mut local = Client::unix(&socket);
    for _ in 0..5 {
        local.get("/a");
        assert_eq!(local.reply().status, 200);
    }
}

list![
    an_address_may_ask_a_route_so_often,
    a_refused_upload_is_read_or_the_connection_ends,
    the_limit_is_of_the_client_behind_a_proxy,
    addresses_are_of_their_family,
    addresses_are_served_in_turn,
    an_address_leaves_permits_for_others,
    clients_without_an_address_share_all_permits,
    the_programs_of_a_crowd_run_behind_those_of_others,
    who_has_used_the_processor_is_served_behind_others,
];
