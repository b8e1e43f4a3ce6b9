//! Responses made from a program's output, which comes over a socket here. No process is started.

use std::{cell::RefCell, io::Write, net::Shutdown, os::unix::net::UnixStream, rc::Rc, sync::Arc};

use galgo_io::{address::Address, sock::Sock};
use galgo_proto::h1::HeadLimits;
use galgo_service::{
    admission::{Admission, AdmissionSettings},
    client::Whole,
    id::Ids,
    link::Link,
    log::{LogFormat, LogSettings, LogTo, Logs, access::AccessEntry},
    phase::Phase,
    spool::{Spool, SpoolSettings},
};
use galgo_spawn::Spawner;
use tokio::{sync::watch, task::LocalSet};

use super::*;
use crate::upstream::exchange::Exchange;
use crate::{
    application_settings::{Application, Protocol, To},
    relay::clock::Clocks,
    resources::{Resources, open_null},
    shared::{HandlersShared, OncePerProgram},
    template_settings::TemplateSettings,
    upstream::{
        Upstream,
        exchange::{ExchangeLease, ExchangeStart},
    },
};

/// The handler's answer in words: its head, and the body of a document.
type Said = (String, String);

/// Returns the answer made from `output`, for a request with this method and these fields.
fn said(nph: bool, method: &str, fields: &str, output: &[u8]) -> Said {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, ask(nph, method, fields, output))
}

