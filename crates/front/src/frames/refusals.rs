//! Heads of requests until `h2` hands over their streams, and the requests that `h2` refuses before: `h2` resets their streams and
//! reports nothing. This module gives each of them the answer of HTTP/1 (400), and its line in the access log.
//!
//! A response without fields is one byte of HPACK, which changes no state of the encoder. It is put before the reset, unless the
//! client has changed the size of the table: the next response must then begin with that size (RFC 7541, 4.2).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use galgo_proto::h2::ReceivedFields;
use galgo_service::fault::Fault;
use h2::Reason;

use super::frame_heads::{FrameHead, FrameHeads, HEAD, HEADERS, RST_STREAM};

const MALFORMED: Fault = Fault::Client(400, "a head or a body that HTTP/2 does not allow");
pub(crate) const FRAMES: Fault = Fault::Client(
    400,
    "a head or a frame that HTTP/2 does not allow: the connection is closed",
);
pub(crate) const FLOOD: Fault = Fault::Client(
    400,
    "a head far larger than max_head, or too many resets or small frames: the connection is closed",
);

/// Streams that are remembered until their requests are accepted: twice as many as may wait at once, in case `h2` forgets some.
const MOST: usize = 200;
/// END_STREAM and END_HEADERS (RFC 9113, 6.2), and the entry of HPACK's static table that is `:status: 400` (RFC 7541, A).
const ENDS: u8 = 0x1 | 0x4;
const STATUS_400: u8 = 0x80 | 12;

/// Streams of one connection whose requests were not accepted.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    newest: Cell<u32>,
    opened: RefCell<Vec<OpenedStream>>,
    /// The reasons why requests were refused, until they are logged.
    unlogged: RefCell<Vec<Fault>>,
    /// The code with which the connection must end now.
    end: Cell<Option<Reason>>,
    small_table: Cell<bool>,
}

#[derive(Debug)]
struct OpenedStream {
    id: u32,
    received: ReceivedFields,
    refused: bool,
}

impl Refusals {
    /// Returns whether no request has come over this stream.
    pub(crate) fn is_new(&self, id: u32) -> bool {
        id > self.newest.get()
    }

    /// Keeps the head of a request that opens a stream.
    pub(crate) fn record_request(&self, id: u32, received: ReceivedFields) {
        self.newest.set(id);
        let mut opened = self.opened.borrow_mut();
        if opened.len() == MOST {
            opened.remove(0);
        }
        opened.push(OpenedStream {
            id,
            received,
            refused: false,
        });
    }

    /// Returns the head of the request of this stream, which comes from `h2`. `None`: the request was refused since it came.
    pub(crate) fn accept(&self, id: u32) -> Option<ReceivedFields> {
        let mut opened = self.opened.borrow_mut();
        // `h2` hands over streams in their order.
        let known = opened.iter().position(|one| one.id > id);
        let known = known.unwrap_or(opened.len());
        let last = opened.drain(..known).next_back();
        last.filter(|one| one.id == id && !one.refused)
            .map(|one| one.received)
    }

    /// Ends the connection, because of the client.
    pub(crate) fn end_connection(&self, reason: Reason, fault: Fault) {
        self.unlogged.borrow_mut().push(fault);
        self.end.set(Some(reason));
    }

    /// Returns the code with which the connection must end now.
    pub(crate) fn take_end(&self) -> Option<Reason> {
        self.end.take()
    }

    /// Notes that the client has asked for a smaller table than usual.
    pub(crate) fn note_small_table(&self) {
        self.small_table.set(true);
    }

    /// Returns why requests were refused since the last call.
    pub(crate) fn take_faults(&self) -> Vec<Fault> {
        self.unlogged.take()
    }

    /// Notes that `h2` writes a frame with this head. Returns true if an answer must go before the frame.
    fn record_frame(&self, head: FrameHead, reason: Reason) -> bool {
        let mut opened = self.opened.borrow_mut();
        let Some(at) = opened.iter().position(|one| one.id == head.stream) else {
            return false;
        };
        let one = &mut opened[at];
        if reason != Reason::PROTOCOL_ERROR {
            opened.remove(at);
            return false;
        }
        if one.refused {
            return false;
        }
        (one.refused, one.received) = (true, ReceivedFields::default());
        self.unlogged.borrow_mut().push(MALFORMED);
        !self.small_table.get()
    }
}

/// Returns why `h2` ends a connection, if the client is to blame.
pub(crate) fn why_ended(e: &h2::Error) -> Option<Fault> {
    if !(e.is_go_away() && e.is_library()) {
        return None;
    }
    Some(match e.reason() {
        Some(Reason::ENHANCE_YOUR_CALM) => FLOOD,
        _ => FRAMES,
    })
}

/// Passes on the bytes that `h2` writes, and puts answers before the resets of refused requests.
#[derive(Debug)]
pub(crate) struct RefusingWriter {
    heads: FrameHeads,
    refusals: Rc<Refusals>,
}

impl RefusingWriter {
    /// Creates the writer of a new connection.
    pub(crate) fn new(refusals: Rc<Refusals>) -> Self {
        Self {
            heads: FrameHeads::default(),
            refusals,
        }
    }

    /// Appends `bytes` to `out`. `h2` writes the 13 bytes of a reset in one call.
    pub(crate) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let (mut at, mut written) = (0, 0);
        while at < bytes.len() {
            let (taken, head) = self.heads.scan_head(&bytes[at..]);
            at += taken;
            let Some(head) = head.filter(|head| head.kind == RST_STREAM) else {
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
