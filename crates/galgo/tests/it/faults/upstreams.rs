//! Applications that speak FastCGI wrongly, too little, too late or not at all. Whatever they did, their
//! connection never serves another request.

use std::{os::unix::net::UnixStream, sync::Arc, thread, time::Duration};

use galgo_proto::fcgi::{Kind, Outcome};

use crate::harness::{
    End, Server, Site, Test,
    upstream::{Application, document, ended, hear, hear_params, hold, record, say, stdout},
};

/// What the client sees.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// An error page.
    Page(u16),
    /// This much of a body, visibly cut.
    Cut(&'static str),
    /// A whole body.
    Whole(&'static str),
}
use Then::{Cut, Page, Whole};

struct Row {
    name: &'static str,
    answer: Box<dyn Fn(&mut UnixStream) + Send + Sync>,
    /// What is said once the client has received what was said before, and whether the connection closes then.
    more: Vec<u8>,
    closes: bool,
    then: Then,
    outcome: &'static str,
    says: &'static str,
}

/// Hears the request out and sends `bytes`; the connection stays open.
fn sends(
    name: &'static str,
    bytes: Vec<Vec<u8>>,
    then: Then,
    outcome: &'static str,
    says: &'static str,
) -> Row {
    let bytes = bytes.concat();
    let answer = move |stream: &mut UnixStream| {
        hear(stream);
        say(stream, &bytes);
    };
    row(name, answer, then, outcome, says)
}

/// The same, but closes the connection then.
fn dies(name: &'static str, bytes: Vec<Vec<u8>>, then: Then, says: &'static str) -> Row {
    Row {
        closes: true,
        ..sends(name, bytes, then, "script_error", says)
    }
}

fn row(
    name: &'static str,
    answer: impl Fn(&mut UnixStream) + Send + Sync + 'static,
    then: Then,
    outcome: &'static str,
    says: &'static str,
) -> Row {
    Row {
        name,
        answer: Box::new(answer),
        more: Vec::new(),
        closes: false,
        then,
        outcome,
        says,
    }
}

/// Goes on with `more` once the client has what came before.
fn then(row: Row, more: Vec<Vec<u8>>) -> Row {
    Row {
        more: more.concat(),
        ..row
    }
}

/// Sends a head and a piece of the body.
fn cut(name: &'static str, outcome: &'static str, says: &'static str) -> Row {
    sends(name, vec![head(), stdout("abc")], Cut("abc"), outcome, says)
}

/// The same, with a length that is never reached.
fn promised(name: &'static str) -> Row {
    let head = "Content-Type: a/b\nContent-Length: 9\n\nabc";
    let says = "Content-Length 9";
    sends(name, vec![stdout(head)], Cut("abc"), "script_error", says)
}

fn closing(row: Row) -> Row {
    Row {
        closes: true,
        ..row
    }
}

const CLOSED: &str = "closed the connection before it had ended the request";
const WRONG: &str = "does not speak FastCGI as it should";

fn head() -> Vec<u8> {
    stdout("Content-Type: text/plain\n\n")
}

fn framing() -> Vec<Row> {
    let bad =
        |name, bytes: Vec<u8>, says| sends(name, vec![bytes], Page(502), "script_error", says);
    vec![
        bad(
            "a_wrong_id",
            record(Kind::Stdout, 2, "Content-Type: a/b\n\nsecret", 0),
            "not made",
        ),
        bad(
            "the_management_id",
            record(Kind::Stdout, 0, "Content-Type: a/b\n\n", 0),
            "not made",
        ),
        bad(
            "an_unknown_type",
            record(Kind::Other(12), 1, "x", 0),
            "do not send",
        ),
        bad(
            "an_unknown_management_type",
            record(Kind::Other(99), 0, "x", 0),
            WRONG,
        ),
        bad(
            "values_that_nobody_asked_for",
            record(Kind::GetValuesResult, 0, "", 0),
            WRONG,
        ),
        bad(
            "a_request",
            record(Kind::Begin, 1, [0; 8], 0),
            "do not send",
        ),
        bad(
            "another_version",
            [&[2][..], &head()[1..]].concat(),
            "version 2",
        ),
        bad(
            "garbage",
            b"HTTP/1.1 200 OK\r\n\r\nhello".to_vec(),
            "version 72",
        ),
        bad("a_short_end", record(Kind::End, 1, [0; 7], 0), "8 bytes"),
        bad(
            "an_end_before_anything",
            ended(Outcome::Complete),
            "printed nothing",
        ),
        bad(
            "an_end_within_the_head",
            [stdout("Content-Type: a/b\n"), ended(Outcome::Complete)].concat(),
            "no empty line",
        ),
        then(
            cut("garbage_in_the_body", "script_error", WRONG),
            vec![b"garbage, and more".to_vec()],
        ),
        then(
            cut(
                "output_behind_its_end",
                "script_error",
                "output goes on behind its end",
            ),
            vec![stdout(""), stdout("def")],
        ),
        then(
            promised("an_end_before_the_promised_length"),
            vec![ended(Outcome::Complete)],
        ),
        sends(
            "bytes_behind_the_end",
            vec![document("fine"), b"x".to_vec()],
            Whole("fine"),
            "ok",
            "",
        ),
        sends(
            "padding_of_255",
            vec![
                record(Kind::Stdout, 1, "Content-Type: a/b\n", 255),
                record(Kind::Stderr, 1, "a note\x1b[31m\n", 255),
                record(Kind::Stdout, 1, "\nfine", 255),
                record(Kind::Stdout, 1, "", 255),
                record(Kind::End, 1, [0; 8], 255),
                b"x".to_vec(),
            ],
            Whole("fine"),
            "ok",
            "a note\\u{1b}[31m",
        ),
    ]
}

fn ends() -> Vec<Row> {
    let says = |name, outcome, status, word, words| {
        sends(name, vec![ended(outcome)], Page(status), word, words)
    };
    vec![
        says("overloaded", Outcome::Overloaded, 503, "busy", "overloaded"),
        says(
            "cannot_multiplex",
            Outcome::CannotMultiplex,
            502,
            "script_error",
            "another request",
        ),
        says(
            "unknown_role",
            Outcome::UnknownRole,
            502,
            "script_error",
            "FCGI_UNKNOWN_ROLE",
        ),
        says(
            "an_unknown_status",
            Outcome::Other(77),
            502,
            "script_error",
            "does not know",
        ),
        then(
            cut("overloaded_in_the_body", "busy", "overloaded"),
            vec![ended(Outcome::Overloaded)],
        ),
        dies("dies_at_once", vec![], Page(502), CLOSED),
        dies(
            "dies_within_a_header",
            vec![head()[..5].to_vec()],
            Page(502),
            CLOSED,
        ),
        dies(
            "dies_within_the_head",
            vec![stdout("Content-Type: a/b\n")],
            Page(502),
            CLOSED,
        ),
        then(
            closing(cut("dies_within_the_body", "script_error", CLOSED)),
            vec![],
        ),
        then(
            closing(cut("dies_within_a_record", "script_error", CLOSED)),
            vec![stdout("def")[..5].to_vec()],
        ),
        then(
            closing(promised("dies_within_a_body_of_known_length")),
            vec![],
        ),
        then(
            closing(cut("dies_behind_the_end_of_output", "script_error", CLOSED)),
            vec![stdout("")],
        ),
    ]
}

fn slow() -> Vec<Row> {
    let drip = |stream: &mut UnixStream| {
        hear(stream);
        for byte in head() {
            say(stream, [byte]);
            thread::sleep(Duration::from_secs(1));
        }
    };
    let split = |stream: &mut UnixStream| {
        hear(stream);
        for byte in document("fine").into_iter().chain([b'x']) {
            say(stream, [byte]);
        }
        hold(stream);
    };
    vec![
        sends(
            "silence",
            vec![],
            Page(504),
            "script_timeout",
            "first_byte_timeout",
        ),
        row(
            "one_byte_a_second",
            drip,
            Page(504),
            "script_timeout",
            "first_byte_timeout",
        ),
        sends(
            "silence_within_the_body",
            vec![head(), stdout("abc")],
            Cut("abc"),
            "script_timeout",
            "idle_timeout",
        ),
        sends(
            "an_end_that_never_comes",
            vec![head(), stdout("abc"), stdout("")],
            Cut("abc"),
            "script_timeout",
            "idle_timeout",
        ),
        row(
            "records_split_at_every_byte",
            split,
            Whole("fine"),
            "ok",
            "",
        ),
        row(
            "never_reads",
            hold_silently,
            Page(504),
            "script_timeout",
            "first_byte_timeout",
        ),
    ]
}

/// Takes the connection and reads nothing until the other side has gone.
fn hold_silently(stream: &mut UnixStream) {
    let mut fds = [rustix::event::PollFd::new(
        &*stream,
        rustix::event::PollFlags::RDHUP,
    )];
    let _ = rustix::event::poll(&mut fds, None);
}

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    let rows = [framing(), ends(), slow()];
    let mut tests: Vec<_> = rows
        .into_iter()
        .flatten()
        .map(|row| {
            let row = Arc::new(row);
            Test::new(module_path!(), row.name, move || hostile(row.clone()))
        })
        .collect();
    tests.extend(others());
    tests
}

