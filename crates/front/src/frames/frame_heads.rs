//! Heads of frames (RFC 9113, 4.1), as they are received or sent.

/// Bytes of a frame's head.
pub(super) const HEAD: usize = 9;

pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const CONTINUATION: u8 = 9;

/// Finds the heads of frames in a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct FrameHeads {
    /// Received bytes of the next frame's head.
    head: [u8; HEAD],
    known: usize,
    /// Bytes of the last frame's payload that are still to come.
    payload: usize,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHead {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Bytes of its payload.
    pub(super) payload: usize,
}

impl FrameHeads {
    /// Finds the frames that follow this many bytes.
    pub(super) fn skipping_bytes(bytes: usize) -> Self {
        Self {
            payload: bytes,
            ..Self::default()
        }
    }

    /// Takes bytes, up to the end of the next head. Returns how many were taken, and that head.
    pub(super) fn scan_head(&mut self, bytes: &[u8]) -> (usize, Option<FrameHead>) {
        let payload = self.payload.min(bytes.len());
        self.payload -= payload;
        let head = (HEAD - self.known).min(bytes.len() - payload);
        let taken = payload + head;
        self.head[self.known..self.known + head].copy_from_slice(&bytes[payload..taken]);
        self.known += head;
        if self.known < HEAD {
            return (taken, None);
        }
        let [high, middle, low, kind, flags, a, b, c, d] = self.head;
        self.known = 0;
        self.payload = u32::from_be_bytes([0, high, middle, low]) as usize;
        let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
        let head = FrameHead {
            kind,
            flags,
            stream,
            payload: self.payload,
        };
        (taken, Some(head))
    }

    /// Takes up to `most` bytes of the last frame's payload. Returns how many.
    pub(super) fn take_payload(&mut self, most: usize) -> usize {
        let taken = self.payload.min(most);
        self.payload -= taken;
        taken
    }

    /// Returns whether the whole payload of the last frame was taken.
    pub(super) fn is_frame_whole(&self) -> bool {
        self.payload == 0
    }
}

impl FrameHead {
    /// Appends the head of a frame with this many bytes of payload to `to`.
    pub(super) fn write(self, payload: usize, to: &mut Vec<u8>) {
        // A payload has fewer than 2^24 bytes.
        let [.., high, middle, low] = payload.to_be_bytes();
        to.extend_from_slice(&[high, middle, low, self.kind, self.flags]);
        to.extend_from_slice(&self.stream.to_be_bytes());
    }

    /// Appends a frame with this payload to `to`.
    pub(super) fn write_frame(self, payload: &[&[u8]], to: &mut Vec<u8>) {
        self.write(payload.iter().map(|part| part.len()).sum(), to);
        for part in payload {
            to.extend_from_slice(part);
        }
    }
}
