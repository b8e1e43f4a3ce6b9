//! Requests that `h2` refuses before galgo sees them: `h2` resets their streams, or answers 431, and reports nothing. This
//! module gives each of them the answer of HTTP/1 (400), and its line in the access log.
//!
//! A response without fields is one byte of HPACK, which changes no state of the encoder. It is put before the reset.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use galgo_service::fault::Fault;
use h2::Reason;

use super::{
    frame_heads::{FrameHead, FrameHeads, HEAD, HEADERS, RST_STREAM},
    limits::MAX_STREAMS,
};

const MALFORMED: Fault = Fault::Client(
    400,
    "a head that HTTP/2 does not allow, or a :path with a byte that must be percent-encoded: < > ` in the path, < > \" in the query",
);
const FRAMES: Fault = Fault::Client(
    400,
    "a field or a frame that HTTP/2 does not allow: the connection is closed",
);
const FLOOD: Fault = Fault::Client(
    400,
    "a head far larger than max_head, or too many resets or small frames: the connection is closed",
);
const TOO_LARGE: Fault = Fault::Client(431, "the head is far larger than max_head");

/// Streams that are remembered until their requests are accepted: more than ever wait at once, unless `h2` forgets some.
const MOST: usize = 2 * MAX_STREAMS as usize;
/// END_STREAM and END_HEADERS (RFC 9113, 6.2), and the entry of HPACK's static table that is `:status: 400` (RFC 7541, A).
const ENDS: u8 = 0x1 | 0x4;
const STATUS_400: u8 = 0x80 | 12;

/// Streams of one connection whose requests were not accepted.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    newest: Cell<u32>,
    opened: RefCell<Vec<OpenedStream>>,
    /// The reasons why requests were refused, until they are logged.
    unlogged: RefCell<Vec<Fault>>,
}

#[derive(Debug)]
struct OpenedStream {
    id: u32,
    refused: bool,
}

impl Refusals {
    /// Notes that a head has come for this stream.
    pub(super) fn record_stream(&self, id: u32) {
        if id <= self.newest.replace(id.max(self.newest.get())) {
            return;
        }
        let mut opened = self.opened.borrow_mut();
        if opened.len() == MOST {
            opened.remove(0);
        }
        opened.push(OpenedStream { id, refused: false });
    }

    /// Returns whether to serve the request of this stream, which comes from `h2`. Returns false if it was refused since it
    /// came.
    pub(super) fn accept(&self, id: u32) -> bool {
        let mut opened = self.opened.borrow_mut();
        let refused = opened.iter().any(|one| one.id == id && one.refused);
        opened.retain(|one| one.id != id && !(one.refused && one.id < id));
        !refused
    }

    /// Returns why requests were refused since the last call.
    pub(super) fn take_faults(&self) -> Vec<Fault> {
        self.unlogged.take()
    }

    /// Notes that `h2` writes a frame with this head. Returns true if an answer must go before the frame.
    fn record_frame(&self, head: FrameHead, reason: Reason) -> bool {
        let mut opened = self.opened.borrow_mut();
        let Some(at) = opened.iter().position(|one| one.id == head.stream) else {
            return false;
        };
        let one = &mut opened[at];
        let why = match (head.kind, reason) {
            // Nothing else answers a request that was not accepted.
            (HEADERS, _) => TOO_LARGE,
            (_, Reason::PROTOCOL_ERROR) => MALFORMED,
            _ => {
                opened.remove(at);
                return false;
            }
        };
        if one.refused {
            return false;
        }
        one.refused = true;
        self.unlogged.borrow_mut().push(why);
        head.kind == RST_STREAM
    }
}

/// Returns why `h2` ends a connection, if the client is to blame.
pub(super) fn why_ended(e: &h2::Error) -> Option<Fault> {
    if !(e.is_go_away() && e.is_library()) {
        return None;
    }
    Some(match e.reason() {
        // In `h2` this code has no other cause.
        Some(Reason::COMPRESSION_ERROR) => TOO_LARGE,
        Some(Reason::ENHANCE_YOUR_CALM) => FLOOD,
        _ => FRAMES,
    })
}

/// Passes on the bytes that `h2` writes, and puts answers before the resets of refused requests.
#[derive(Debug)]
pub(super) struct RefusingWriter {
    heads: FrameHeads,
    refusals: Rc<Refusals>,
}

impl RefusingWriter {
    /// Creates the writer of a new connection.
    pub(super) fn new(refusals: Rc<Refusals>) -> Self {
        Self {
            heads: FrameHeads::default(),
            refusals,
        }
    }

    /// Appends `bytes` to `out`. `h2` writes the 13 bytes of a reset in one call.
    pub(super) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let (mut at, mut written) = (0, 0);
        while at < bytes.len() {
            let (taken, head) = self.heads.scan_head(&bytes[at..]);
            at += taken;
            let Some(head) = head.filter(|head| matches!(head.kind, HEADERS | RST_STREAM)) else {
                continue;
            };
            let code = bytes.get(at..at + 4).unwrap_or_default();
            let reason = code.try_into().map_or(0, u32::from_be_bytes);
            if self.refusals.record_frame(head, reason.into())
                && let Some(before) = at.checked_sub(HEAD)
            {
                out.extend_from_slice(&bytes[written..before]);
                out.extend_from_slice(&[0, 0, 1, HEADERS, ENDS]);
                out.extend_from_slice(&head.stream.to_be_bytes());
                out.push(STATUS_400);
                written = before;
            }
        }
        out.extend_from_slice(&bytes[written..]);
    }
}