const ROUTE: &str =
    "[[route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\nkeep_connections = 8\n";

fn site(
    answer: impl Fn(usize, &mut UnixStream) + Send + Sync + 'static,
    keys: &str,
) -> (Application, Server) {
    let site = Site::new().table(&format!("{ROUTE}{keys}"));
    let application = Application::start(site.path(), answer);
    (application, site.start())
}

/// With one event loop: a connection is kept there before the next request is looked at, and not a moment later.
fn one_worker(
    answer: impl Fn(usize, &mut UnixStream) + Send + Sync + 'static,
) -> (Application, Server) {
    let site = Site::new().top("workers = 1").table(ROUTE);
    let application = Application::start(site.path(), answer);
    (application, site.start())
}

fn hostile(row: Arc<Row>) {
    let own = row.clone();
    let (seen, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let answer = move |n: usize, stream: &mut UnixStream| {
        if n > 0 {
            hear(stream);
            // Complete, and not to be kept: so that no descriptor stays.
            say(stream, [document("next"), b"x".to_vec()].concat());
            return hold(stream);
        }
        (own.answer)(stream);
        if let Cut(_) = own.then {
            wait.lock().unwrap().recv().unwrap();
            say(stream, &own.more);
        }
        if !own.closes {
            hold(stream);
        }
    };
    let clocks = "first_byte_timeout = \"2s\"\nidle_timeout = \"1s\"\n";
    let (application, server) = site(answer, clocks);
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/app");
    match row.then {
        Page(status) => {
            let reply = client.reply();
            assert_eq!((reply.status, reply.end), (status, End::Whole), "{reply:?}");
            assert!(!reply.text().contains("secret"));
        }
        Cut(body) => {
            assert_eq!(client.head().status, 200);
            assert!(client.until(body.as_bytes()).is_some());
            seen.send(()).unwrap();
            let rest = client.rest();
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
            assert!(rest.is_empty() || rest == b"\r\n", "{rest:?}");
        }
        Whole(body) => {
            let reply = client.reply();
            assert_eq!((reply.text().as_str(), reply.end), (body, End::Whole));
        }
    }
    drop(client);
    server.says(row.says);
    let next = server.get("/app");
    assert_eq!((next.status, next.text()), (200, "next".into()));
    assert_eq!(application.accepted(), 2, "the connection was used again");
    watch.after(&[row.outcome, "ok"]);
}

macro_rules! others {
    ($($name:ident),* $(,)?) => {
        fn others() -> Vec<Test> {
            vec![$(Test::new(module_path!(), stringify!($name), $name)),*]
        }
    };
}
others![
    a_connection_is_kept_for_what_may_be_repeated,
    a_kept_connection_that_closes_is_tried_once_more,
    a_new_connection_that_closes_is_not_tried_again,
    an_end_that_comes_late,
    nobody_is_kept_from_a_process_by_a_kept_connection,
    a_client_that_leaves_aborts,
    a_body_streams_in_both_directions,
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
    let watch = server.watch();
    for _ in 0..3 {
        assert_eq!(server.get("/app").text(), "0");
    }
    // What must not be said twice goes over a connection that cannot be closed already.
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
        // It closes when it is asked again, and no sooner.
        if n == 0 {
            hear(stream);
        } else {
            hold(stream);
        }
    };
    let (application, server) = one_worker(answer);
    let watch = server.watch();
    assert_eq!(server.get("/app").text(), "0");
    assert_eq!(server.get("/app").text(), "1");
    assert_eq!(application.accepted(), 2);
    watch.after(&["ok", "ok"]);
}

