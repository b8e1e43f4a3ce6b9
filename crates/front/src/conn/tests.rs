//! Tests of the request loop, over a pair of sockets and with a service of a few lines: no listener, no thread and no process.

use std::{os::unix::net::UnixStream, sync::Arc, time::Duration};

use galgo_io::{buf::Buf, out::Out};
use galgo_service::{
    body::{Body, Output, Response},
    client::{Client, Next},
    id::Id,
    log::{LogSettings, LogSource, LogTo, Logs},
    phase::Phase,
    producer::{Boxed, OnExit, OutputEvent, Producer},
    service::Left,
    spool::{Spool, SpoolSettings, SpoolShare},
};
use galgo_spawn::Exit;
use tokio::{sync::watch, task::LocalSet, time::timeout};

use super::*;
use crate::shared_by_loops::{Handle, Shared};

/// A time limit that no test comes near.
const LONG: Duration = Duration::from_secs(30);

/// Answers with the method and the path, and reads no body. Two paths have a meaning: `/upgrade` gives the client an [`Echo`]
/// to speak with, `/left` treats the client as gone.
#[derive(Debug)]
struct Names {
    settings: Settings,
    logs: Logs,
    asked: Rc<RefCell<Vec<String>>>,
}

impl Service for Names {
    async fn call(&self, request: &mut Request<'_>) -> Result<Response, Left> {
        let path = String::from_utf8_lossy(request.head.target.path()).into_owned();
        let said = format!("{:?} {path}", request.head.method);
        self.asked.borrow_mut().push(said.clone());
        let mut response = Response::new(200);
        response.body = match &*path {
            "/left" => return Err(Left),
            "/upgrade" => {
                assert!(request.client.can_upgrade());
                request.client.upgrade();
                response = Response::new(101).with_field("Upgrade", "echo");
                Body::Stream(Box::new(self.echo(request)))
            }
            _ => Body::Bytes(said.into_bytes()),
        };
        Ok(response)
    }

    fn log_cut_response(&self, _request: &Request<'_>, fault: &Fault) {
        self.asked.borrow_mut().push(format!("cut: {fault}"));
    }

    fn build_refusal(&self, _link: &Link, _id: Id, fault: &Fault) -> Response {
        let mut response = Response::new(fault.status());
        response.body = Body::Bytes(b"no request".to_vec());
        response
    }
}

impl Names {
    fn echo(&self, request: &Request<'_>) -> Output {
        Output {
            producer: Box::new(Echo::default()),
            content_length: None,
            nph: false,
            discard: false,
            excess: false,
            source: LogSource::new(self.logs.error.clone(), request.id(), "echo"),
            spool: share(&self.settings),
        }
    }
}

fn share(settings: &Settings) -> SpoolShare {
    settings.spool.share_of(Peer::from_address(None))
}

impl SiteService for Names {
    fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Echoes the client's words in upper case, until the client ends.
#[derive(Debug, Default)]
struct Echo {
    out: Out,
    ended: bool,
}

impl Producer for Echo {
    fn pending_output(&mut self) -> &mut Out {
        &mut self.out
    }

    fn pending_len(&self) -> usize {
        self.out.len()
    }

    fn has_output_ended(&self) -> bool {
        self.ended
    }

    fn start_streaming(&mut self, _spool: &SpoolShare, _splices: bool) {}

    fn drain_ready(&mut self, _most: usize) {}

    fn next_event<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>> {
        Box::pin(async {
            loop {
                match client.next()? {
                    Next::Data(n) => {
                        self.out =
                            Out::from_bytes(client.buffered_bytes()[..n].to_ascii_uppercase());
                        client.consume(n);
                        return Ok(OutputEvent::Output);
                    }
                    Next::More => client.wait_for_body().await?,
                    Next::End => {
                        self.ended = true;
                        return Ok(OutputEvent::End);
                    }
                }
            }
        })
    }

