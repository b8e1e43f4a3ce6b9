//! Idle connections, and connections that are closed to make room.

use super::*;

list![
    the_oldest_idle_connection_makes_room,
    an_idle_connection_of_another_loop_makes_room,
    with_every_connection_busy,
    connections_that_move_to_another_loop,
    bytes_behind_the_last_request,
    without_descriptors_nothing_seems_to_be_missing,
    templates_count,
    a_crowd_takes_no_descriptor_that_is_promised,
];

fn the_oldest_idle_connection_makes_room() {
    let server = new_site()
        .config("max_connections = 3\nmax_connections_per_client = 3\nworkers = 1")
        .start();
    let mut first: Vec<_> = (0..3).map(|_| idle(&server)).collect();
    let mut more: Vec<_> = (0..2).map(|_| idle(&server)).collect();
    for client in &mut first[..2] {
        assert!(client.is_over());
    }
    for client in first[2..].iter_mut().chain(&mut more) {
        client.get("/health");
        assert_eq!(client.reply().status, 200);
    }
}

fn an_idle_connection_of_another_loop_makes_room() {
    // The kernel chooses which event loop gets a connection. Each round starts a new server, because a server may not yet
    // have noticed connections that an earlier round closed.
    for _ in 0..12 {
        let server = new_site()
            .config("max_connections = 2\nmax_connections_per_client = 2\nworkers = 2")
            .start();
        let mut busy = server.connect();
        busy.get("/cgi-bin/t?head&out=a&touch=on&await=go");
        server.wait_for("on");
        let _idle = idle(&server);
        // The connection counts as idle a moment after its response has arrived.
        wait_until("room for another connection", || {
            server.get("/health").status == 200
        });
        server.set("go");
        assert_eq!(busy.reply().text(), "a");
    }
}

fn with_every_connection_busy() {
    let server = new_site()
        .config("max_connections = 2\nmax_connections_per_client = 2\nworkers = 1\nmax_running = 2")
        .start();
    let mut busy: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for (i, client) in busy.iter_mut().enumerate() {
        client.get(&format!("/cgi-bin/t?head&touch=on{i}&await=go"));
        server.wait_for(&format!("on{i}"));
    }
    let mut client = server.connect();
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    assert!(reply.closes() && client.is_over());
    server.set("go");
    for mut client in busy {
        assert_eq!(client.reply().status, 200);
    }
    wait_until("a place for a connection", || {
        let mut client = server.connect();
        client.try_send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.reply().status == 200
    });
}

fn connections_that_move_to_another_loop() {
    let server = new_site().config("workers = 8\nmax_running = 32").start();
    let mut clients: Vec<_> = (0..16).map(|_| server.connect()).collect();
    for round in 0..4 {
        for target in ["/cgi-bin/t?head&out=a", "/health"] {
            for client in &mut clients {
                client.get(target);
            }
            for client in &mut clients {
                assert_eq!(client.reply().status, 200, "{target} in round {round}");
            }
        }
    }
    for client in clients {
        assert!(!client.is_closed());
    }
}

/// RFC 9112, 9.6: a reset might overtake the response.
fn bytes_behind_the_last_request() {
    let server = new_site().start();
    for behind in ["", "\r\n", "GET / HTTP/1.1\r\n", &"x".repeat(200_000)] {
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        let last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream
            .write_all(format!("{last}{behind}").as_bytes())
            .unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    }
}

fn limit(server: &Server, descriptors: u64) {
    let limit = rustix::process::Rlimit {
        current: Some(descriptors),
        maximum: Some(1 << 12),
    };
    let pid = Pid::from_raw(server.pid() as i32);
    rustix::process::prlimit(pid, rustix::process::Resource::Nofile, limit).unwrap();
}

/// Many clients connect at once while the connections that must make room are still closing.
fn a_crowd_takes_no_descriptor_that_is_promised() {
    let server = new_site()
        .config("max_connections = 4\nworkers = 2")
        .start();
    let numbers = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let highest = numbers.map(|n| n.unwrap().file_name().to_str().unwrap().parse().unwrap());
    let highest: u64 = highest.max().unwrap();
    // Room for all connections, 64 that come or go, 16 accepted in a row by each of two event loops, and 6 more.
    limit(&server, highest + 4 + 64 + 2 * 16 + 6);
    std::thread::scope(|threads| {
        for _ in 0..40 {
            threads.spawn(|| {
                let mut kept = Vec::new();
                for _ in 0..20 {
                    let mut client = server.connect();
                    client.try_send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
                    assert!([200, 503, 0].contains(&client.reply().status));
                    kept.push(client);
                }
            });
        }
    });
    assert!(!server.errors().contains("accept:"), "{}", server.errors());
}

/// No descriptor is left. Existing files and programs are reported neither as forbidden nor as missing, and are found again
/// as soon as descriptors are free.
fn without_descriptors_nothing_seems_to_be_missing() {
    let server = new_site()
        .file("public/page", "page", 0o644)
        .file("public/index.html", "index", 0o644)
        .own_binary("cgi-bin/other")
        .config(
            "[[route]]\npath = \"/warm/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n\
             [[route]]\npath = \"/app/\"\nfastcgi = \"unix:no-such\"\n",
        )
        .config("workers = 1")
        .start();
    let asked = [
        ("/cgi-bin/other?head&out=a", 200),
        ("/warm/other?head&out=a", 200),
        ("/cgi-bin/none", 404),
        ("/page", 200),
        ("/", 200),
        ("/none", 404),
        ("/app/x", 502),
    ];
    let mut client = server.connect();
    client.get("/health");
    assert_eq!(client.reply().status, 200);
    let limit = |current| limit(&server, current);
    limit(3);
    for (target, _) in asked {
        client.get(target);
        let reply = client.reply();
        assert_eq!(reply.status, 503, "{target}");
        assert_eq!(reply.field("retry-after"), Some("1"), "{target}");
    }
    // A client that cannot be accepted at this moment waits.
    let mut new = server.connect();
    new.get("/health");
    server.says("accept: ");
    limit(1 << 12);
    assert_eq!(new.reply().status, 200);
    // The first connection may have been closed to make room.
    for (target, status) in asked {
        new.get(target);
        assert_eq!(new.reply().status, status, "{target}");
    }
}

/// Descriptors that are reserved for templates are not given to connections.
fn templates_count() {
    let site = new_site();
    let start = |templates: usize| {
        let config = format!(
            "max_running = 1\nqueue = 0\nworkers = 1\nmax_connections = 100\nmax_templates = {templates}\n\
             listen = [\"127.0.0.1:0\"]\n[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n"
        );
        fs::write(site.path("own.toml"), config).unwrap();
        let mut sh = Command::new("sh");
        sh.args(["-c", "ulimit -n 500; exec \"$0\" serve --config own.toml"]);
        sh.arg(env!("CARGO_BIN_EXE_galgo"))
            .current_dir(site.folder());
        let mut started = sh
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 9];
        let serves = started
            .stdout
            .take()
            .unwrap()
            .read_exact(&mut first)
            .is_ok();
        let _ = started.kill();
        let said = started.wait_with_output().unwrap();
        assert_ne!(
            serves,
            String::from_utf8_lossy(&said.stderr).contains("max_templates")
        );
        serves
    };
    assert!(start(4));
    assert!(!start(64));
}