fn a_new_connection_that_closes_is_not_tried_again() {
    let answer = |_: usize, stream: &mut UnixStream| drop(hear(stream));
    let (application, server) = site(answer, "");
    let watch = server.watch();
    assert_eq!(server.get("/app").status, 502);
    assert_eq!(application.accepted(), 1);
    watch.after(&["script_error"]);
}

/// Until it has come nobody knows whether the response is whole; then the connection is good for another.
fn an_end_that_comes_late() {
    let (seen, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let answer = move |_: usize, stream: &mut UnixStream| {
        while hear(stream).is_some() {
            say(stream, [head(), stdout("abc"), stdout("")].concat());
            wait.lock().unwrap().recv().unwrap();
            say(stream, ended(Outcome::Complete));
        }
    };
    let (application, server) = one_worker(answer);
    let watch = server.watch();
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

/// An application with one process: what waits for it on a new connection gets it, kept connections or not.
fn nobody_is_kept_from_a_process_by_a_kept_connection() {
    let site = Site::new().table(ROUTE);
    let listener = std::os::unix::net::UnixListener::bind(site.path().join("app.sock")).unwrap();
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
    let watch = server.watch();
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
    let watch = server.watch();
    let mut client = server.connect();
    client.get("/app");
    assert_eq!(heard.recv().unwrap(), None);
    client.reset();
    assert_eq!(heard.recv().unwrap(), Some(record(Kind::Abort, 1, "", 0)));
    watch.after(&["client_gone"]);
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
            say(stream, record(Kind::Stdout, 1, &rest[..content], 0));
        }
        say(stream, [ended(Outcome::Complete), b"x".to_vec()].concat());
    };
    let (_application, server) = site(answer, "");
    let watch = server.watch().memory(24 << 20);
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
            say(stream, record(Kind::Stdout, 1, &block, 1));
        }
        say(stream, [ended(Outcome::Complete), b"x".to_vec()].concat());
        hold(stream);
    };
    let (_application, server) = site(answer, "");
    let watch = server.watch().memory(24 << 20);
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
    let watch = server.watch();
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
    let site = Site::new()
        .top("queue_wait = \"300ms\"")
        .table(&format!("{ROUTE}max_running = 1\n"));
    let _application = Application::start(site.path(), answer);
    let server = site.start();
    let watch = server.watch();
    let mut first = server.connect();
    first.get("/app");
    assert_eq!(first.head().status, 200);
    let second = server.get("/app");
    assert_eq!(
        (second.status, second.field("retry-after")),
        (503, Some("1"))
    );
    // Nobody else waits for it.
    assert_eq!(server.get("/cgi-bin/t?head&out=x").status, 200);
    first.reset();
    watch.after(&["busy", "client_gone", "ok"]);
}