async fn ask(nph: bool, method: &str, fields: &str, output: &[u8]) -> Said {
    let settings = LogSettings {
        access: None,
        format: LogFormat::Combined,
        own: Vec::new(),
        error: LogTo::File("/dev/null".into()),
    };
    let logs = Logs::open(&settings, None).unwrap();
    let errors = logs.error.clone();
    let (_phase, serving) = watch::channel(Phase::Serving);
    let spawner = Spawner::direct().unwrap();
    let templates = TemplateSettings::default();
    let null = open_null().unwrap();
    let resources = Resources::new(0, (spawner, None), null, errors.clone(), templates, serving);
    let settings = AdmissionSettings::default();
    let shared = HandlersShared {
        path: String::new(),
        shows_causes: false,
        queue_wait: settings.wait,
        admission: Admission::new(&settings),
        spool: Arc::new(Spool::new(&SpoolSettings::default(), None)),
        gate: Arc::default(),
        untyped: OncePerProgram::default(),
    };
    let options = CgiOptions {
        max_reply_head: 1 << 10,
        ..CgiOptions::default()
    };
    let to = To::Address(Address::Unix("/nowhere".into()));
    let config = Application::new(Protocol::Scgi, to, options);
    let upstream = Arc::new(Upstream::new(&config, &settings, None).unwrap());

    let text = format!("{method} /p HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let head = Rc::new(Head::parse(text.as_bytes(), &HeadLimits::default()).unwrap());
    let (link, mut client) = (Link::between(None, None), Whole::new(Vec::new()));
    let (id, remote) = (Ids::new().next(), link.remote.clone());
    let entry = Rc::new(RefCell::new(AccessEntry::new(
        id,
        remote,
        Some(head.clone()),
    )));
    let mut request = Request::new(head.clone(), &link, &mut client, entry);
    let source = LogSource::new(errors, id, "/p");

    let lease =
        ExchangeLease::Application(upstream.acquire_lease(0, request.peer()).await.unwrap());
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.write_all(output).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let start = ExchangeStart {
        conn: Sock::new(ours.into()),
        again: false,
        lease,
        clocks: Clocks::start(&config.options, ""),
        max_stderr: 1000,
        source: source.clone(),
        file: None,
        bodiless: true,
        run_to_completion: false,
    };
    let mut answering = Answering {
        cx: Context {
            resources: &resources,
            shared: &shared,
        },
        request: &mut request,
        options: &config.options,
        sendfile: &config.sendfile,
        head: &head,
        nph,
        upgrades: false,
        source,
    };
    let exchange = Exchange::over_scgi(start, b"0:,".to_vec());
    words(answering.read_reply(Backend::Exchange(exchange)).await)
}

fn words(answer: Result<Answer, Fault>) -> Said {
    let response = match answer {
        Ok(Answer::Response(response)) => response,
        Ok(Answer::Local(path)) => return (format!("local {path}"), String::new()),
        Err(fault) => return (format!("{} {fault}", fault.status()), String::new()),
    };
    let Body::Stream(mut output) = response.body else {
        panic!("{:?}", response.body)
    };
    let mut words = response.status.to_string();
    if let Some(reason) = response.reason {
        words.push_str(&format!(" {reason}"));
    }
    for (name, value) in response.fields.iter() {
        let [name, value] = [name, value].map(String::from_utf8_lossy);
        words.push_str(&format!(", {name}: {value}"));
    }
    if let Some(length) = output.content_length {
        words.push_str(&format!(", of {length} bytes"));
    }
    for (is, word) in [(output.nph, ", untouched"), (output.discard, ", dropped")] {
        words.push_str(if is { word } else { "" });
    }
    let body = output.producer.pending_output().first_part();
    (words, String::from_utf8_lossy(body).into_owned())
}

/// RFC 3875, 6.2 and 6.3: the program's output, the answer, and the body.
const REPLIES: [(&str, &str, &str); 10] = [
    // 6.2.1: a document.
    (
        "Content-Type: text/plain\n\nbody",
        "200, Content-Type: text/plain",
        "body",
    ),
    (
        "Content-Type: text/plain\r\nStatus: 404 Not here\r\nX-Own: 1\r\n\r\nbody",
        "404 Not here, Content-Type: text/plain, X-Own: 1",
        "body",
    ),
    (
        "Status: 201\nContent-Type: text/plain\nContent-Length: 4\n\nbody",
        "201, Content-Type: text/plain, of 4 bytes",
        "body",
    ),
    ("Status: 200\n\nuntyped", "200", "untyped"),
    ("Status: 204\n\n", "204, dropped", ""),
    // 6.2.2: a local redirect.
    ("Location: /other?a=b\n\n", "local /other?a=b", ""),
    (
        "Location: /other\nContent-Type: text/plain\n\nbody",
        "302, Location: /other, Content-Type: text/plain",
        "body",
    ),
    // 6.2.3 and 6.2.4: a client redirect, with and without a document.
    (
        "Location: https://example.org/\n\n",
        "302, Location: https://example.org/, dropped",
        "",
    ),
    (
        "Location: https://example.org/\nStatus: 307 Later\nContent-Type: text/plain\n\nbody",
        "307 Later, Location: https://example.org/, Content-Type: text/plain",
        "body",
    ),
    // 6.3.4: other fields are passed on.
    (
        "Content-Type: a/b\nSet-Cookie: a=1\nSet-Cookie: b=2\n\n",
        "200, Content-Type: a/b, Set-Cookie: a=1, Set-Cookie: b=2",
        "",
    ),
];

#[test]
fn a_head_decides_what_becomes_of_the_rest() {
    for (printed, wanted, body) in REPLIES {
        let said = said(false, "GET", "", printed.as_bytes());
        assert_eq!(said, (wanted.into(), body.into()), "{printed:?}");
    }
}

/// The program's output, and the message to its author.
const WRONG: [(&str, &str); 6] = [
    ("", "it printed nothing"),
    (
        "Content-Type: text/plain\n",
        "one field and no empty line after the header",
    ),
    (
        "<h1>hello</h1>\n",
        "line 1 of the response head is not a header field",
    ),
    (
        "Status: 99\n\n",
        "line 1 of the response head is not a status",
    ),
    ("Status: 200\nStatus: 404\n\n", "repeats"),
    ("Location: /a\nLocation: /b\n\n", "repeats"),
];

#[test]
fn a_wrong_head_is_the_programs_fault() {
    let long = format!("X-Long: {}\n\n", "x".repeat(1024));
    for (printed, words) in [(&*long, "does not end within 1024 bytes")]
        .into_iter()
        .chain(WRONG)
    {
        let (said, body) = said(false, "GET", "", printed.as_bytes());
        assert!(said.starts_with("502 ") && said.contains(words), "{said}");
        assert_eq!(body, "", "{printed:?}");
    }
}

/// A document that the client already has, by the program's validators and the request's conditions.
#[test]
fn a_document_that_is_known_is_a_304() {
    let own = "ETag: \"a\"\nContent-Type: text/plain\nContent-Length: 4\n\nbody";
    let failed = format!("Status: 404\n{own}");
    let (whole, known) = (
        "200, ETag: \"a\", Content-Type: text/plain, of 4 bytes",
        // Later steps need the type, and remove it.
        "304, ETag: \"a\", Content-Type: text/plain, dropped",
    );
    let absent = "404, ETag: \"a\", Content-Type: text/plain, of 4 bytes";
    for (method, fields, printed, wanted) in [
        ("GET", "If-None-Match: \"a\"\r\n", own, known),
        ("HEAD", "If-None-Match: \"a\"\r\n", own, known),
        ("GET", "If-None-Match: \"b\"\r\n", own, whole),
        ("GET", "", own, whole),
        ("GET", "If-None-Match: \"a\"\r\n", &failed, absent),
        ("GET", "If-None-Match: *\r\n", "Status: 200\n\nbody", "200"),
    ] {
        let (said, _body) = said(false, method, fields, printed.as_bytes());
        assert_eq!(said, wanted, "{method} {fields} {printed:?}");
    }
}

/// `nph-`: the program writes the whole response, and its status is read for the log alone.
#[test]
fn own_words_are_untouched() {
    for (printed, wanted) in [
        ("HTTP/1.1 299 Own\r\nX: y\r\n\r\nbody", "299, untouched"),
        ("Location: /other\n\n", "200, untouched"),
        ("<h1>", "200, untouched"),
    ] {
        let said = said(true, "GET", "If-None-Match: *\r\n", printed.as_bytes());
        assert_eq!(said, (wanted.into(), printed.into()));
    }
    let (nothing, _) = said(true, "GET", "", b"");
    assert!(nothing.starts_with("502 ") && nothing.contains("it printed nothing"));
}
