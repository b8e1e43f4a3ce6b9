//! Applications that behave: kept connections, streams, and applications that are not there.

use super::*;
use crate::harness::{list, new_site, watch::Watch};

list![
    a_connection_is_kept_for_what_may_be_repeated,
    a_kept_connection_that_closes_is_tried_once_more,
    a_new_connection_that_closes_is_not_tried_again,
    an_end_that_comes_late,
    nobody_is_kept_from_a_process_by_a_kept_connection,
    a_client_that_leaves_aborts,
    a_body_streams_in_both_directions,
    a_body_without_a_length_gets_one,
    a_large_response_to_a_slow_reader,
    an_answer_before_the_body_is_read,
    a_place_for_one,
    a_full_backlog,
    no_socket,
    a_socket_that_nobody_reads,
    variables,
    httpoxy,
];

fn a_connection_is_kept_for_what_may_be_repeated() {
    let answer = |n: usize, stream: &mut UnixStream| {
        while let Some(heard) = hear(stream) {
            assert!(heard.keep);
            say(stream, document(format!("{n}")));
        }
    };
    let (application, server) = one_worker(answer);
    let watch = Watch::begin(&server).keeps(2);
    for _ in 0..3 {
        assert_eq!(server.get("/app").text(), "0");
    }
    // A request that must not be sent twice gets a new connection, because a kept connection may be closed already.
    let mut client = server.connect();
    client.post("/app", b"body");
    assert_eq!(client.reply().text(), "1");
    assert_eq!(server.get("/app").text(), "1");
    assert_eq!(application.accepted(), 2);
    drop(client);
    watch.after(&["ok"; 5]);
}

fn a_kept_connection_that_closes_is_tried_once_more() {
    let answer = |n: usize, stream: &mut UnixStream| {
        hear(stream);
        say(stream, document(format!("{n}")));
        // The first connection closes when the second request arrives, and no sooner.
        if n == 0 {
            hear(stream);
        } else {
            hold(stream);
        }
    };
    let (application, server) = one_worker(answer);
    let watch = Watch::begin(&server).keeps(1);
    assert_eq!(server.get("/app").text(), "0");
    assert_eq!(server.get("/app").text(), "1");
    assert_eq!(application.accepted(), 2);
    watch.after(&["ok", "ok"]);
}

fn a_new_connection_that_closes_is_not_tried_again() {
    let answer = |_: usize, stream: &mut UnixStream| drop(hear(stream));
    let (application, server) = site(answer, "");
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/app").status, 502);
    assert_eq!(application.accepted(), 1);
    watch.after(&["script_error"]);
}

/// Before the end has come, the server cannot know whether the response is whole. Then it uses the connection again.
fn an_end_that_comes_late() {
    let (seen, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let answer = move |_: usize, stream: &mut UnixStream| {
        while hear(stream).is_some() {
            say(stream, [head(), stdout("abc"), stdout("")].concat());
            wait.lock().unwrap().recv().unwrap();
            say(stream, ended(Outcome::COMPLETE));
        }
    };
    let (application, server) = one_worker(answer);
    let watch = Watch::begin(&server).keeps(1);
    for _ in 0..2 {
        let mut client = server.connect();
        client.get("/app");
        assert_eq!(client.head().status, 200);
        assert!(client.until(b"abc\r\n").is_some());
        seen.send(()).unwrap();
        assert!(client.until(b"0\r\n\r\n").is_some());
    }
    assert_eq!(application.accepted(), 1);
    watch.after(&["ok", "ok"]);
}

/// A kept connection does not block the only process of an application: a request on a new connection gets the process.
fn nobody_is_kept_from_a_process_by_a_kept_connection() {
    let site = new_site().config(ROUTE);
    let listener = std::os::unix::net::UnixListener::bind(site.path("app.sock")).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Some(heard) = hear(&mut stream) {
                say(
                    &mut stream,
                    document(heard.param("REQUEST_METHOD").unwrap()),
                );
            }
        }
    });
    let server = site.start();
    let watch = Watch::begin(&server).keeps(1);
    for _ in 0..3 {
        assert_eq!(server.get("/app").text(), "GET");
        let mut client = server.connect();
        client.post("/app", b"body");
        assert_eq!(client.reply().text(), "POST");
    }
    let asked: Vec<_> = (0..10)
        .map(|_| {
            let mut client = server.connect();
            client.get("/app");
            client
        })
        .collect();
    for mut client in asked {
        assert_eq!(client.reply().text(), "GET");
    }
    watch.after(&["ok"; 16]);
}

