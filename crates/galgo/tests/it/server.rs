//! Listeners, start-up and shutdown.

use std::{
    fs,
    io::{Read, Write},
    net::Ipv6Addr,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::harness::{Client, Server, Site, eventually, list, skip, watch};

list![
    several_listeners,
    a_unix_socket_comes_and_goes,
    a_unix_socket_that_is_in_use,
    the_proxy_protocol_is_required_where_asked_for,
    root_serves_loopback_only,
    root_becomes_the_user,
    a_port_that_is_taken,
    the_oldest_idle_connection_makes_room,
    an_idle_connection_of_another_loop_makes_room,
    with_every_connection_busy,
    connections_that_move_to_another_loop,
    bytes_behind_the_last_request,
    term_lets_requests_finish,
    int_is_as_term,
    the_grace_ends,
    a_second_signal_ends_at_once,
    a_standard_output_that_nobody_reads,
    a_standard_output_that_is_closed,
];

fn signal(server: &Server, signal: Signal) {
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

fn ended(server: &mut Server) -> ExitStatus {
    eventually("the end of the server", || {
        server.process().try_wait().unwrap()
    })
}

fn no_program_left(server: &Server) {
    eventually("the end of the programs", || {
        watch::processes_of(server.path()).is_empty().then_some(())
    });
}

/// Sends `request` and reads to the end.
fn over(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

const ENV: &str =
    "GET /cgi-bin/t?head&env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn value<'s>(said: &'s str, name: &str) -> Option<&'s str> {
    let named = |l: &'s str| l.strip_prefix(name)?.strip_prefix('=');
    said.lines().find_map(named)
}

fn several_listeners() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        skip!("IPv6");
    }
    let site = Site::new();
    let socket = site.path().join("s");
    let unix = format!("unix:{}", socket.display());
    let mut server = site
        .arguments(&[
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "[::1]:0",
            "--listen",
            &unix,
        ])
        .start();
    let six = server.next_line();
    let six = six
        .trim_end()
        .strip_prefix("listening on http://")
        .unwrap()
        .to_owned();
    assert_eq!(
        server.next_line().trim_end(),
        format!("listening on {unix}")
    );

    let mut client = Client::connect(six.parse().unwrap());
    client.send(ENV);
    let said = client.reply().text();
    assert_eq!(value(&said, "REMOTE_ADDR"), Some("::1"));
    assert_eq!(value(&said, "SERVER_ADDR"), Some("::1"));
    assert_eq!(value(&said, "SERVER_PORT"), six.rsplit(':').next());

    let said = over(&socket, ENV);
    assert_eq!(value(&said, "REMOTE_ADDR"), Some(""));
    assert_eq!(value(&said, "REMOTE_PORT"), None);
    assert_eq!(value(&said, "SERVER_PORT"), Some("80"));
    eventually("the request by the Unix socket", || {
        server
            .access()
            .iter()
            .any(|l| l["remote"] == "unix")
            .then_some(())
    });

    let said = server.ask(ENV).text();
    assert_eq!(
        value(&said, "SERVER_PORT"),
        Some(server.address().port().to_string().as_str())
    );
}

fn listening_at(socket: &Path, site: Site) -> Server {
    let unix = format!("unix:{}", socket.display());
    site.arguments(&["--listen", "127.0.0.1:0", "--listen", &unix])
        .start()
}

fn a_unix_socket_comes_and_goes() {
    let site = Site::new();
    let socket = site.path().join("s");
    // One that nobody listens on any more is replaced.
    drop(UnixListener::bind(&socket).unwrap());
    let stale = fs::metadata(&socket).unwrap().ino();
    let mut server = listening_at(&socket, site);
    let metadata = fs::metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert!(metadata.ino() != stale || over(&socket, ENV).contains("200 OK"));
    assert_eq!(metadata.mode() & 0o002, 0, "{:o}", metadata.mode());
    assert!(over(&socket, ENV).starts_with("HTTP/1.1 200 "));
    signal(&server, Signal::TERM);
    assert_eq!(ended(&mut server).code(), Some(0));
    assert!(!socket.exists());
}