fn a_full_backlog() {
    let site = Site::new().table(&format!("{ROUTE}connect_timeout = \"300ms\"\n"));
    let path = site.path().join("app.sock");
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
    let watch = server.watch();
    assert_eq!(server.get("/app").status, 503);
    server.says("its backlog is full");
    watch.after(&["busy"]);
}

fn no_socket() {
    let server = Site::new().table(ROUTE).start();
    let watch = server.watch();
    assert_eq!(server.get("/app").status, 502);
    server.says("there is no such socket");
    watch.after(&["script_error"]);
}

fn a_socket_that_nobody_reads() {
    let site = Site::new().table(ROUTE);
    drop(std::os::unix::net::UnixListener::bind(site.path().join("app.sock")).unwrap());
    let server = site.start();
    let watch = server.watch();
    assert_eq!(server.get("/app").status, 502);
    server.says("nobody listens there");
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

/// Without a folder of scripts the route is the script, as WSGI and its like want it.
fn variables() {
    let (_application, server) = site(echo, "env = { COLOUR = \"red\" }\n");
    let watch = server.watch();
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
    let watch = server.watch();
    let text = server
        .ask("GET /app HTTP/1.1\r\nHost: a\r\npRoXy: http://evil/\r\nX-A: b\r\nX_Under: c\r\nAuthorization: d\r\n\r\n")
        .text();
    assert!(text.contains("HTTP_X_A=b\n"));
    for name in ["HTTP_PROXY", "HTTP_X_UNDER", "HTTP_AUTHORIZATION"] {
        assert!(!text.contains(name), "{text}");
    }
    watch.after(&["ok"]);
}
