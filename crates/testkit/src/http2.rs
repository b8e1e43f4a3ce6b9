//! A translator that lets a client of HTTP/1.1 talk to a server in HTTP/2. Each connection has a translator of its own, as a
//! proxy would.
//!
//! The translator replaces parts of HTTP/2 by their equivalents: a stream that is reset becomes a connection that ends too
//! soon, a body without a length becomes chunks. If a request has no meaning in HTTP/2, the translator does not send it but
//! answers with [`UNTRANSLATABLE`]. Such a test only makes sense over HTTP/1.1.

use std::{
    future::poll_fn,
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    pin::pin,
    thread,
};

use bytes::{Buf, Bytes, BytesMut};
use h2::{
    Reason, RecvStream, SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, Response, Version, header};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::oneshot,
};

/// Status of the answer to a request that has no meaning in HTTP/2.
pub(crate) const UNTRANSLATABLE: u16 = 599;

/// Number of bytes of a body to read at once.
const PIECE: usize = 16 << 10;

/// A connection to a translator.
#[derive(Debug)]
pub(crate) struct Translated {
    /// The client's end.
    pub(crate) outer: TcpStream,
    /// Dropped with the client; the translator then ends, too.
    _leaves: oneshot::Sender<()>,
}

impl Translated {
    /// Puts a translator in front of a connection to a server.
    pub(crate) fn before(server: &TcpStream) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let outer = TcpStream::connect(listener.local_addr()?)?;
        let (inner, _) = listener.accept()?;
        let server = server.try_clone()?;
        for one in [&outer, &inner, &server] {
            one.set_nodelay(true)?;
        }
        let (_leaves, left) = oneshot::channel();
        thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build()?.block_on(async {
                tokio::select! {
                    done = translate(inner, server) => done.map_err(io::Error::other),
                    _ = left => Ok(()),
                }
            })
        });
        Ok(Self { outer, _leaves })
    }
}

/// The reason why a connection ends.
type Over = Box<dyn std::error::Error + Send + Sync>;

/// Data from a client.
struct Incoming<'c> {
    read: &'c mut OwnedReadHalf,
    /// Bytes that were read and are not used yet.
    buf: &'c mut BytesMut,
}

/// A request head.
struct Asked {
    request: Request<()>,
    body: Length,
    /// Whether the request asks for the end of the connection.
    closes: bool,
}

/// The way in which the end of a body is known.
#[derive(Debug, Clone, Copy)]
enum Length {
    Known(u64),
    Chunked,
}

async fn translate(inner: TcpStream, server: TcpStream) -> Result<(), Over> {
    inner.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let (mut read, mut write) = tokio::net::TcpStream::from_std(inner)?.into_split();
    let mut outer = Incoming {
        read: &mut read,
        buf: &mut BytesMut::new(),
    };
    let server = tokio::net::TcpStream::from_std(server)?;
    let (mut send, connection) = client::handshake(server).await?;
    tokio::select! {
        _ = connection => {}
        done = requests(&mut outer, &mut write, &mut send) => done?,
    }
    write.shutdown().await?;
    Ok(())
}

/// Translates the requests, one after the other.
async fn requests(
    outer: &mut Incoming<'_>,
    write: &mut OwnedWriteHalf,
    send: &mut SendRequest<Bytes>,
) -> Result<(), Over> {
    while let Some(head) = outer.head().await? {
        let Some(asked) = Asked::of(&head) else {
            let said = format!("HTTP/1.1 {UNTRANSLATABLE} Not HTTP/2\r\nContent-Length: 0\r\n\r\n");
            write.write_all(said.as_bytes()).await?;
            return Ok(());
        };
        let method = asked.request.method().clone();
        poll_fn(|cx| send.poll_ready(cx)).await?;
        let ends = matches!(asked.body, Length::Known(0));
        let (response, body) = send.send_request(asked.request, ends)?;
        let gives = async {
            let given = ends || give(outer, body, asked.body).await?;
            Ok::<_, Over>(given)
        };
        let answers = answer(response, write, &method, asked.closes);
        let (mut gives, mut answers) = (pin!(gives), pin!(answers));
        let (given, whole) = tokio::select! {
            given = &mut gives => (given?, answers.await?),
            whole = &mut answers => if whole? { (gives.await?, true) } else { (false, false) },
        };
        if !given || !whole || asked.closes {
            return Ok(());
        }
    }
    Ok(())
}

impl Asked {
    /// Translates the head of a request into HTTP/2 (RFC 9113, 8.2.2 and 8.3.1).
    fn of(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let mut lines = head.trim_end_matches("\r\n").split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, "HTTP/1.1", None) =
            (words.next()?, words.next()?, words.next()?, words.next())
        else {
            return None;
        };
        let mut fields = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let name = header::HeaderName::from_bytes(name.as_bytes()).ok()?;
            let value = value.trim_matches([' ', '\t']);
            fields.append(
                name,
                header::HeaderValue::from_bytes(value.as_bytes()).ok()?,
            );
        }
        let closes = fields.get(header::CONNECTION).is_some_and(|v| v == "close");
        let body = match fields.remove(header::TRANSFER_ENCODING) {
            Some(coding) => (coding == "chunked").then_some(Length::Chunked)?,
            None => match fields.get(header::CONTENT_LENGTH) {
                Some(length) => Length::Known(length.to_str().ok()?.parse().ok()?),
                None => Length::Known(0),
            },
        };
        for name in [header::CONNECTION, header::UPGRADE] {
            fields.remove(name);
        }
        let host = fields.remove(header::HOST)?;
        let target = if target.starts_with('/') {
            format!("http://{}{target}", host.to_str().ok()?)
        } else {
            target.to_owned()
        };
        let request = Request::builder().method(method).uri(target);
        let mut request = request.version(Version::HTTP_2).body(()).ok()?;
        *request.headers_mut() = fields;
        Some(Self {
            request,
            body,
            closes,
        })
    }
}

