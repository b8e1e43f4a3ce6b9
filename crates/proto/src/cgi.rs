//! The response head of a CGI program (RFC 3875, 6).

use crate::{Fields, Parsed};

/// How large a response head may be: 502 beyond.
#[derive(Debug, Clone, Copy)]
pub struct ReplyLimits {
    /// Bytes of the whole head.
    pub bytes: usize,
    /// Header fields.
    pub fields: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 10,
            fields: 256,
        }
    }
}

/// What kind of response a program gave (RFC 3875, 6.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// 6.2.1: a document.
    Document,
    /// 6.2.2: the server answers this path itself, as if it had been asked for.
    LocalRedirect(String),
    /// 6.2.3 and 6.2.4: `Location` with a scheme, or with a document or status; passed on.
    Redirect,
}

/// A response head that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// What to do with it.
    pub kind: Kind,
    /// The status: of the `Status` field, 302 for a redirect without one, else 200.
    pub status: u16,
    /// The reason phrase of the `Status` field, where it holds one.
    pub reason: Option<String>,
    /// The fields to pass on: without `Status`, `Content-Length`, hop-by-hop fields and `X-CGI-*`.
    pub fields: Fields,
    /// The program's own Content-Length.
    pub content_length: Option<u64>,
}

/// Why a response head is a 502. `Display` says it in words a program's author can act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyError {
    // filled in by the implementation
    _why: (),
}

/// Reads a response head from a growing buffer without parsing anything twice.
#[derive(Debug, Clone, Default)]
pub struct ReplyScan {
    // filled in by the implementation
    _seen: (),
}

impl ReplyScan {
    /// Looks at what is new in `buf`. `Complete(reply, used)`: the body begins at `buf[used..]`.
    pub fn step(
        &mut self,
        _buf: &[u8],
        _limits: &ReplyLimits,
    ) -> Result<Parsed<Reply>, ReplyError> {
        todo!()
    }

    /// The program closed its output before the head was whole: says in words what it printed and did not.
    pub fn ended(&self, _buf: &[u8]) -> ReplyError {
        todo!()
    }
}