    fn note_sent(&mut self) {}

    fn set_client_keeps_up(&mut self, _whether: bool) {}

    fn while_sending<'a>(
        &'a mut self,
        _client: &'a mut dyn Client,
        io: std::pin::Pin<&'a mut dyn Future<Output = ()>>,
    ) -> Boxed<'a, Result<(), Fault>> {
        Box::pin(async {
            io.await;
            Ok(())
        })
    }

    fn truncation_fault(&mut self) -> Boxed<'_, Option<Fault>> {
        Box::pin(async { None })
    }

    fn wait_for_exit(&mut self) -> Boxed<'_, Option<Exit>> {
        Box::pin(async { None })
    }

    fn post_mortem(&mut self, _end: bool) -> Boxed<'_, (Option<Exit>, String)> {
        Box::pin(async { (None, String::new()) })
    }

    fn finish(self: Box<Self>, done: OnExit) {
        done(None);
    }

    fn abandon(self: Box<Self>, _client_left: bool, done: OnExit) {
        done(None);
    }
}

/// The client's end of a connection that is being served.
struct Caller {
    end: Transport,
    heard: Buf,
    asked: Rc<RefCell<Vec<String>>>,
}

impl Caller {
    fn says(&self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        assert_eq!(self.end.try_write(bytes).unwrap(), Some(bytes.len()));
    }

    /// Reads until the bytes end with `end`, and returns them all.
    async fn hears(&mut self, end: &str) -> String {
        while !self.heard.as_slice().ends_with(end.as_bytes()) {
            let more = self.end.fill_buffer(&mut self.heard, 0).await.unwrap();
            assert!(
                more > 0,
                "{:?}",
                String::from_utf8_lossy(self.heard.as_slice())
            );
        }
        text(&std::mem::take(&mut self.heard))
    }

    /// Reads until the connection ends, and returns everything.
    async fn hears_all(mut self) -> String {
        while let Ok(1..) = self.end.fill_buffer(&mut self.heard, 0).await {}
        text(&self.heard)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }
}

/// Returns the bytes as text, without the Date field.
fn text(heard: &Buf) -> String {
    let text = String::from_utf8_lossy(heard.as_slice()).into_owned();
    let lines = text.split_inclusive("\r\n");
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}

/// Serves one connection while `client` has its other end.
fn serves<F: Future<Output = ()>>(client: impl FnOnce(Caller) -> F) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let [ours, theirs] = [ours, theirs].map(|end| {
        end.set_nonblocking(true).unwrap();
        std::os::fd::OwnedFd::from(end)
    });
    let log = LogSettings {
        access: None,
        format: galgo_service::log::LogFormat::Combined,
        own: Vec::new(),
        error: LogTo::Stderr,
    };
    let logs = Logs::open(&log, None).unwrap();
    let asked = Rc::default();
    let site = Names {
        settings: settings(),
        logs: logs.clone(),
        asked: Rc::clone(&asked),
    };
    let (_phase, watched) = watch::channel(Phase::Serving);
    let (handle, _given) = Handle::new();
    let event_loop = Arc::new(Shared::new(logs, vec![handle], watched));
    let event_loop = EventLoop::new(event_loop, 0, site);
    let accepted = Accepted {
        fd: ours,
        remote: None,
        local: None,
        speaks: Speaks::Http,
    };
    event_loop.shared.loops[0].count_connection();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        spawn_connection(event_loop, accepted);
        let caller = Caller {
            end: Transport::new(Sock::new(theirs)),
            heard: Buf::default(),
            asked,
        };
        let over = timeout(LONG, client(caller)).await;
        over.expect("the client waits for what does not come");
    });
}

fn settings() -> Settings {
    Settings {
        listen: Vec::new(),
        http: Http::default(),
        trusted: Trusted::default(),
        max_connections: (100, 100),
        spool: Arc::new(Spool::new(&SpoolSettings::default(), None)),
        shutdown_grace: Duration::from_secs(10),
        tls: None,
        upgrades: true,
        access_log: None,
        own_logs: false,
    }
}

fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nServer: galgo\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Returns the same as [`ok`], for a response with which the connection ends.
fn last(body: &str) -> String {
    ok(body).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    serves(async |mut client| {
        client.says("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3");
        let two = ok("Get /1") + &ok("Head /2").replace("Head /2", "");
        assert_eq!(client.hears("Content-Length: 7\r\n\r\n").await, two);
        // The head of the third request comes in pieces.
        client.says(" HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.hears("/3").await, ok("Get /3"));
        assert_eq!(client.asked(), ["Get /1", "Head /2", "Get /3"]);
    });
}

#[test]
fn a_connection_goes_on_until_one_side_says_that_it_ends() {
    serves(async |mut client| {
        for _ in 0..3 {
            client.says("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.hears("Get /").await, ok("Get /"));
        }
        client.says(
            "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /late HTTP/1.1\r\n",
        );
        let asked = client.asked.clone();
        assert_eq!(client.hears_all().await, last("Get /end"));
        assert_eq!(asked.borrow().len(), 4);
    });
    serves(async |client| {
        client.says("GET /old HTTP/1.0\r\n\r\n");
        assert_eq!(client.hears_all().await, last("Get /old"));
    });
}

#[test]
fn a_body_that_is_not_read_is_no_request() {
    serves(async |mut client| {
        client.says("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nGET /in HTTP/1.1");
        assert_eq!(client.hears("/1").await, ok("Post /1"));
        client.says("\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nGET\r\n0\r\n\r\n");
        assert_eq!(client.hears("/2").await, ok("Post /2"));
        client.says("GET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.hears("/3").await, ok("Get /3"));
        assert_eq!(client.asked(), ["Post /1", "Post /2", "Get /3"]);
    });
    // A body that is too long to take in ends the connection, and its response says so.
    serves(async |client| {
        let length = end::DRAIN + 1;
        client.says(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        rustix::net::shutdown(client.end.sock(), rustix::net::Shutdown::Write).unwrap();
        assert_eq!(client.hears_all().await, last("Post /"));
    });
}

#[test]
fn behind_an_upgrade_there_is_no_request() {
    serves(async |mut client| {
        client.says(
            "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhi ",
        );
        let head = client.hears("HI ").await;
        let (first, rest) = head.split_once("\r\n").unwrap();
        assert_eq!(first, "HTTP/1.1 101 Switching Protocols");
        assert!(rest.contains("\r\nUpgrade: echo\r\n") && rest.ends_with("\r\n\r\nHI "));
        client.says("get /2 http/1.1\r\nhost: a\r\n\r\n");
        let echo = "GET /2 HTTP/1.1\r\nHOST: A\r\n\r\n";
        assert_eq!(client.hears(echo).await, echo);
        assert_eq!(client.asked(), ["Get /upgrade"]);
        rustix::net::shutdown(client.end.sock(), rustix::net::Shutdown::Write).unwrap();
        assert_eq!(client.hears_all().await, "");
    });
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_connection() {
    serves(async |client| {
        client.says("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n Host: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
        rustix::net::shutdown(client.end.sock(), rustix::net::Shutdown::Write).unwrap();
        let asked = client.asked.clone();
        let refused = last("no request").replace("200 OK", "400 Bad Request");
        assert_eq!(client.hears_all().await, ok("Get /1") + &refused);
        assert_eq!(*asked.borrow(), ["Get /1"]);
    });
}

#[test]
fn a_client_that_has_left_is_answered_nothing() {
    serves(async |client| {
        client.says("GET /left HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
        let asked = client.asked.clone();
        assert_eq!(client.hears_all().await, "");
        assert_eq!(*asked.borrow(), ["Get /left"]);
    });
}
