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

/// Requests at once on a connection (SETTINGS_MAX_CONCURRENT_STREAMS): the least that RFC 9113, 6.5.2 recommends.
pub(crate) const MAX_STREAMS: u32 = 100;
/// Streams that are remembered until their requests are accepted: those that may wait at once, and a few that `h2` refuses.
const MOST: usize = MAX_STREAMS as usize + 20;
/// If waiting heads take more bytes than this, requests are refused. HPACK makes large heads of a few bytes.
const HELD: usize = 256 << 10;
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
    /// The head, unless the request is refused.
    received: Option<ReceivedFields>,
}

impl Refusals {
    /// Returns whether no request has come over this stream.
    pub(crate) fn is_new(&self, id: u32) -> bool {
        id > self.newest.get()
    }

    /// Keeps the head of a request that opens a stream, if there is room. `None`: `h2` will refuse the request.
    pub(crate) fn record_request(&self, id: u32, received: Option<ReceivedFields>) {
        self.newest.set(id);
        let received = received.filter(|_| self.held() <= HELD);
        let mut opened = self.opened.borrow_mut();
        if opened.len() == MOST {
            opened.remove(0);
        }
        opened.push(OpenedStream { id, received });
    }

    /// Returns the bytes of the waiting heads.
    fn held(&self) -> usize {
        let opened = self.opened.borrow();
        let heads = opened.iter().flat_map(|one| &one.received);
        heads.map(ReceivedFields::memory).sum()
    }

    /// Returns the head of the request of this stream, which comes from `h2`. `None`: the request was refused since it came.
    pub(crate) fn accept(&self, id: u32) -> Option<ReceivedFields> {
        let mut opened = self.opened.borrow_mut();
        let older = opened.partition_point(|one| one.id < id);
        // `h2` hands over streams in their order, so it resets the older ones.
        for one in &mut opened[..older] {
            one.received = None;
        }
        opened.get(older).filter(|one| one.id == id)?;
        opened.remove(older).received
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

    /// Notes that the client may have asked for a smaller table than usual.
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
        opened.remove(at);
        if reason != Reason::PROTOCOL_ERROR {
            return false;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A head of `fields` fields of 4,000 bytes, of which 64 KiB are allowed.
    fn head(fields: usize) -> Option<ReceivedFields> {
        let mut head = ReceivedFields::default();
        for _ in 0..fields {
            head.add_field(b"x", &[b'a'; 4000], 64 << 10);
        }
        Some(head)
    }

    #[test]
    fn waiting_heads_take_little_memory() {
        let refusals = Refusals::default();
        let ids = (1..).step_by(2).take(MAX_STREAMS as usize);
        // Too large a head takes no memory, and gets its answer.
        for (fields, waiting) in [(31, MAX_STREAMS as usize), (10, 5)] {
            for id in ids.clone() {
                refusals.record_request(id, head(fields));
            }
            assert!(refusals.held() <= HELD + (64 << 10));
            let kept = ids.clone().filter(|id| refusals.accept(*id).is_some());
            assert_eq!(kept.count(), waiting);
            assert_eq!(refusals.held(), 0);
        }
    }

    #[test]
    fn refused_requests_make_room_and_have_a_line() {
        let refusals = Refusals::default();
        let reset = |stream, reason| {
            let frame = FrameHead {
                kind: RST_STREAM,
                flags: 0,
                stream,
                payload: 4,
            };
            refusals.record_frame(frame, reason)
        };
        for id in [1, 3, 5] {
            refusals.record_request(id, head(1));
        }
        assert!(refusals.accept(3).is_some());
        // `h2` writes the reset of an older request later.
        assert!(reset(1, Reason::PROTOCOL_ERROR) && !reset(1, Reason::PROTOCOL_ERROR));
        for id in (7..).step_by(2).take(2 * MOST) {
            refusals.record_request(id, None);
            assert!(reset(id, Reason::PROTOCOL_ERROR));
        }
        assert_eq!(refusals.take_faults().len(), 1 + 2 * MOST);
        assert!(refusals.accept(5).is_some());
    }
}
