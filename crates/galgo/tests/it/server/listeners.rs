//! Addresses to listen on, and the clients' addresses there.

use super::*;
use galgo_testkit::client::proxy_header;

list![
    several_listeners,
    a_unix_socket_comes_and_goes,
    a_unix_socket_that_is_in_use,
    the_proxy_protocol_is_required_where_asked_for,
    who_may_speak_the_proxy_protocol,
    root_serves_loopback_only,
    root_becomes_the_user,
    a_port_that_is_taken,
];

fn several_listeners() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        skip!("IPv6");
    }
    let site = new_site();
    let socket = site.path("s");
    let unix = format!("unix:{}", socket.display());
    let server = site
        .arguments(&[
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "[::1]:0",
            "--listen",
            &unix,
        ])
        .start();
    let six = server.listens(1);
    assert_eq!(server.listener(2), unix);

    let mut client = Client::connect(six);
    client.send(ENV);
    let said = client.reply().text();
    assert_eq!(value(&said, "REMOTE_ADDR"), Some("::1"));
    assert_eq!(value(&said, "SERVER_ADDR"), Some("::1"));
    assert_eq!(value(&said, "SERVER_PORT"), Some(&*six.port().to_string()));

    let said = over(&socket, ENV);
    assert_eq!(value(&said, "REMOTE_ADDR"), Some(""));
    assert_eq!(value(&said, "REMOTE_PORT"), None);
    assert_eq!(value(&said, "SERVER_PORT"), Some("80"));
    wait_until("the request by the Unix socket", || {
        server.access().iter().any(|l| l["remote"] == "unix")
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
    let site = new_site();
    let socket = site.path("s");
    // A stale socket file without a listener is replaced.
    drop(UnixListener::bind(&socket).unwrap());
    let stale = fs::metadata(&socket).unwrap().ino();
    let mut server = listening_at(&socket, site);
    let metadata = fs::metadata(&socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert!(metadata.ino() != stale || over(&socket, ENV).contains("200 OK"));
    assert_eq!(metadata.mode() & 0o002, 0, "{:o}", metadata.mode());
    assert!(over(&socket, ENV).starts_with("HTTP/1.1 200 "));
    server.signal(Signal::TERM);
    assert_eq!(ended(&mut server).code(), Some(0));
    assert!(!socket.exists());
}

fn a_unix_socket_that_is_in_use() {
    let site = new_site();
    let socket = site.path("s");
    let mut server = listening_at(&socket, site);
    let second = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .arg("serve")
        .arg(server.site.folder())
        .args(["--listen", &format!("unix:{}", socket.display())])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(words.contains("another program listens there"), "{words}");
    assert!(over(&socket, ENV).starts_with("HTTP/1.1 200 "));
    // The server does not remove a socket that another server has put in the same place.
    fs::remove_file(&socket).unwrap();
    let _another = UnixListener::bind(&socket).unwrap();
    server.signal(Signal::TERM);
    ended(&mut server);
    assert!(socket.exists());
    // A file that is no socket is not replaced either.
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "a file").unwrap();
    let third = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .arg("serve")
        .arg(server.site.folder())
        .args(["--listen", &format!("unix:{}", socket.display())])
        .output()
        .unwrap();
    assert_eq!(third.status.code(), Some(1));
    assert_eq!(fs::read(&socket).unwrap(), b"a file");
}

fn the_proxy_protocol_is_required_where_asked_for() {
    let server = new_site()
        .arguments(&["--listen", "127.0.0.1:0", "--listen", "proxy+127.0.0.1:0"])
        .start();
    let proxied = server.listens(1);
    let header = |command: u8, family: u8, block: &[u8]| {
        let mut all = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        all.extend([command, family, 0, block.len() as u8]);
        all.extend(block);
        all
    };
    let four = proxy_header([192, 0, 2, 1], [198, 51, 100, 2]);
    let mut addresses = [0; 36];
    (addresses[15], addresses[31], addresses[33], addresses[35]) = (9, 8, 7, 6);
    let six = header(0x21, 0x21, &addresses);
    for (header, remote, port, local) in [
        (&four, "192.0.2.1", Some("12345"), "198.51.100.2"),
        (&six, "::9", Some("7"), "::8"),
        (&header(0x20, 0, b""), "127.0.0.1", None, "127.0.0.1"),
    ] {
        // The header comes at once, and byte by byte; the request follows.
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
    wait_until("the client's address in the log", || {
        server.access().iter().any(|l| l["remote"] == "192.0.2.1")
    });
    // A connection without a header is not answered, and a second header is not taken for a request.
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
    server.says("the connection was closed: not a PROXY protocol version 2 header");
    let mut client = Client::connect(proxied);
    client.send([&four[..], &four[..], ENV.as_bytes()].concat());
    assert_eq!(client.reply().status, 400);
    assert!(client.is_over());
    // On a listener without the PROXY protocol, a header is an invalid request.
    let mut client = server.connect();
    client.try_send([&four[..], ENV.as_bytes()].concat());
    assert_eq!(client.reply().status, 400);
}

/// Returns a PROXY protocol header that names one client, and after it a request that names another.
fn named(from: [u8; 4]) -> Vec<u8> {
    let request = ENV.replace(
        "Connection",
        "X-Forwarded-For: 8.8.8.8\r\nX-Forwarded-Proto: https\r\nConnection",
    );
    [proxy_header(from, [127, 0, 0, 1]), request.into()].concat()
}

/// Only listed peers may send a header; if no address is listed, loopback peers may. A header alone makes no forwarded field
/// trusted.
fn who_may_speak_the_proxy_protocol() {
    let start = |trusted: &str| {
        let site = new_site().config(&format!("trusted_proxies = {trusted}"));
        site.arguments(&["--listen", "127.0.0.1:0", "--listen", "proxy+127.0.0.1:0"])
            .start()
    };
    let closed = "the PROXY protocol came from an address that is not in trusted_proxies";
    // (trusted_proxies, whether this peer may send a header, the resulting client)
    for (trusted, may, client) in [
        ("[]", true, "10.0.0.1"),
        ("[\"unix\"]", true, "10.0.0.1"),
        ("[\"10.0.0.0/8\"]", false, ""),
        ("[\"127.0.0.2\", \"10.0.0.0/8\"]", false, ""),
        ("[\"127.0.0.1\"]", true, "10.0.0.1"),
        // Another proxy stands before the proxy.
        ("[\"127.0.0.1\", \"10.0.0.0/8\"]", true, "8.8.8.8"),
    ] {
        let server = start(trusted);
        let mut to = Client::connect(server.listens(1));
        to.try_send(named([10, 0, 0, 1]));
        if !may {
            assert!(to.is_over(), "{trusted}");
            server.says(closed);
            continue;
        }
        let said = to.reply().text();
        assert_eq!(value(&said, "REMOTE_ADDR"), Some(client), "{trusted}");
        let https = (client == "8.8.8.8").then_some("on");
        assert_eq!(value(&said, "HTTPS"), https, "{trusted}");
        assert!(!server.errors().contains(closed), "{trusted}");
    }
    // Every peer of a Unix socket may name clients in a header. `trusted_proxies` decides whether fields count.
    for (trusted, client) in [
        ("[\"10.0.0.0/8\"]", "10.0.0.1"),
        ("[\"unix\"]", "10.0.0.1"),
        ("[\"unix\", \"10.0.0.0/8\"]", "8.8.8.8"),
    ] {
        let site = new_site().config(&format!("trusted_proxies = {trusted}"));
        let socket = site.path("s");
        let listen = format!("proxy+unix:{}", socket.display());
        let _server = site
            .arguments(&["--listen", "127.0.0.1:0", "--listen", &listen])
            .start();
        let said = over(&socket, named([10, 0, 0, 1]));
        assert_eq!(value(&said, "REMOTE_ADDR"), Some(client), "{trusted}");
    }
}

fn refused(arguments: &[&str]) -> String {
    let site = new_site();
    fs::write(site.path("public/x"), "").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .arg("serve")
        .arg(site.folder())
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
    let server = new_site().start();
    server.says("running as root");
}

fn root_becomes_the_user() {
    if !geteuid().is_root() {
        skip!("root");
    }
    let site = new_site()
        .file(
            "cgi-bin/id",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; id -u; id -g; id -G\n",
            0o755,
        )
        .arguments(&["--user", "daemon"]);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(site.folder(), mode).unwrap();
    let server = site.start();
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = |name: &str| {
        status
            .lines()
            .find(|l| l.starts_with(name))
            .unwrap()
            .to_owned()
    };
    let own = 0x7000_0000 + 1;
    assert_eq!(line("Uid:"), format!("Uid:\t{own}\t{own}\t1\t1"));
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
    let server = new_site().start();
    let words = refused(&["--listen", &server.address().to_string()]);
    assert!(words.contains("cannot listen on"), "{words}");
    assert!(words.contains("another program listens there"), "{words}");
}
