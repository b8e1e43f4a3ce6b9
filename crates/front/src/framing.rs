//! Marks the end of a response's body (RFC 9112, 6.3), and decides which bytes of a program's output belong to it.

use galgo_proto::h1::Version;
use galgo_service::{
    body::{Output, Response},
    request::Request,
};

/// Bytes of a body that are read although they are not sent (HEAD, 204, 304), so that the program does not block. A program
/// that prints more may never end, so galgo reads no further.
pub(crate) const MOST_DROPPED: usize = 16 << 20;

/// The status of a response after which the program has the connection (RFC 9110, 15.2.2). No other kind of response has this
/// status.
pub(crate) const SWITCHING: u16 = 101;

/// The mark of the end of a body (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// No body belongs to this response (HEAD, 204, 304).
    Bodiless,
    Length(u64),
    Chunked,
    UntilClose,
    /// The program wrote the whole response (NPH).
    Raw,
}

impl Framing {
    /// Returns how many of `len` bytes of output fit after the `sent` bytes of a body.
    pub(crate) fn fitting(self, len: usize, sent: u64, output: &mut Output) -> usize {
        match self {
            Self::Bodiless => 0,
            Self::Length(n) => {
                let left = usize::try_from(n - sent).unwrap_or(usize::MAX);
                output.excess |= len > left && !output.discard;
                len.min(left)
            }
            Self::Chunked | Self::UntilClose | Self::Raw => len,
        }
    }
}

pub(crate) fn program_framing(request: &Request<'_>, status: u16, output: &Output) -> Framing {
    let producer = &output.producer;
    if output.nph {
        Framing::Raw
    } else if status == SWITCHING {
        Framing::UntilClose
    } else if request.is_bodiless(status) {
        Framing::Bodiless
    } else if output.discard {
        Framing::Length(0)
    } else if let Some(n) = output.content_length {
        Framing::Length(n)
    } else if producer.has_output_ended() {
        Framing::Length(producer.pending_len() as u64)
    } else if request.head.version == Version::Http11 && request.client.speaks_http() {
        Framing::Chunked
    } else {
        Framing::UntilClose
    }
}

/// Passes on the length that a program gives for a body that is not sent, to HEAD or with 304 (RFC 9110, 8.6).
pub(crate) fn declare_length(response: &mut Response, framing: Framing, output: &Output) {
    if let (Framing::Bodiless, Some(n)) = (framing, output.content_length)
        && response.status != 204
    {
        response.fields.push("Content-Length", n.to_string());
    }
}
