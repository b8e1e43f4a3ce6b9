//! A client that sends the bytes it is given and examines the response closely.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
};

use crate::{
    stream::{self, Spoken, Stream},
    wait::{LONG, eventually},
};

/// A connection.
#[derive(Debug)]
pub struct Client<S = Stream> {
    /// The socket.
    pub stream: S,
    /// Bytes that were read from the stream and not yet asked for.
    pub buf: Vec<u8>,
    /// Whether a read found the end of the server's data.
    pub ended: bool,
}

/// The way in which a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The response ended as its framing promised.
    Whole,
    /// The connection ended too early: the response is visibly cut.
    Cut,
    /// The connection ended, and the response has no other framing.
    Close,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Statuses of the interim responses before this response.
    pub interim: Vec<u16>,
    /// Status of the response; 0 if the connection ended before a whole head.
    pub status: u16,
    /// Head of the response with the empty line, untouched.
    pub head: String,
    /// Body of the response, without chunk framing.
    pub body: Vec<u8>,
    /// The way in which the response ended.
    pub end: End,
}

impl Reply {
    /// Returns the values of all fields of this name, in order.
    pub fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1);
        let fields = lines.filter_map(|l| l.split_once(": "));
        let named = fields.filter(|(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value).collect()
    }

    /// Returns the value of the only field of this name. Panics if there are several.
    pub fn field(&self, name: &str) -> Option<&str> {
        let all = self.fields(name);
        assert!(all.len() <= 1, "several {name}: {all:?}");
        all.first().copied()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the server will close the connection.
    pub fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }
}

/// Sends a GET with further header lines over a connection. Returns the whole response as it arrives.
pub fn page(mut to: impl Read + Write, target: &str, fields: &str) -> String {
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    to.write_all(head.as_bytes()).unwrap();
    let mut all = Vec::new();
    to.read_to_end(&mut all).unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

/// Returns a header of the PROXY protocol, version 2: TCP over IPv4, from port 12345 of `from` to port
/// 80 of `to`.
pub fn proxy_header(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let start = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c";
    [&start[..], &from, &to, &[0x30, 0x39, 0, 80]].concat()
}

/// Connects with room for `bytes` bytes that the client has not read.
pub fn tcp_with_buffer(bytes: usize, to: SocketAddr) -> TcpStream {
    connect_by(to, |socket| {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, bytes).unwrap();
    })
}

fn connect_by(to: SocketAddr, prepare: impl FnOnce(&OwnedFd)) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket = socket_with(family, SocketType::STREAM, flags, None).unwrap();
    prepare(&socket);
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

impl Client {
    /// Connects.
    pub fn connect(to: SocketAddr) -> Self {
        Self::over_tcp(TcpStream::connect(to).unwrap())
    }

    /// Connects, and speaks TLS to a server that shows the certificate of this process.
    pub fn connect_securely(to: SocketAddr) -> Self {
        stream::is_spoken_at(to, Some(Spoken::Tls));
        Self::connect(to)
    }

    /// Connects from this address.
    pub fn connect_from(from: [u8; 4], to: SocketAddr) -> Self {
        Self::over_tcp(connect_by(to, |socket| {
            rustix::net::bind(socket, &SocketAddr::from((from, 0))).unwrap();
        }))
    }

    /// Connects with room for `bytes` bytes that the client has not read.
    pub fn connect_with_buffer(bytes: usize, to: SocketAddr) -> Self {
        Self::over_tcp(tcp_with_buffer(bytes, to))
    }

    fn over_tcp(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Self::over(stream.into())
    }

    /// Ends the sending side. Reading goes on.
    pub fn half_close(&self) {
        self.stream.half_close();
    }

    /// Waits until the server has read everything that was sent: proc_net_tcp(5) shows the bytes that it
    /// has not read.
    pub fn wait_until_read(&self) {
        let port = |address: io::Result<SocketAddr>| format!(":{:04X}", address.unwrap().port());
        let ours = port(self.stream.local_addr());
        let theirs = port(self.stream.peer_addr());
        eventually("the server to read the request", || {
            let table = fs::read_to_string("/proc/net/tcp").unwrap();
            table.lines().find_map(|line| {
                let [_, local, remote, _, queues, ..] =
                    line.split_whitespace().collect::<Vec<_>>()[..]
                else {
                    return None;
                };
                let it = local.ends_with(&theirs) && remote.ends_with(&ours);
                (it && queues.ends_with(":00000000")).then_some(())
            })
        });
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        self.stream.reset_on_close();
    }

