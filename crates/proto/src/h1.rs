//! HTTP/1 request heads and message bodies (RFC 9112), strict: what is ambiguous is refused.

use crate::{Fields, Parsed, target::Target, target::TargetError};

/// The methods galgo knows by name, and any other token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Other(String),
}

impl Method {
    /// The method as a token, as it came.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Other(m) => m,
        }
    }
}

/// HTTP/1.0 or HTTP/1.1; anything else is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Version {
    Http10,
    Http11,
}

/// How large a request head may be.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Bytes of the whole head: 431 beyond.
    pub bytes: usize,
    /// Header fields: 431 beyond.
    pub fields: usize,
    /// Bytes of the request target: 414 beyond.
    pub target: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 10,
            fields: 256,
            target: 16 << 10,
        }
    }
}

/// A request head that passed every check of RFC 9112.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The method, never TRACE or CONNECT.
    pub method: Method,
    /// The target.
    pub target: Target,
    /// The version.
    pub version: Version,
    /// The fields as they came.
    pub fields: Fields,
    /// The host the request is for, in lower case without its port; empty only in HTTP/1.0.
    pub host: String,
    /// The port of the Host field or the absolute-form target.
    pub port: Option<u16>,
    /// How the body is framed.
    pub body: BodyLen,
    /// Whether the client expects `100 Continue`.
    pub expects_continue: bool,
    /// Whether the connection may carry another request after this one.
    pub keep_alive: bool,
}

/// Why a head is refused: the status to answer with before the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadError {
    /// 400, 405, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// What was wrong, in words for the log.
    pub why: &'static str,
}

impl From<TargetError> for HeadError {
    fn from(_e: TargetError) -> Self {
        todo!()
    }
}

/// Finds the end of a head in a growing buffer without looking at any byte twice.
#[derive(Debug, Clone, Default)]
pub struct HeadScan {
    #[allow(dead_code)]
    seen: usize,
}

impl HeadScan {
    /// Looks at the bytes that are new in `buf`: `Some(n)` when `buf[..n]` is a whole head
    /// (the empty line included). An empty line before the request line is not counted as its end
    /// (RFC 9112, 2.2). Refuses a bare LF, a bare CR, and a head over the limit, at once.
    pub fn scan(&mut self, _buf: &[u8], _limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        todo!()
    }
}

impl Head {
    /// Parses a whole head, as found by [`HeadScan`].
    pub fn parse(_buf: &[u8], _limits: &HeadLimits) -> Result<Self, HeadError> {
        todo!()
    }
}

/// How a request body is framed, decided once (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLen {
    /// There is no body.
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// Decodes a chunked body (RFC 9112, 7.1). Trailers are bounded, checked for form and discarded.
#[derive(Debug, Clone, Default)]
pub struct Chunked {
    // INVARIANT: filled in by the implementation.
    _state: (),
}

/// A step of [`Chunked::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// The input begins with this many bytes of body data: take them, call again behind them.
    Data(usize),
    /// The body and its trailers have ended.
    End,
}

/// Why a chunked body is refused: 400 and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkError(pub &'static str);

impl Chunked {
    /// A decoder at the start of a body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads framing from the front of `input`. `Complete(Data(n), used)`: after `used` bytes of framing
    /// come `n` bytes of data, all of them in `input` (`n >= 1`); they count as consumed by this call,
    /// so the caller drops `used + n`. `Complete(End, used)`: the body is over. `Partial`: every byte of
    /// `input` was framing that has been consumed; read more.
    pub fn step(&mut self, _input: &[u8]) -> Result<Parsed<Chunk>, ChunkError> {
        todo!()
    }
}
