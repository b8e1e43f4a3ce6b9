//! Tests that a front passes requests to any service. The service here has a few lines; clients reach it over
//! socket pairs and a listener.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use galgo_front::{
    event_loop::EventLoop,
    front_settings::{Http, Listen, Settings, Speaks},
    listener::Listener,
    run::{build_runtime, run_event_loop},
    shared_by_loops::{Accepted, Handed, Handle, Shared},
    site::{NewSite, SiteService},
};
use galgo_io::address::Address;
use galgo_proto::forwarded::Trusted;
use galgo_service::{
    body::{Body, Response},
    client::Next,
    fault::Fault,
    id::Id,
    link::Link,
    log::{self, LogFormat, LogTo, Logs},
    phase::Phase,
    request::Request,
    service::{Left, Service},
    spool::{Spool, SpoolSettings},
};
use tokio::sync::{oneshot, watch};

/// A service that answers with its greeting, the request's method, and the body in upper case.
#[derive(Debug)]
struct Shout {
    greeting: &'static str,
    settings: Settings,
}

impl Service for Shout {
    async fn call(&self, request: &mut Request<'_>) -> Result<Response, Left> {
        let mut said = format!("{} {:?} ", self.greeting, request.head.method).into_bytes();
        loop {
            match request.client.next().map_err(|_| Left)? {
                Next::Data(n) => {
                    said.extend(request.client.buffered_bytes()[..n].to_ascii_uppercase());
                    request.client.consume(n);
                }
                Next::More => request.client.wait_for_body().await.map_err(|_| Left)?,
                Next::End => break,
            }
        }
        let mut response = Response::new(200);
        response.body = Body::Bytes(said);
        Ok(response)
    }

    fn log_cut_response(&self, _request: &Request<'_>, _fault: &Fault) {}

    fn build_refusal(&self, _link: &Link, _id: Id, fault: &Fault) -> Response {
        let mut response = Response::new(fault.status());
        response.body = Body::Bytes(fault.to_string().into_bytes());
        response
    }
}

impl SiteService for Shout {
    fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn shout(greeting: &'static str, listener: Option<&Listener>) -> Shout {
    let settings = Settings {
        listen: listener.map(named).into_iter().collect(),
        http: Http::default(),
        trusted: Trusted::default(),
        max_connections: (100, 100),
        spool: Arc::new(Spool::new(&SpoolSettings::default(), None)),
        shutdown_grace: Duration::from_secs(10),
        tls: None,
        upgrades: false,
        access_log: Some(LogFormat::Combined),
        own_logs: false,
    };
    Shout { greeting, settings }
}

/// Returns a listener's name in the configuration.
fn named(listener: &Listener) -> Listen {
    Listen {
        address: listener.asked.clone(),
        speaks: listener.listen.speaks,
    }
}

/// An event loop on a thread of its own.
struct Front {
    shared: Arc<Shared<Shout>>,
    phase: watch::Sender<Phase>,
    thread: JoinHandle<()>,
    folder: tempfile::TempDir,
}

impl Front {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = log::LogSettings {
            access: Some(LogTo::File(folder.path().join("access"))),
            format: LogFormat::Combined,
            own: Vec::new(),
            error: LogTo::File(folder.path().join("error")),
        };
        let (phase, watched) = watch::channel(Phase::Serving);
        let (handle, given) = Handle::new();
        let logs = Logs::open(&settings, None).unwrap();
        let shared = Arc::new(Shared::new(logs, vec![handle], watched));
        let its = shared.clone();
        let thread = std::thread::spawn(move || {
            let event_loop = EventLoop::new(its, 0, shout("hello", None));
            run_event_loop(&event_loop, &build_runtime().unwrap(), given, async {});
        });
        Self {
            shared,
            phase,
            thread,
            folder,
        }
    }

