//! Applications that speak FastCGI wrongly, too little, too late or not at all. After any such fault their connection
//! never serves another request.

mod others;
mod workers;

use std::{os::unix::net::UnixStream, sync::Arc, thread, time::Duration};

use galgo_proto::fcgi::{Outcome, RecordType};

use crate::harness::{
    Test, new_site,
    upstream::{Application, document, ended, hear, hear_params, hold, record, say, stdout},
    watch::Watch,
};
use galgo_testkit::{End, Server, wait_until};

/// The answer that the client sees.
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
    /// Bytes to send once the client has received the first part; `closes`: the connection closes after them.
    more: Vec<u8>,
    closes: bool,
    then: Then,
    outcome: &'static str,
    says: &'static str,
}

/// Makes a row: the application reads the request and sends `bytes`; the connection stays open.
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

/// Does the same, but closes the connection then.
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

/// Goes on with `more` once the client has the bytes before it.
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

/// Does the same with a Content-Length that is never reached.
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

const CLOSED: &str = "closed the connection before the end of its response";
const WRONG: &str = "breaks the FastCGI protocol";

fn head() -> Vec<u8> {
    stdout("Content-Type: text/plain\n\n")
}

fn framing() -> Vec<Row> {
    let bad =
        |name, bytes: Vec<u8>, says| sends(name, vec![bytes], Page(502), "script_error", says);
    vec![
        bad(
            "a_wrong_id",
            record(RecordType::STDOUT, 2, "Content-Type: a/b\n\nsecret", 0),
            "not made",
        ),
        bad(
            "the_management_id",
            record(RecordType::STDOUT, 0, "Content-Type: a/b\n\n", 0),
            "not made",
        ),
        bad(
            "an_unknown_type",
            record(RecordType(12), 1, "x", 0),
            "do not send",
        ),
        bad(
            "an_unknown_management_type",
            record(RecordType(99), 0, "x", 0),
            WRONG,
        ),
        bad(
            "values_that_nobody_asked_for",
            record(RecordType::GET_VALUES_RESULT, 0, "", 0),
            WRONG,
        ),
        bad(
            "a_request",
            record(RecordType::BEGIN, 1, [0; 8], 0),
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
        bad(
            "a_short_end",
            record(RecordType::END, 1, [0; 7], 0),
            "8 bytes",
        ),
        bad(
            "an_end_before_anything",
            ended(Outcome::COMPLETE),
            "printed nothing",
        ),
        bad(
            "an_end_within_the_head",
            [stdout("Content-Type: a/b\n"), ended(Outcome::COMPLETE)].concat(),
            "no empty line",
        ),
    ]
}

fn behind_a_head() -> Vec<Row> {
    vec![
        then(
            cut("garbage_in_the_body", "script_error", WRONG),
            vec![b"garbage, and more".to_vec()],
        ),
        then(
            cut(
                "output_behind_its_end",
                "script_error",
                "there is output after the end of the output",
            ),
            vec![stdout(""), stdout("def")],
        ),
        then(
            promised("an_end_before_the_promised_length"),
            vec![ended(Outcome::COMPLETE)],
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
                record(RecordType::STDOUT, 1, "Content-Type: a/b\n", 255),
                record(RecordType::STDERR, 1, "a note\x1b[31m\n", 255),
                record(RecordType::STDOUT, 1, "\nfine", 255),
                record(RecordType::STDOUT, 1, "", 255),
                record(RecordType::END, 1, [0; 8], 255),
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
        says("overloaded", Outcome::OVERLOADED, 503, "busy", "overloaded"),
        says(
            "cannot_multiplex",
            Outcome::CANNOT_MULTIPLEX,
            502,
            "script_error",
            "another request",
        ),
        says(
            "unknown_role",
            Outcome::UNKNOWN_ROLE,
            502,
            "script_error",
            "FCGI_UNKNOWN_ROLE",
        ),
        says(
            "an_unknown_status",
            Outcome(77),
            502,
            "script_error",
            "unknown protocol status",
        ),
        then(
            cut("overloaded_in_the_body", "busy", "overloaded"),
            vec![ended(Outcome::OVERLOADED)],
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
        let mut document = document("fine");
        let last = document.pop().unwrap();
        for byte in document {
            say(stream, [byte]);
        }
        // The extra byte forbids to keep the connection; the server sees it together with the end of the answer.
        say(stream, [last, b'x']);
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

/// Returns the tests of this module.
pub fn tests() -> Vec<Test> {
    let rows = [framing(), behind_a_head(), ends(), slow()];
    let mut tests: Vec<_> = rows
        .into_iter()
        .flatten()
        .map(|row| {
            let row = Arc::new(row);
            Test::new(module_path!(), row.name, move || hostile(row.clone()))
        })
        .collect();
    tests.extend(others::tests());
    tests.extend(workers::tests());
    tests
}

const ROUTE: &str =
    "[[route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\nkeep_connections = 8\n";

fn site(
    answer: impl Fn(usize, &mut UnixStream) + Send + Sync + 'static,
    keys: &str,
) -> (Application, Server) {
    let site = new_site().config(&format!("{ROUTE}{keys}"));
    let application = Application::start(site.folder(), answer);
    (application, site.start())
}

/// Starts a site with one event loop. That loop keeps a finished connection before it looks at the next request.
fn one_worker(
    answer: impl Fn(usize, &mut UnixStream) + Send + Sync + 'static,
) -> (Application, Server) {
    let site = new_site().config("workers = 1").config(ROUTE);
    let application = Application::start(site.folder(), answer);
    (application, site.start())
}

fn hostile(row: Arc<Row>) {
    let own = row.clone();
    let (seen, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let answer = move |n: usize, stream: &mut UnixStream| {
        if n > 0 {
            hear(stream);
            // Complete, and not to be kept because of the extra byte: no descriptor stays.
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
    // Only the tests of these clocks set them; other rows must not meet them on a slow machine.
    let late = row.outcome == "script_timeout";
    let clocks = "first_byte_timeout = \"2s\"\nidle_timeout = \"1s\"\n";
    let (application, server) = site(answer, if late { clocks } else { "" });
    let watch = Watch::begin(&server);
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
    // On a machine that stands still the clocks may end the next request, too. It has a connection of its own nevertheless.
    let mut outcomes = vec![row.outcome];
    wait_until("the next answer", || {
        let next = server.get("/app");
        wait_until("another connection", || {
            application.accepted() == outcomes.len() + 1
        });
        let came = next.status == 200;
        assert!(
            came && next.text() == "next" || late && next.status == 504,
            "{next:?}"
        );
        outcomes.push(if came { "ok" } else { "script_timeout" });
        came
    });
    watch.after(&outcomes);
}
