//! The frames of HTTP/2 on their way to `h2` (RFC 9113, 4.1): counts received frames by kind, and takes heads out of them.
//!
//! Flow control bounds DATA, and streams bound HEADERS. Nothing in HTTP/2 bounds the other frames, and each costs this side more
//! than its client.

mod frame_heads;
pub(crate) mod head_frames;
pub(crate) mod refusals;

use std::{
    task::{Context, Poll},
    time::{Duration, Instant},
};

use galgo_io::{tick, turn};
use tokio::io::ReadBuf;

use frame_heads::{CONTINUATION, FrameHead, FrameHeads, HEADERS};
use head_frames::HeadFrames;

/// Bytes of the client's preface (RFC 9113, 3.4).
const PREFACE: usize = 24;

const DATA: u8 = 0;

/// Control frames that a connection may send at once, and again each second. If a client sends more, they are read more slowly.
const CONTROL: u32 = 1000;
const EACH: Duration = Duration::from_millis(1);
/// Bytes of answers that allow one more control frame, because clients report the bytes that they have read (WINDOW_UPDATE).
const ANSWER: usize = 1 << 10;

/// A DATA frame of fewer bytes is small. For such a frame `h2` uses more memory than its data needs, and if `h2` holds 500 of
/// them it ends the connection.
const SMALL: usize = 256;
/// After this many small frames the streams take the data that has come.
const MANY_SMALL: u32 = 400;

/// Counts the frames that a client sends.
#[derive(Debug)]
pub(crate) struct Frames {
    heads: FrameHeads,
    requests: HeadFrames,
    /// Bytes that `h2` gets in place of received ones.
    for_h2: Vec<u8>,
    /// Control frames that the client may send now.
    control: u32,
    /// Time of the last addition to `control`.
    since: Instant,
    /// Bytes of answers that have not been counted yet.
    answered: usize,
    /// Small DATA frames since the streams last took their data.
    small: u32,
}

impl Frames {
    /// Counts the frames of a new connection, whose heads go to `requests`.
    pub(crate) fn new(requests: HeadFrames) -> Self {
        Self {
            heads: FrameHeads::skipping_bytes(PREFACE),
            requests,
            for_h2: Vec::new(),
            control: CONTROL,
            since: Instant::now(),
            answered: 0,
            small: 0,
        }
    }

    /// Counts bytes that are sent to the client.
    pub(crate) fn count_answered(&mut self, bytes: usize) {
        self.answered += bytes;
        self.control =
            CONTROL.min(self.control + u32::try_from(self.answered / ANSWER).unwrap_or(CONTROL));
        self.answered %= ANSWER;
    }