    /// Whether the server has closed the connection by now. Data that it sent before is kept.
    pub fn is_closed(&self) -> bool {
        match self.stream.peeked() {
            Some(Ok(n)) => n == 0,
            Some(Err(_)) => true,
            None => false,
        }
    }

    /// Whether data has arrived, or the end of the connection.
    pub fn has_news(&self) -> bool {
        self.stream.peeked().is_some()
    }
}

impl Client<UnixStream> {
    /// Connects to a socket file.
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Self::over(stream)
    }
}

impl<S: Read + Write> Client<S> {
    /// Speaks over an existing connection.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            buf: Vec::new(),
            ended: false,
        }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends bytes. Returns false if the server refuses to take them.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends a GET.
    pub fn get(&mut self, target: &str) {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    }

    /// Sends a POST with a body whose length is known.
    pub fn post(&mut self, target: &str, body: &[u8]) {
        self.begin_post(target, body.len());
        self.send(body);
    }

    /// Sends the head of a POST.
    pub fn begin_post(&mut self, target: &str, length: usize) {
        self.send(format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        ));
    }

    /// Reads one response to anything but HEAD.
    pub fn reply(&mut self) -> Reply {
        self.reply_to("GET")
    }

    /// Reads one response to a request with `method`.
    pub fn reply_to(&mut self, method: &str) -> Reply {
        let mut interim = Vec::new();
        loop {
            let mut reply = self.head();
            if (100..200).contains(&reply.status) {
                interim.push(reply.status);
                continue;
            }
            reply.interim = interim;
            if reply.status != 0 {
                (reply.body, reply.end) = self.body(method, &reply);
            }
            return reply;
        }
    }

    /// Reads the head of a response. The body is still to come.
    pub fn head(&mut self) -> Reply {
        let until = self.until(b"\r\n\r\n");
        let head = String::from_utf8_lossy(&until.clone().unwrap_or_default()).into_owned();
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|l| l.get(..3));
        assert_eq!(status.is_some(), until.is_some(), "no head: {head:?}");
        Reply {
            interim: Vec::new(),
            status: status.map_or(0, |s| s.parse().unwrap()),
            head,
            body: Vec::new(),
            end: End::Cut,
        }
    }

    fn body(&mut self, method: &str, head: &Reply) -> (Vec<u8>, End) {
        let length = head.field("content-length");
        if method == "HEAD" || matches!(head.status, 204 | 304) {
            return (Vec::new(), End::Whole);
        }
        if let Some(coding) = head.field("transfer-encoding") {
            assert_eq!((coding, length), ("chunked", None));
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk() {
                if chunk.is_empty() {
                    return (body, End::Whole);
                }
                body.extend(chunk);
            }
            return (body, End::Cut);
        }
        match length {
            Some(n) => {
                let n: usize = n.parse().unwrap();
                let body = self.take(n);
                let end = if body.len() == n {
                    End::Whole
                } else {
                    End::Cut
                };
                (body, end)
            }
            None => (self.rest(), End::Close),
        }
    }

    /// Reads a chunk; the last chunk is empty. `None`: the connection ended.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.until(b"\r\n")?;
        let digits = std::str::from_utf8(&line[..line.len() - 2]).unwrap();
        let size = usize::from_str_radix(digits, 16).expect("a chunk size");
        let data = self.take(size);
        let end = self.take(2);
        if data.len() < size || end.len() < 2 {
            return None;
        }
        assert_eq!(end, b"\r\n");
        Some(data)
    }

    /// Reads up to and including `mark`. `None`: the connection ended before it.
    pub fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buf.windows(mark.len()).position(|w| w == mark) {
                return Some(self.buf.drain(..at + mark.len()).collect());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Reads `n` bytes, or fewer if the connection ends.
    pub fn take(&mut self, n: usize) -> Vec<u8> {
        while self.buf.len() < n && self.fill() {}
        self.buf.drain(..n.min(self.buf.len())).collect()
    }

    /// Reads to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buf)
    }

    /// Whether the server has closed the connection without sending more.
    pub fn is_over(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Reads once. False: the connection has ended, or was reset.
    fn fill(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let mut piece = [0; 64 << 10];
        match self.stream.read(&mut piece) {
            Ok(0) => self.ended = true,
            Ok(n) => self.buf.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                panic!(
                    "nothing came within {LONG:?}; so far {} bytes",
                    self.buf.len()
                )
            }
            Err(_) => self.ended = true,
        }
        !self.ended
    }
}