    /// Returns the client's end of a new connection.
    fn connect(&self, speaks: Speaks) -> UnixStream {
        let (client, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let accepted = Accepted {
            fd: ours.into(),
            remote: None,
            local: None,
            speaks,
        };
        assert!(
            self.shared.loops[0]
                .send_message(Handed::Connection(accepted))
                .is_ok()
        );
        client
    }

    /// Makes the event loop use another site, and waits until it does.
    fn greets(&self, greeting: &'static str, listener: Option<Listener>) {
        let (taken, all) = oneshot::channel();
        let site = shout(greeting, listener.as_ref());
        let new = NewSite {
            make: Box::new(|before: &Shout| {
                assert_ne!(before.greeting, site.greeting);
                site
            }),
            listeners: listener.into_iter().collect(),
            taken: Arc::new(taken),
        };
        assert!(self.shared.loops[0].send_message(Handed::Site(new)).is_ok());
        assert!(all.blocking_recv().is_err());
    }

    /// Ends the event loop and returns the access log.
    fn end(self) -> String {
        self.phase.send_replace(Phase::Draining);
        self.thread.join().unwrap();
        self.shared.logs.flush();
        fs::read_to_string(self.folder.path().join("access")).unwrap()
    }
}

/// Reads until the connection ends. Returns the text without the date.
fn all(mut from: impl std::io::Read) -> String {
    let mut got = String::new();
    from.read_to_string(&mut got).unwrap();
    got.lines()
        .filter(|line| !line.starts_with("Date: "))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn requests_of_http_are_answered_one_after_the_other() {
    let front = Front::new();
    let mut client = front.connect(Speaks::Http);
    client
        .write_all(
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\
              POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n\
              GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
        .unwrap();
    let head = "HTTP/1.1 200 OK\nServer: galgo\nContent-Length";
    assert_eq!(
        all(client),
        format!(
            "{head}: 10\n\nhello Get {head}: 16\n\nhello Post ABCDE{head}: 10\nConnection: close\n\nhello Get "
        )
    );
    let log = front.end();
    assert_eq!(log.lines().count(), 3, "{log}");
}

#[test]
fn what_is_no_request_is_refused_by_the_service() {
    let front = Front::new();
    let mut client = front.connect(Speaks::Http);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let got = all(client);
    assert!(got.starts_with("HTTP/1.1 400 Bad Request\n"), "{got}");
    assert!(front.end().contains(" 400 "));
}

#[test]
fn the_same_service_answers_a_front_server() {
    let front = Front::new();
    let mut client = front.connect(Speaks::Scgi);
    let variables = b"CONTENT_LENGTH\x003\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/\0SERVER_PROTOCOL\0HTTP/1.1\0HTTP_HOST\0a\0";
    client
        .write_all(format!("{}:", variables.len()).as_bytes())
        .unwrap();
    client.write_all(variables).unwrap();
    client.write_all(b",abc").unwrap();
    assert_eq!(
        all(client),
        "Status: 200 OK\nContent-Length: 14\n\nhello Post ABC"
    );
    front.end();
}

#[test]
fn another_site_answers_the_next_request() {
    let front = Front::new();
    let listener = Listener::bind_tcp(([127, 0, 0, 1], 0).into(), Speaks::Http, false).unwrap();
    let Address::Tcp(at) = listener.listen.address else {
        panic!("no port");
    };
    let ask = |client: &mut UnixStream| {
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b" Get ") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            got.extend(byte);
        }
        String::from_utf8(got).unwrap()
    };
    let mut client = front.connect(Speaks::Http);
    assert!(ask(&mut client).ends_with("\nhello Get "));
    front.greets("good evening", Some(listener));
    assert!(ask(&mut client).ends_with("\ngood evening Get "));
    let mut other = TcpStream::connect(at).unwrap();
    other.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert!(all(other).ends_with("good evening Get "));
    // A site that does not name a listener closes it.
    front.greets("good night", None);
    assert!(ask(&mut client).ends_with("\ngood night Get "));
    assert!((0..10_000).any(|_| TcpStream::connect(at).is_err()));
    drop(client);
    let log = front.end();
    assert_eq!(log.lines().count(), 4, "{log}");
}