fn a_unix_socket_that_is_in_use() {
    let site = Site::new();
    let socket = site.path().join("s");
    let mut server = listening_at(&socket, site);
    let second = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .arg("serve")
        .arg(server.path())
        .args(["--listen", &format!("unix:{}", socket.display())])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(words.contains("another program listens there"), "{words}");
    assert!(over(&socket, ENV).starts_with("HTTP/1.1 200 "));
    // What another server has put in its place is not ours to remove.
    fs::remove_file(&socket).unwrap();
    let _another = UnixListener::bind(&socket).unwrap();
    signal(&server, Signal::TERM);
    ended(&mut server);
    assert!(socket.exists());
    // Nor does a file that is no socket make room for one.
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "a file").unwrap();
    let third = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .arg("serve")
        .arg(server.path())
        .args(["--listen", &format!("unix:{}", socket.display())])
        .output()
        .unwrap();
    assert_eq!(third.status.code(), Some(1));
    assert_eq!(fs::read(&socket).unwrap(), b"a file");
}

fn the_proxy_protocol_is_required_where_asked_for() {
    let mut server = Site::new()
        .arguments(&["--listen", "127.0.0.1:0", "--listen", "proxy+127.0.0.1:0"])
        .start();
    let line = server.next_line();
    let proxied = line.trim_end().rsplit('/').next().unwrap().parse().unwrap();
    let header = |command: u8, family: u8, block: &[u8]| {
        let mut all = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        all.extend([command, family, 0, block.len() as u8]);
        all.extend(block);
        all
    };
    let four = header(
        0x21,
        0x11,
        &[192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 0, 80],
    );
    let mut addresses = [0; 36];
    (addresses[15], addresses[31], addresses[33], addresses[35]) = (9, 8, 7, 6);
    let six = header(0x21, 0x21, &addresses);
    for (header, remote, port, local) in [
        (&four, "192.0.2.1", Some("12345"), "198.51.100.2"),
        (&six, "::9", Some("7"), "::8"),
        (&header(0x20, 0, b""), "127.0.0.1", None, "127.0.0.1"),
    ] {
        // Whole, and byte by byte, the request behind it.
        for size in [1000, 1] {
            let mut client = Client::connect(proxied);
            let all = [&header[..], ENV.as_bytes()].concat();
            all.chunks(size).for_each(|piece| client.send(piece));
            let said = client.reply().text();
            assert_eq!(value(&said, "REMOTE_ADDR"), Some(remote));
            assert_eq!(value(&said, "SERVER_ADDR"), Some(local));
            assert!(port.is_none() || value(&said, "REMOTE_PORT") == port);
        }
    }
    eventually("the client's address in the log", || {
        server
            .access()
            .iter()
            .any(|l| l["remote"] == "192.0.2.1")
            .then_some(())
    });
    // Without one nothing is answered; nor is a second one taken for a request.
    for garbage in [
        ENV.as_bytes().to_vec(),
        [b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", ENV.as_bytes()].concat(),
        [&header(0x11, 0x11, &[0; 12])[..], ENV.as_bytes()].concat(),
        [&header(0x21, 0x11, &[0; 3])[..], ENV.as_bytes()].concat(),
        b"\x16\x03\x01\x02\x00\x01".to_vec(),
    ] {
        let mut client = Client::connect(proxied);
        client.try_send(&garbage);
        assert!(client.is_over(), "{garbage:?}");
    }
    let mut client = Client::connect(proxied);
    client.send([&four[..], &four[..], ENV.as_bytes()].concat());
    assert_eq!(client.reply().status, 400);
    assert!(client.is_over());
    // Where none was asked for, one is no request.
    let mut client = server.connect();
    client.try_send([&four[..], ENV.as_bytes()].concat());
    assert_eq!(client.reply().status, 400);
}

fn refused(arguments: &[&str]) -> String {
    let site = Site::new();
    fs::write(site.path().join("public/x"), "").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .arg("serve")
        .arg(site.path())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn root_serves_loopback_only() {
    if !geteuid().is_root() {
        skip!("root");
    }
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80", "proxy+0.0.0.0:0"] {
        let words = refused(&["--listen", "127.0.0.1:0", "--listen", address]);
        assert!(
            words.contains("as root") && words.contains("--user"),
            "{address}: {words}"
        );
    }
    let server = Site::new().start();
    server.says("running as root");
}

fn root_becomes_the_user() {
    if !geteuid().is_root() {
        skip!("root");
    }
    let site = Site::new()
        .file(
            "cgi-bin/id",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; id -u; id -g; id -G\n",
            0o755,
        )
        .arguments(&["--user", "daemon"]);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.path(), mode).unwrap();
    let server = site.start();
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = |name: &str| {
        status
            .lines()
            .find(|l| l.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert_eq!(line("Uid:"), "Uid:\t1\t1\t1\t1");
    assert_eq!(line("Gid:"), "Gid:\t1\t1\t1\t1");
    assert!(!line("Groups:").split_whitespace().any(|g| g == "0"));
    for set in ["CapPrm:", "CapEff:"] {
        assert!(line(set).ends_with("\t0000000000000000"), "{}", line(set));
    }
    let reply = server.get("/cgi-bin/id");
    if reply.status != 200 {
        skip!("a build folder that other users may enter");
    }
    assert!(reply.text().starts_with("1\n1\n1\n"), "{}", reply.text());
}

fn a_port_that_is_taken() {
    let server = Site::new().start();
    let words = refused(&["--listen", &server.address().to_string()]);
    assert!(words.contains("cannot listen on"), "{words}");
    assert!(words.contains("another program listens there"), "{words}");
}

/// A connection that has been used and waits for its next request.
fn idle(server: &Server) -> Client {
    let mut client = server.connect();
    client.get("/health");
    assert_eq!(client.reply().status, 200);
    client
}

fn the_oldest_idle_connection_makes_room() {
    let server = Site::new().top("max_connections = 3\nworkers = 1").start();
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
    // Which loop gets a connection is the kernel's choice. Every round has a server of its own: what
    // an earlier round has closed may not be closed for the server yet.
    for _ in 0..12 {
        let server = Site::new().top("max_connections = 2\nworkers = 2").start();
        let mut busy = server.connect();
        busy.get("/cgi-bin/t?head&out=a&touch=on&await=go");
        server.wait_for("on");
        let _idle = idle(&server);
        // It counts as idle a moment after its response has arrived.
        eventually("room for another connection", || {
            (server.get("/health").status == 200).then_some(())
        });
        server.set("go");
        assert_eq!(busy.reply().text(), "a");
    }
}

fn with_every_connection_busy() {
    let server = Site::new()
        .top("max_connections = 2\nworkers = 1\nmax_running = 2")
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
    eventually("a place for a connection", || {
        let mut client = server.connect();
        client.try_send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        (client.reply().status == 200).then_some(())
    });
}

fn connections_that_move_to_another_loop() {
    let server = Site::new().top("workers = 8\nmax_running = 32").start();
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
    let server = Site::new().start();
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

fn finishes_after(by: Signal) {
    let mut server = Site::new().start();
    let mut running = server.connect();
    running.get("/cgi-bin/t?touch=on&await=go&head&out=done");
    let mut streaming = server.connect();
    streaming.get("/cgi-bin/t?head&out=begin&await=go&out=end");
    assert_eq!(streaming.head().status, 200);
    let mut waiting = idle(&server);
    let mut silent = server.connect();
    server.wait_for("on");
    signal(&server, by);
    // The idle are closed at once, and nobody new is let in.
    assert!(waiting.is_over() && silent.is_over());
    eventually("the end of the listener", || {
        std::net::TcpStream::connect(server.address())
            .is_err()
            .then_some(())
    });
    server.set("go");
    let reply = running.reply();
    assert_eq!((reply.status, reply.text().as_str()), (200, "done"));
    assert!(reply.closes() && running.is_over());
    let mut said = Vec::new();
    while let Some(chunk) = streaming.chunk() {
        said.extend_from_slice(&chunk);
        if chunk.is_empty() {
            break;
        }
    }
    assert_eq!(said, b"beginend");
    drop((running, streaming));
    assert_eq!(ended(&mut server).code(), Some(0));
    no_program_left(&server);
    let ok = server
        .access()
        .iter()
        .filter(|l| l["outcome"] == "ok")
        .count();
    assert_eq!(ok, 4);
}

fn term_lets_requests_finish() {
    finishes_after(Signal::TERM);
}

fn int_is_as_term() {
    finishes_after(Signal::INT);
}

/// Two requests that never end: one whose response has begun, one without a byte.
fn hanging(server: &Server) -> (Client, Client) {
    let mut begun = server.connect();
    begun.get("/cgi-bin/t?deaf&head&out=begin&bg=hang&hang");
    assert_eq!(begun.head().status, 200);
    assert_eq!(begun.chunk().unwrap(), b"begin");
    let mut mute = server.connect();
    mute.get("/cgi-bin/t?deaf&touch=on&hang");
    server.wait_for("on");
    (begun, mute)
}

fn both_cut(server: &Server, (mut begun, mut mute): (Client, Client)) {
    assert_eq!(begun.chunk(), None);
    assert!(mute.is_over());
    no_program_left(server);
    let lines = server.access();
    let shut = lines.iter().filter(|l| l["outcome"] == "shutdown").count();
    assert_eq!(shut, 2, "{lines:?}");
    assert!(!server.errors().contains("panicked"), "{}", server.errors());
}

fn the_grace_ends() {
    let mut server = Site::new().top("shutdown_grace = \"1s\"").start();
    let clients = hanging(&server);
    signal(&server, Signal::TERM);
    assert_eq!(ended(&mut server).code(), Some(0));
    both_cut(&server, clients);
}

fn a_second_signal_ends_at_once() {
    let mut server = Site::new().top("shutdown_grace = \"1h\"").start();
    let clients = hanging(&server);
    signal(&server, Signal::TERM);
    eventually("the end of the listener", || {
        std::net::TcpStream::connect(server.address())
            .is_err()
            .then_some(())
    });
    signal(&server, Signal::TERM);
    assert_eq!(ended(&mut server).code(), Some(130));
    both_cut(&server, clients);
}

/// A site that logs to standard output, and its server's address.
fn logging_to_stdout(stdout: Stdio) -> (Site, std::process::Child) {
    let site = Site::new()
        .file(
            "own.toml",
            "listen = [\"127.0.0.1:0\"]\n[[route]]\npath = \"/\"\nfiles = \"public\"\n",
            0o644,
        )
        .file("public/f", "f", 0o644);
    let child = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .args(["serve", "--config"])
        .arg(site.path().join("own.toml"))
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (site, child)
}

fn first_line(out: &mut impl Read) -> Client {
    let mut line = Vec::new();
    let mut byte = [0];
    while out.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).unwrap();
    Client::connect(
        line.strip_prefix("listening on http://")
            .unwrap()
            .parse()
            .unwrap(),
    )
}

fn a_standard_output_that_nobody_reads() {
    let (_site, mut process) = logging_to_stdout(Stdio::piped());
    let mut out = process.stdout.take().unwrap();
    let mut client = first_line(&mut out);
    // More than a pipe holds.
    let long = "x".repeat(4000);
    for _ in 0..100 {
        client.get(&format!("/f?{long}"));
        assert_eq!(client.reply().text(), "f");
    }
    ends(process);
}

fn a_standard_output_that_is_closed() {
    let (_site, mut process) = logging_to_stdout(Stdio::piped());
    let mut client = first_line(&mut process.stdout.take().unwrap());
    for _ in 0..10 {
        client.get("/f");
        assert_eq!(client.reply().text(), "f");
        std::thread::sleep(Duration::from_millis(5));
    }
    ends(process);
}

fn ends(mut process: std::process::Child) {
    kill_process(Pid::from_raw(process.id() as i32).unwrap(), Signal::TERM).unwrap();
    let status = eventually("the end of the server", || process.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}
