//! Takes heads out of the received frames, before `h2` gets the frames (RFC 9113, 6.2 and 6.10).
//!
//! galgo unpacks heads itself, so that a request has the same target and the same errors as over HTTP/1. `h2` gets a head of
//! constant pseudo-fields instead, and the length of the body, which it checks.

use std::rc::Rc;

use galgo_io::turn;
use galgo_proto::{h2::ReceivedFields, hpack::HpackDecoder};
use galgo_service::fault::Fault;
use h2::Reason;

use super::{
    frame_heads::{CONTINUATION, FrameHead, HEADERS, PUSH_PROMISE, SETTINGS},
    refusals::{FLOOD, FRAMES, Refusals},
};

/// Bytes of a frame's payload (RFC 9113, 4.2). `h2` refuses longer frames.
const MAX_FRAME: usize = 1 << 14;
/// Frames of a head that add nothing to it.
const MAX_FRAMES: usize = 5;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The bit beside the number of the stream that a stream depends on (RFC 7540, 6.2).
const EXCLUSIVE: u32 = 1 << 31;
/// Memory that stays for the next head.
const KEPT: usize = 1 << 10;

/// `:method: GET`, `:scheme: http` and `:path: /` (RFC 7541, A).
const REQUEST: [u8; 3] = [0x82, 0x86, 0x84];
/// The path twice: `h2` resets the stream.
const MALFORMED: [u8; 2] = [0x84, 0x84];
/// Content-Length as a literal that is not inserted into a table (RFC 7541, 6.2.2).
const CONTENT_LENGTH: [u8; 2] = [0x0f, 0x0d];

/// SETTINGS_HEADER_TABLE_SIZE, and its value for clients that do not set it (RFC 9113, 6.5.2).
const TABLE_SIZE: u16 = 1;
const USUAL_TABLE: u32 = 4096;

/// The heads of one connection.
#[derive(Debug)]
pub(crate) struct HeadFrames {
    decoder: HpackDecoder,
    pub(super) refusals: Rc<Refusals>,
    limits: HeadListLimits,
    /// The frame whose payload is being collected.
    frame: Option<FrameHead>,
    /// The first frame of a head whose last frame has not come, and whether its stream depends on itself.
    first: Option<(FrameHead, bool)>,
    /// Frames of that head.
    frames: usize,
    /// Payloads that have come of that head.
    block: Vec<u8>,
    /// Whether no more frames count, because of an error.
    pub(crate) ended: bool,
}

/// Limits on heads, before the settings of their site are known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadListLimits {
    /// Bytes of an unpacked head, as `max_head` counts them. A larger head is dropped.
    pub(crate) size: usize,
    /// Whether clients may ask for a WebSocket.
    pub(crate) upgrades: bool,
}

impl HeadListLimits {
    /// Returns the size of a head as HTTP/2 counts it: larger, because each field counts for 32 bytes more than its text.
    pub(crate) fn list_size(self) -> usize {
        self.size.saturating_mul(2)
    }
}

impl HeadFrames {
    /// Creates the heads of a new connection. `refusals` keeps each head until its request is accepted.
    pub(crate) fn new(refusals: Rc<Refusals>, limits: HeadListLimits) -> Self {
        Self {
            decoder: HpackDecoder::default(),
            refusals,
            limits,
            frame: None,
            first: None,
            frames: 0,
            block: Vec::new(),
            ended: false,
        }
    }

    /// Returns whether the payload of the current frame is collected here.
    pub(super) fn is_collecting(&self) -> bool {
        self.frame.is_some()
    }

    /// Begins a frame. If the frame belongs to no head, `h2` gets the frame's head at once.
    pub(super) fn begin_frame(&mut self, head: FrameHead, for_h2: &mut Vec<u8>) {
        let fits = match self.first {
            Some((first, _)) => head.kind == CONTINUATION && head.stream == first.stream,
            // Clients open the streams with odd numbers, and push nothing (RFC 9113, 5.1.1 and 8.4).
            None if head.kind == HEADERS => head.stream % 2 == 1,
            None => !matches!(head.kind, CONTINUATION | PUSH_PROMISE),
        };
        if !fits {
            return self.end_connection(Reason::PROTOCOL_ERROR, FRAMES);
        }
        let most = match head.kind {
            HEADERS | CONTINUATION => MAX_FRAME,
            SETTINGS => KEPT,
            _ => 0,
        };
        if most == 0 || head.payload > most {
            if head.kind == SETTINGS {
                // Any of so many settings may be that of the table.
                self.refusals.note_small_table();
            }
            return head.write(head.payload, for_h2);
        }
        if self.first.is_none() {
            self.block.clear();
            self.frames = 0;
        }
        self.frames += 1;
        let (bytes, frames) = (self.block.len(), self.frames);
        if bytes > self.limits.list_size() || frames > MAX_FRAMES + bytes / MAX_FRAME {
            return self.end_connection(Reason::ENHANCE_YOUR_CALM, FLOOD);
        }
        self.frame = Some(head);
    }

