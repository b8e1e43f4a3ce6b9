//! HTTP/2 without TLS, by clients with prior knowledge: a client made with the crate `h2`, and curl.

mod ends;
mod limits;
mod refused;
mod requests;
mod spec;
mod tls;
mod websocket;

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    client::{Builder, ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::Runtime,
};

use crate::harness::{Test, child::pattern, encode, list, new_site, watch::Watch};
use galgo_testkit::{LONG, Server, Site, eventually};

/// Returns the tests of this module and of its submodules.
pub fn tests() -> Vec<Test> {
    [
        requests::tests(),
        ends::tests(),
        limits::tests(),
        refused::tests(),
        spec::tests(),
        tls::tests(),
        websocket::tests(),
    ]
    .concat()
}

/// Starts the site with a listener for HTTP/2; returns its socket, too.
fn serve(site: Site) -> (Server, PathBuf) {
    let socket = site.path("h");
    let listen = format!("h2c+unix:{}", socket.display());
    let arguments = ["-l", "127.0.0.1:0", "-l", &listen];
    (site.arguments(&arguments).start(), socket)
}

/// Starts the site with a listener for HTTP/2 over TCP; returns its address, too.
fn serve_tcp(site: Site) -> (Server, String) {
    let arguments = ["-l", "127.0.0.1:0", "-l", "h2c+127.0.0.1:0"];
    let server = site.arguments(&arguments).start();
    let at = server.listener(1).strip_prefix("h2c+").unwrap().to_owned();
    (server, at)
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// A connection, which a thread of its own drives.
pub struct Connection {
    runtime: Runtime,
    send: SendRequest<Bytes>,
    driver: thread::JoinHandle<Result<(), h2::Error>>,
}

/// A request on its way.
pub struct Stream {
    response: ResponseFuture,
    body: SendStream<Bytes>,
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    fields: HeaderMap,
    body: Vec<u8>,
    /// The reason with which the stream was reset.
    pub cut: Option<Reason>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        assert!(self.fields.get_all(name).iter().count() < 2, "{name}");
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Connection {
    pub fn connect(socket: &Path) -> Self {
        Self::of(socket, &Builder::new())
    }

    /// Opens a connection of a client with these windows.
    fn of(socket: &Path, builder: &Builder) -> Self {
        let socket = UnixStream::connect(socket).unwrap();
        socket.set_nonblocking(true).unwrap();
        let open = || tokio::net::UnixStream::from_std(socket).unwrap();
        Self::over(builder, open)
    }

    /// Opens a connection over TCP.
    fn tcp(at: &str) -> Self {
        let socket = std::net::TcpStream::connect(at).unwrap();
        socket.set_nonblocking(true).unwrap();
        let open = || tokio::net::TcpStream::from_std(socket).unwrap();
        Self::over(&Builder::new(), open)
    }

    /// Makes a connection over the socket that `open` opens on the event loop of the connection's thread.
    fn over<T>(builder: &Builder, open: impl FnOnce() -> T + Send + 'static) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let (give, given) = mpsc::channel();
        let builder = builder.clone();
        let driver = thread::spawn(move || {
            runtime().block_on(async {
                let socket = open();
                let (send, connection) = builder.handshake(socket).await?;
                give.send(send).unwrap();
                connection.await
            })
        });
        Self {
            runtime: runtime(),
            send: given.recv_timeout(LONG).unwrap(),
            driver,
        }
    }

    /// Sends a head; the body follows, unless it `ends` the stream.
    pub fn send(
        &mut self,
        request: http::request::Builder,
        ends: bool,
    ) -> Result<Stream, h2::Error> {
        let request: Request<()> = request.body(()).unwrap();
        let ready = std::future::poll_fn(|cx| self.send.poll_ready(cx));
        self.runtime.block_on(ready)?;
        let (response, body) = self.send.send_request(request, ends)?;
        Ok(Stream { response, body })
    }

    fn begin(&mut self, method: &str, target: &str, ends: bool) -> Stream {
        self.send(request(method, target), ends).unwrap()
    }

    fn get(&mut self, target: &str) -> Reply {
        let stream = self.begin("GET", target, true);
        self.reply(stream)
    }

    /// Sends a body as the server has room for it. Returns false if the stream is reset.
    fn write(&self, stream: &mut Stream, body: &[u8], ends: bool) -> bool {
        let mut left = Bytes::copy_from_slice(body);
        while !left.is_empty() {
            stream.body.reserve_capacity(left.len());
            let room = std::future::poll_fn(|cx| stream.body.poll_capacity(cx));
            let Some(Ok(room)) = self.runtime.block_on(room) else {
                return false;
            };
            let piece = left.split_to(room.min(left.len()));
            if stream.body.send_data(piece, false).is_err() {
                return false;
            }
        }
        !ends || stream.body.send_data(left, true).is_ok()
    }

    fn post(&mut self, target: &str, body: &[u8]) -> Reply {
        let mut stream = self.begin("POST", target, false);
        self.write(&mut stream, body, true);
        self.reply(stream)
    }

    /// Waits for the head of the response; returns the head, and the body that is still to come.
    fn head(&self, stream: Stream) -> (Reply, Option<RecvStream>) {
        let mut reply = Reply {
            status: 0,
            fields: HeaderMap::new(),
            body: Vec::new(),
            cut: None,
        };
        match self.runtime.block_on(stream.response) {
            Ok(response) => {
                let (head, body) = response.into_parts();
                (reply.status, reply.fields) = (head.status.as_u16(), head.headers);
                (reply, Some(body))
            }
            Err(e) => {
                reply.cut = e.reason().or(Some(Reason::CONNECT_ERROR));
                (reply, None)
            }
        }
    }

    pub fn reply(&self, stream: Stream) -> Reply {
        let (mut reply, mut body) = self.head(stream);
        while let Some(body) = &mut body
            && self.more(&mut reply, body)
        {}
        reply
    }

    /// Reads one piece of a body. Returns false at its end.
    fn more(&self, reply: &mut Reply, body: &mut RecvStream) -> bool {
        match self.runtime.block_on(body.data()) {
            Some(Ok(data)) => {
                body.flow_control().release_capacity(data.len()).unwrap();
                reply.body.extend_from_slice(&data);
                true
            }
            Some(Err(e)) => {
                reply.cut = e.reason().or(Some(Reason::CONNECT_ERROR));
                false
            }
            None => false,
        }
    }

    /// Closes the connection and returns how it ended.
    fn end(self) -> Result<(), h2::Error> {
        drop(self.send);
        self.driver.join().unwrap()
    }
}

pub fn request(method: &str, target: &str) -> http::request::Builder {
    let uri = format!("http://localhost{target}");
    Request::builder().method(method).uri(uri)
}
