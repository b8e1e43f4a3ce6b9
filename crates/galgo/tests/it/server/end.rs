//! The end of the server, and a standard output that is closed or that is not read.

use super::*;

list![
    term_lets_requests_finish,
    int_is_as_term,
    the_grace_ends,
    a_second_signal_ends_at_once,
    a_standard_output_that_nobody_reads,
    a_standard_output_that_is_closed,
];

fn finishes_after(by: Signal) {
    let mut server = new_site().config("shutdown_grace = \"1h\"").start();
    let mut running = server.connect();
    running.get("/cgi-bin/t?touch=on&await=go&head&out=done");
    let mut streaming = server.connect();
    streaming.get("/cgi-bin/t?head&out=begin&await=go&out=end");
    assert_eq!(streaming.head().status, 200);
    let mut waiting = idle(&server);
    // The server has accepted this connection, because it accepts connections in their order.
    let mut new = server.connect();
    assert_eq!(server.get("/health").status, 200);
    server.wait_for("on");
    server.signal(by);
    // Idle connections are closed at once, and no new connection is accepted.
    assert!(waiting.is_over());
    wait_until("the end of the listener", || {
        std::net::TcpStream::connect(server.address()).is_err()
    });
    // The first request of a connection may have been on its way, so the server still answers it.
    new.get("/health");
    let reply = new.reply();
    assert!(reply.status == 200 && reply.closes() && new.is_over());
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
    assert_eq!(ok, 6);
}

fn term_lets_requests_finish() {
    finishes_after(Signal::TERM);
}

fn int_is_as_term() {
    finishes_after(Signal::INT);
}

/// Starts two requests that never end: one with the beginning of a response, one without a byte.
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
    let mut server = new_site().config("shutdown_grace = \"1s\"").start();
    let mut silent = server.connect();
    let clients = hanging(&server);
    server.signal(Signal::TERM);
    assert!(silent.is_over());
    assert_eq!(ended(&mut server).code(), Some(0));
    both_cut(&server, clients);
}

fn a_second_signal_ends_at_once() {
    let mut server = new_site().config("shutdown_grace = \"1h\"").start();
    let clients = hanging(&server);
    server.signal(Signal::TERM);
    wait_until("the end of the listener", || {
        std::net::TcpStream::connect(server.address()).is_err()
    });
    server.signal(Signal::TERM);
    assert_eq!(ended(&mut server).code(), Some(130));
    both_cut(&server, clients);
}

/// Starts a server that logs to standard output, and returns its site and process.
fn logging_to_stdout(stdout: Stdio) -> (Site, std::process::Child) {
    let site = new_site()
        .file(
            "own.toml",
            "listen = [\"127.0.0.1:0\"]\n[[route]]\npath = \"/\"\nfiles = \"public\"\n",
            0o644,
        )
        .file("public/f", "f", 0o644);
    let child = Command::new(env!("CARGO_BIN_EXE_galgo"))
        .args(["serve", "--config"])
        .arg(site.path("own.toml"))
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
    // Writes more than a pipe holds.
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