    /// Ready while the turn of the connection lasts, unless the client has sent too many control frames. Pending for ever after
    /// an error that ends the connection.
    pub(crate) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.requests.ended {
            return Poll::Pending;
        }
        if self.control == 0 {
            let given = self.since.elapsed().as_nanos() / EACH.as_nanos();
            self.control = u32::try_from(given).map_or(CONTROL, |given| given.min(CONTROL));
            if self.control == 0 {
                turn::mark_flood();
                tick::wake_at_next(cx);
                return Poll::Pending;
            }
            self.since = Instant::now();
        }
        turn::poll_turn(cx)
    }

    /// Passes received bytes on to `h2`: all, or the bytes up to the frame with which the turn ends. Returns how many were
    /// taken: at least one byte, if [`Frames::poll_left`] was ready.
    pub(crate) fn pass_bytes(&mut self, bytes: &[u8], h2: &mut ReadBuf<'_>) -> usize {
        let mut at = 0;
        self.pass_made(h2);
        while at < bytes.len() && h2.remaining() > 0 && self.control > 0 && !turn::is_used_up() {
            let rest = &bytes[at..];
            if self.requests.ended {
                break;
            }
            if self.requests.is_collecting() {
                let taken = self.heads.take_payload(rest.len());
                self.requests.collect(&rest[..taken]);
                at += taken;
            } else if !self.heads.is_frame_whole() {
                let taken = self.heads.take_payload(rest.len().min(h2.remaining()));
                h2.put_slice(&rest[..taken]);
                at += taken;
            } else {
                let (taken, head) = self.heads.scan_head(rest);
                at += taken;
                if let Some(head) = head {
                    self.count_frame(head);
                    self.requests.begin_frame(head, &mut self.for_h2);
                }
            }
            if self.heads.is_frame_whole() {
                self.requests.end_frame(&mut self.for_h2);
            }
            self.pass_made(h2);
        }
        at
    }

    /// Passes on bytes that were made for `h2`.
    pub(crate) fn pass_made(&mut self, h2: &mut ReadBuf<'_>) {
        if self.for_h2.is_empty() {
            return;
        }
        let passed = self.for_h2.len().min(h2.remaining());
        h2.put_slice(&self.for_h2[..passed]);
        self.for_h2.drain(..passed);
    }

    fn count_frame(&mut self, head: FrameHead) {
        match head.kind {
            HEADERS => turn::spend_units(turn::REQUEST),
            DATA if head.payload < SMALL => {
                turn::spend_units(turn::PIECE);
                self.small += 1;
                if self.small == MANY_SMALL {
                    self.small = 0;
                    turn::end_turn();
                }
            }
            DATA | CONTINUATION => turn::spend_units(turn::PIECE),
            _ => {
                turn::spend_units(turn::PIECE);
                self.control -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{frame_heads::HEAD, head_frames::HeadListLimits, *};

    const PING: u8 = 6;

    fn frame(kind: u8, len: u8) -> Vec<u8> {
        let is_head = u8::from(kind == HEADERS);
        let head = [0, 0, len, kind, 4 * is_head, 0, 0, 0, is_head];
        // Any number of these bytes is a head that can be unpacked.
        [&head[..], &vec![0x84; len.into()]].concat()
    }

    /// Makes a connection that has sent these frames. Returns its counts, and how many bytes were let in.
    fn sent(all: &[Vec<u8>], piece: usize) -> (Frames, usize) {
        let bytes = [&[b'P'; PREFACE][..], &all.concat()].concat();
        let limits = HeadListLimits {
            size: 1000,
            upgrades: false,
        };
        let mut frames = Frames::new(HeadFrames::new(Rc::default(), limits));
        let mut room = vec![0; bytes.len()];
        let mut h2 = ReadBuf::new(&mut room);
        let let_in = bytes
            .chunks(piece)
            .map(|piece| frames.pass_bytes(piece, &mut h2))
            .sum();
        (frames, let_in)
    }

    #[test]
    fn only_control_frames_are_counted_however_they_come() {
        let all = [
            frame(PING, 8),
            frame(DATA, 200),
            frame(HEADERS, 3),
            frame(8, 4),
            frame(0xff, 0),
        ];
        let len = PREFACE + all.concat().len();
        for piece in [1, 2, 8, 9, 10, 100, 1000] {
            let (frames, let_in) = sent(&all, piece);
            assert_eq!((frames.control, let_in), (CONTROL - 3, len), "{piece}");
        }
    }

    #[test]
    fn clients_push_nothing_and_open_odd_streams() {
        let mut even = frame(HEADERS, 1);
        even[8] = 2;
        for bad in [frame(5, 9), even] {
            let (frames, let_in) = sent(&[bad.clone(), frame(PING, 8)], usize::MAX);
            assert!(frames.requests.ended && let_in < PREFACE + bad.len() + HEAD);
            assert!(frames.requests.refusals.is_new(2));
        }
    }

    #[test]
    fn too_many_wait() {
        let all = vec![frame(PING, 8); 3 * CONTROL as usize];
        let (mut frames, let_in) = sent(&all, usize::MAX);
        // The payload of the last frame waits as well.
        assert_eq!(let_in, PREFACE + CONTROL as usize * (HEAD + 8) - 8);
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        frames.since = Instant::now() + Duration::from_secs(60);
        let (waits, went) = turn::run_turn(|| frames.poll_left(cx));
        assert_eq!((waits, went), (Poll::Pending, turn::Went::Floods));
        frames.since = Instant::now() - Duration::from_millis(10);
        assert!(frames.poll_left(cx).is_ready() && (10..CONTROL).contains(&frames.control));
    }

    #[test]
    fn streams_run_after_many_small_ones() {
        let all = vec![frame(DATA, 8); 2 * MANY_SMALL as usize];
        let (first, went) = turn::run_turn(|| sent(&all, usize::MAX).1);
        assert_eq!(
            (first, went),
            (
                PREFACE + MANY_SMALL as usize * (HEAD + 8) - 8,
                turn::Went::Busy
            )
        );
    }

    #[test]
    fn answers_allow_more() {
        let all = vec![frame(8, 4); 100];
        let (mut frames, _) = sent(&all, usize::MAX);
        (0..10).for_each(|_| frames.count_answered(10 * ANSWER / 2));
        assert_eq!(frames.control, CONTROL - 50);
        frames.count_answered(usize::MAX / 2);
        assert_eq!(frames.control, CONTROL);
    }
}