fn a_client_that_leaves_aborts() {
    let (told, heard) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let answer = move |_: usize, stream: &mut UnixStream| {
        hear(stream);
        let told = told.lock().unwrap();
        told.send(None).unwrap();
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(stream, &mut rest);
        told.send(Some(rest)).unwrap();
    };
    let (_application, server) = site(answer, "");
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/app");
    assert_eq!(heard.recv().unwrap(), None);
    client.reset();
    assert_eq!(
        heard.recv().unwrap(),
        Some(record(RecordType::ABORT, 1, "", 0))
    );
    watch.after(&["client_gone"]);
}

fn a_body_without_a_length_gets_one() {
    let answer = |_: usize, stream: &mut UnixStream| {
        while let Some(heard) = hear(stream) {
            let length = heard.param("CONTENT_LENGTH").map(str::to_owned);
            say(
                stream,
                document(format!("{length:?} {}", heard.stdin.len())),
            );
        }
    };
    let (_application, server) = site(answer, "");
    let mut client = server.connect();
    client.send("POST /app HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    assert_eq!(client.reply().text(), "Some(\"5\") 5");
}

fn a_body_streams_in_both_directions() {
    const N: usize = 20_000_000;
    let answer = |_: usize, stream: &mut UnixStream| {
        let heard = hear_params(stream).unwrap();
        assert_eq!(heard.param("CONTENT_LENGTH"), None);
        say(stream, head());
        // Echoes records as they come, which takes reading and writing at once.
        let mut records = stream.try_clone().unwrap();
        loop {
            let mut header = [0; 8];
            std::io::Read::read_exact(&mut records, &mut header).unwrap();
            let content = usize::from(header[4]) << 8 | usize::from(header[5]);
            let mut rest = vec![0; content + usize::from(header[6])];
            std::io::Read::read_exact(&mut records, &mut rest).unwrap();
            if content == 0 {
                break;
            }
            say(stream, record(RecordType::STDOUT, 1, &rest[..content], 0));
        }
        say(stream, [ended(Outcome::COMPLETE), b"x".to_vec()].concat());
    };
    let (_application, server) = site(answer, "stream_body = true\n");
    let watch = Watch::begin(&server).memory(24 << 20);
    let mut client = server.connect();
    client.send("POST /app HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut stream = client.stream.try_clone().unwrap();
    let sending = thread::spawn(move || {
        let block = crate::harness::child::pattern(0, N);
        for piece in block.chunks(123_457) {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            std::io::Write::write_all(&mut stream, &chunk).unwrap();
        }
        std::io::Write::write_all(&mut stream, b"0\r\n\r\n").unwrap();
    });
    let reply = client.reply();
    sending.join().unwrap();
    assert_eq!(reply.end, End::Whole);
    assert!(
        reply.body == crate::harness::child::pattern(0, N),
        "{} bytes",
        reply.body.len()
    );
    drop(client);
    watch.after(&["ok"]);
}

fn a_large_response_to_a_slow_reader() {
    let answer = |_: usize, stream: &mut UnixStream| {
        hear(stream);
        say(stream, head());
        let block = vec![b'x'; 65_535];
        for _ in 0..1000 {
            say(stream, record(RecordType::STDOUT, 1, &block, 1));
        }
        say(stream, [ended(Outcome::COMPLETE), b"x".to_vec()].concat());
        hold(stream);
    };
    let (_application, server) = site(answer, "");
    let watch = Watch::begin(&server).memory(24 << 20);
    let mut client = server.connect();
    client.get("/app");
    assert_eq!(client.head().status, 200);
    let mut got = 0;
    while let Some(chunk) = client.chunk() {
        if chunk.is_empty() {
            break;
        }
        got += chunk.len();
    }
    assert_eq!(got, 65_535_000);
    drop(client);
    watch.after(&["ok"]);
}

fn an_answer_before_the_body_is_read() {
    let answer = |_: usize, stream: &mut UnixStream| {
        hear_params(stream);
        say(stream, document("early"));
    };
    let (application, server) = site(answer, "");
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.begin_post("/app", 200_000);
    client.send(vec![b'x'; 200_000]);
    assert_eq!(client.reply().text(), "early");
    client.post("/app", b"more");
    assert_eq!(client.reply().text(), "early");
    assert_eq!(application.accepted(), 2);
    drop(client);
    watch.after(&["ok", "ok"]);
}

fn a_place_for_one() {
    let answer = |_: usize, stream: &mut UnixStream| {
        hear(stream);
        say(stream, [head(), stdout("first")].concat());
        hold(stream);
    };
    let site = new_site()
        .config("queue_wait = \"300ms\"")
        .config(&format!("{ROUTE}max_running = 1\n"));
    let _application = Application::start(site.folder(), answer);
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut first = server.connect();
    first.get("/app");
    assert_eq!(first.head().status, 200);
    let second = server.get("/app");
    assert_eq!(
        (second.status, second.field("retry-after")),
        (503, Some("1"))
    );
    // Other requests do not wait for the application.
    assert_eq!(server.get("/cgi-bin/t?head&out=x").status, 200);
    first.reset();
    watch.after(&["busy", "client_gone", "ok"]);
}

fn a_full_backlog() {
    let site = new_site().config(&format!("{ROUTE}connect_timeout = \"300ms\"\n"));
    let path = site.path("app.sock");
    let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
    let socket = || {
        rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            None,
        )
    };
    let listener = socket().unwrap();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = UnixStream::connect(&path).unwrap();
    let server = site.start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/app").status, 503);
    server.says("its backlog is full");
    watch.after(&["busy"]);
}

fn no_socket() {
    let server = new_site().config(ROUTE).start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/app").status, 502);
    server.says("the socket does not exist");
    watch.after(&["script_error"]);
}

fn a_socket_that_nobody_reads() {
    let site = new_site().config(ROUTE);
    drop(std::os::unix::net::UnixListener::bind(site.path("app.sock")).unwrap());
    let server = site.start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/app").status, 502);
    server.says("no process listens there");
    watch.after(&["script_error"]);
}

fn echo(_: usize, stream: &mut UnixStream) {
    let heard = hear(stream).unwrap();
    let lines: String = heard
        .params
        .iter()
        .map(|(n, v)| format!("{n}={v}\n"))
        .collect();
    say(stream, [document(lines), b"x".to_vec()].concat());
}

/// Without a folder of scripts the route is the script, as WSGI and similar interfaces expect.
fn variables() {
    let (_application, server) = site(echo, "env = { COLOUR = \"red\" }\n");
    let watch = Watch::begin(&server);
    let text = server.get("/app/a%20b?c=d").text();
    let lines: Vec<_> = text.lines().collect();
    for line in [
        "SCRIPT_NAME=/app",
        "PATH_INFO=/a b",
        "QUERY_STRING=c=d",
        "REQUEST_METHOD=GET",
        "REQUEST_URI=/app/a%20b?c=d",
        "GATEWAY_INTERFACE=CGI/1.1",
        "COLOUR=red",
    ] {
        assert!(lines.contains(&line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("SCRIPT_FILENAME="));
    let mut names: Vec<_> = lines.iter().map(|l| l.split('=').next()).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    watch.after(&["ok"]);
}

fn httpoxy() {
    let (_application, server) = site(echo, "");
    let watch = Watch::begin(&server);
    let text = server
        .ask("GET /app HTTP/1.1\r\nHost: a\r\npRoXy: http://evil/\r\nX-A: b\r\nX_Under: c\r\nAuthorization: d\r\n\r\n")
        .text();
    assert!(text.contains("HTTP_X_A=b\n"));
    for name in ["HTTP_PROXY", "HTTP_X_UNDER", "HTTP_AUTHORIZATION"] {
        assert!(!text.contains(name), "{text}");
    }
    watch.after(&["ok"]);
}
