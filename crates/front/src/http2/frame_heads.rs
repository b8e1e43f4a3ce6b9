//! Heads of frames (RFC 9113, 4.1), as they are received or sent.

/// Bytes of a frame's head.
pub(super) const HEAD: usize = 9;

pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;

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
        let [high, middle, low, kind, _, a, b, c, d] = self.head;
        self.known = 0;
        self.payload = u32::from_be_bytes([0, high, middle, low]) as usize;
        let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
        let head = FrameHead {
            kind,
            stream,
            payload: self.payload,
        };
        (taken, Some(head))
    }
}