    /// Collects bytes of the frame's payload.
    pub(super) fn collect(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    /// Ends the frame that is being collected. If its head is complete, `h2` gets another head for it.
    pub(super) fn end_frame(&mut self, for_h2: &mut Vec<u8>) {
        let Some(frame) = self.frame.take() else {
            return;
        };
        if frame.kind == SETTINGS {
            self.note_table_size();
            return frame.write_frame(&[&self.block], for_h2);
        }
        if frame.kind == HEADERS {
            let Some(depends_on_itself) = self.strip_frame(frame) else {
                return self.end_connection(Reason::PROTOCOL_ERROR, FRAMES);
            };
            self.first = Some((frame, depends_on_itself));
        }
        if frame.flags & END_HEADERS != 0
            && let Some((first, depends_on_itself)) = self.first.take()
        {
            self.end_head(first, depends_on_itself, for_h2);
            if self.block.capacity() > KEPT {
                self.block = Vec::new();
            }
        }
    }

    /// Unpacks a complete head.
    fn end_head(&mut self, first: FrameHead, depends_on_itself: bool, for_h2: &mut Vec<u8>) {
        turn::spend_units(u32::try_from(self.block.len() / 64).unwrap_or(u32::MAX));
        let HeadListLimits { size, upgrades } = self.limits;
        let mut received = ReceivedFields::default();
        let take = |name: &[u8], value: &[u8]| received.add_field(name, value, size);
        if self.decoder.decode(&self.block, take).is_err() {
            return self.end_connection(Reason::COMPRESSION_ERROR, FRAMES);
        }
        let ends = first.flags & END_STREAM;
        let trailers = !self.refusals.is_new(first.stream);
        let malformed = depends_on_itself
            || if trailers {
                received.is_malformed_trailer()
            } else {
                received.is_malformed_request() || (received.protocol().is_some() && !upgrades)
            };
        let head = FrameHead {
            flags: END_HEADERS | ends,
            ..first
        };
        let has_body = !trailers && ends == 0;
        let length = has_body.then(|| received.content_length()).flatten();
        if malformed {
            head.write_frame(&[&MALFORMED], for_h2);
        } else if let Some(length) = length {
            let digits = length.to_string();
            let len = digits.len().try_into().unwrap_or_default();
            let declared = [CONTENT_LENGTH[0], CONTENT_LENGTH[1], len];
            head.write_frame(&[&REQUEST, &declared, digits.as_bytes()], for_h2);
        } else if trailers {
            head.write_frame(&[], for_h2);
        } else {
            head.write_frame(&[&REQUEST], for_h2);
        }
        if !trailers {
            let received = (!malformed).then_some(received);
            self.refusals.record_request(first.stream, received);
        }
    }

    /// Removes padding and priority from the payload of a HEADERS frame. Returns whether the stream depends on itself, which
    /// RFC 7540, 5.3.1, forbids. `None`: the frame is too short.
    fn strip_frame(&mut self, frame: FrameHead) -> Option<bool> {
        let (mut begin, mut depends_on) = (0, None);
        if frame.flags & PADDED != 0 {
            let padding = usize::from(*self.block.first()?);
            begin = 1;
            let len = self.block.len().checked_sub(begin + padding)?;
            self.block.truncate(begin + len);
        }
        if frame.flags & PRIORITY != 0 {
            let [a, b, c, d, _weight] = *self.block[begin..].first_chunk()?;
            depends_on = Some(u32::from_be_bytes([a, b, c, d]) & !EXCLUSIVE);
            begin += 5;
        }
        self.block.drain(..begin);
        Some(depends_on == Some(frame.stream))
    }

    /// Notes that the client wants a small table, from a SETTINGS frame.
    fn note_table_size(&self) {
        let (settings, _) = self.block.as_chunks::<6>();
        let is_small = |[a, b, c, d, e, f]: &[u8; 6]| {
            u16::from_be_bytes([*a, *b]) == TABLE_SIZE
                && u32::from_be_bytes([*c, *d, *e, *f]) < USUAL_TABLE
        };
        if settings.iter().any(is_small) {
            self.refusals.note_small_table();
        }
    }

    fn end_connection(&mut self, reason: Reason, fault: Fault) {
        self.ended = true;
        self.refusals.end_connection(reason, fault);
    }
}