/// Passes the body of a request on, at the pace at which the server has room for it. If the server no longer wants the body,
/// the rest is read and dropped. False: the client has sent less than it had to send.
async fn give(
    outer: &mut Incoming<'_>,
    mut body: SendStream<Bytes>,
    length: Length,
) -> Result<bool, Over> {
    let (mut left, mut wanted) = (0, true);
    if let Length::Known(n) = length {
        left = n;
    }
    loop {
        if left == 0 && matches!(length, Length::Chunked) {
            left = match outer.chunk_size().await? {
                Some(0) => break,
                Some(size) => size,
                None => return Ok(cancel(body)),
            };
        }
        if outer.buf.is_empty() && !outer.fill().await? {
            return Ok(cancel(body));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let piece = outer.buf.split_to(outer.buf.len().min(PIECE).min(most));
        left -= piece.len() as u64;
        wanted = wanted && pass(&mut body, piece.freeze()).await;
        match length {
            Length::Known(_) if left == 0 => break,
            Length::Chunked if left == 0 => drop(outer.line().await?),
            Length::Known(_) | Length::Chunked => {}
        }
    }
    let _ = body.send_data(Bytes::new(), true);
    Ok(true)
}

/// Cuts the body by a reset of the stream.
fn cancel(mut body: SendStream<Bytes>) -> bool {
    body.send_reset(Reason::CANCEL);
    false
}

/// Sends a piece. False: the stream has been reset.
async fn pass(body: &mut SendStream<Bytes>, mut piece: Bytes) -> bool {
    while !piece.is_empty() {
        body.reserve_capacity(piece.len());
        let Some(Ok(room)) = poll_fn(|cx| body.poll_capacity(cx)).await else {
            return false;
        };
        let next = piece.split_to(room.min(piece.len()));
        if !next.is_empty() && body.send_data(next, false).is_err() {
            return false;
        }
    }
    true
}

impl Incoming<'_> {
    /// Reads more. False: the client sends no more.
    async fn fill(&mut self) -> Result<bool, Over> {
        self.buf.reserve(PIECE);
        Ok(self.read.read_buf(self.buf).await? > 0)
    }

    /// Reads the size of the next chunk. `None`: the client sends no more. Trailers are dropped.
    async fn chunk_size(&mut self) -> Result<Option<u64>, Over> {
        let Some(size) = self.line().await? else {
            return Ok(None);
        };
        let digits = std::str::from_utf8(&size)?.trim_end();
        let size = u64::from_str_radix(digits.split(';').next().unwrap_or_default(), 16)?;
        while size == 0 && self.line().await?.is_some_and(|l| l.len() > 2) {}
        Ok(Some(size))
    }

    async fn line(&mut self) -> Result<Option<Bytes>, Over> {
        loop {
            if let Some(at) = self.buf.iter().position(|&b| b == b'\n') {
                return Ok(Some(self.buf.split_to(at + 1).freeze()));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }

    /// Reads up to the end of a head; `None`: the client sends no more.
    async fn head(&mut self) -> Result<Option<Bytes>, Over> {
        loop {
            if let Some(at) = self.buf.windows(4).position(|w| w == b"\r\n\r\n") {
                return Ok(Some(self.buf.split_to(at + 4).freeze()));
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }
}

/// Passes a response on to the client. False: the response was cut.
async fn answer(
    mut response: ResponseFuture,
    write: &mut OwnedWriteHalf,
    method: &http::Method,
    closes: bool,
) -> Result<bool, Over> {
    while let Some(interim) = poll_fn(|cx| response.poll_informational(cx)).await {
        let interim = interim?;
        write.write_all(&head(&interim, "\r\n")).await?;
    }
    let Ok(response) = response.await else {
        return Ok(false);
    };
    let none = *method == http::Method::HEAD || matches!(response.status().as_u16(), 204 | 304);
    let length = response.headers().contains_key(header::CONTENT_LENGTH);
    let chunked = !none && !length;
    let mut end = String::new();
    if chunked {
        end.push_str("transfer-encoding: chunked\r\n");
    }
    if closes {
        end.push_str("connection: close\r\n");
    }
    end.push_str("\r\n");
    write.write_all(&head(&response, &end)).await?;
    let mut body = response.into_body();
    while let Some(piece) = body.data().await {
        let Ok(mut piece) = piece else {
            return Ok(false);
        };
        take(&mut body, write, &mut piece, chunked).await?;
    }
    if chunked {
        write.write_all(b"0\r\n\r\n").await?;
    }
    Ok(true)
}

/// Passes a piece on. Only then the server may send as much again.
async fn take(
    body: &mut RecvStream,
    write: &mut OwnedWriteHalf,
    piece: &mut Bytes,
    chunked: bool,
) -> Result<(), Over> {
    let size = piece.remaining();
    if chunked && size > 0 {
        write.write_all(format!("{size:x}\r\n").as_bytes()).await?;
    }
    write.write_all_buf(piece).await?;
    if chunked && size > 0 {
        write.write_all(b"\r\n").await?;
    }
    body.flow_control().release_capacity(size)?;
    Ok(())
}

fn head<B>(response: &Response<B>, end: &str) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    head.extend(end.as_bytes());
    head
}
