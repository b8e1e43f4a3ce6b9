//! Output that was received and not yet sent on.

use std::ops::Range;

use crate::pool;

/// A piece of output that is shorter than this is moved next to the piece before it: a separate piece would cost more than the
/// copy.
const MOVED: usize = 1 << 10;

/// Output, in the buffer into which it was read. The bytes around it (headers of records, a response head) stay in the buffer
/// and do not count as output.
#[derive(Debug, Default)]
pub struct Out {
    bytes: Vec<u8>,
    /// Ranges of output in `bytes`, in ascending order.
    parts: Vec<Range<usize>>,
    /// Bytes at the front of `bytes` that were looked at: each is kept as output, or skipped.
    seen: usize,
    /// Bytes of output, in all parts.
    len: usize,
}

impl Out {
    /// Makes output of all of `bytes`.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let mut out = Self::default();
        out.bytes = bytes;
        out.keep_all();
        out
    }

    /// Returns how many bytes of output there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no output.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Prepares for much more output: if no buffer is held, the next read goes into a large one.
    pub fn reserve_large(&mut self) {
        if self.bytes.capacity() == 0 {
            self.bytes = pool::take_large_buffer();
        }
    }

    /// Returns the buffer to which a read appends its bytes. The bytes count as output only after a call of [`Out::keep_bytes`].
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.len == 0 && self.seen == self.bytes.len() {
            self.clear_seen();
        }
        &mut self.bytes
    }

    /// Returns whether there is no room for another read.
    pub fn is_full(&self) -> bool {
        pool::is_full(&self.bytes)
    }

    /// Returns the bytes that were read and not yet looked at.
    pub fn unseen(&self) -> &[u8] {
        &self.bytes[self.seen..]
    }

    /// Keeps all bytes of [`Out::unseen`] as output.
    pub fn keep_all(&mut self) {
        self.keep_bytes(self.bytes.len() - self.seen);
    }

    /// Keeps the next `n` bytes of [`Out::unseen`] as output.
    pub fn keep_bytes(&mut self, n: usize) {
        let at = self.seen..self.bytes.len().min(self.seen + n);
        self.seen = at.end;
        self.len += at.len();
        match self.parts.last_mut() {
            _ if at.is_empty() => {}
            Some(last) if last.end == at.start => last.end = at.end,
            Some(last) if at.len() < MOVED => {
                let end = last.end + at.len();
                self.bytes.copy_within(at, last.end);
                last.end = end;
            }
            _ => self.parts.push(at),
        }
        self.drop_skipped();
    }

    /// Skips the next `n` bytes of [`Out::unseen`]: they are not output.
    pub fn skip_bytes(&mut self, n: usize) {
        self.seen = self.bytes.len().min(self.seen + n);
        self.drop_skipped();
    }

    /// Drops the skipped bytes after the last part, so that skipped bytes take no memory, however many come.
    fn drop_skipped(&mut self) {
        if self.seen == self.bytes.len() {
            self.seen = self.parts.last().map_or(0, |part| part.end);
            self.bytes.truncate(self.seen);
        }
    }

    /// Returns whether the output is in one piece, or empty.
    pub fn is_contiguous(&self) -> bool {
        self.parts.len() < 2
    }

    /// Returns the first part.
    pub fn first_part(&self) -> &[u8] {
        self.parts().next().unwrap_or_default()
    }

    /// Returns all parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| &self.bytes[part.clone()])
    }

    /// Joins all parts into one. Returns false if there was at most one.
    pub fn join_parts(&mut self) -> bool {
        if self.parts.len() < 2 {
            return false;
        }
        let mut end = self.parts[0].end;
        for part in self.parts.drain(1..) {
            let len = part.len();
            self.bytes.copy_within(part, end);
            end += len;
        }
        self.parts[0].end = end;
        true
    }

    /// Drops the first `n` bytes of the output.
    pub fn consume(&mut self, n: usize) {
        let mut left = n.min(self.len);
        self.len -= left;
        self.parts.retain_mut(|part| {
            let used = left.min(part.len());
            part.start += used;
            left -= used;
            part.start < part.end
        });
    }

    /// Drops all bytes that were looked at.
    pub fn clear_seen(&mut self) {
        self.bytes.drain(..self.seen);
        self.parts.clear();
        (self.seen, self.len) = (0, 0);
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        pool::return_buffer(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(out: &Out) -> Vec<u8> {
        out.parts().flatten().copied().collect()
    }

    /// Makes output of kept and skipped bytes by turns, some pieces long, some short.
    fn mixed() -> (Out, Vec<u8>) {
        let (mut out, mut wanted) = (Out::default(), Vec::new());
        for (i, n) in [3_usize, 5000, 0, 7, 1024, 2, 4096].into_iter().enumerate() {
            let fill = u8::try_from(i).unwrap() + b'a';
            out.buffer().extend(vec![b'-'; 8]);
            out.buffer().extend(vec![fill; n]);
            out.skip_bytes(8);
            out.keep_bytes(n);
            wanted.extend(vec![fill; n]);
        }
        (out, wanted)
    }

    #[test]
    fn what_stands_between_is_left_out() {
        let (mut out, wanted) = mixed();
        assert_eq!((out.len(), all(&out) == wanted), (wanted.len(), true));
        assert_eq!(out.parts().count(), 4, "short pieces have joined others");
        assert!(out.join_parts());
        assert!(!out.join_parts());
        assert!(out.first_part() == wanted);
    }

    #[test]
    fn the_front_is_used_up_across_parts() {
        for n in [0, 1, 3, 4, 5003, 6000, 10_131, 10_132, 20_000] {
            let (mut out, wanted) = mixed();
            out.consume(n);
            let left = &wanted[n.min(wanted.len())..];
            assert!(all(&out) == left && out.len() == left.len(), "{n}");
        }
    }

    #[test]
    fn a_record_that_goes_on_is_one_part() {
        let mut out = Out::default();
        for _ in 0..3 {
            out.buffer().extend([b'x'; 2000]);
            out.keep_bytes(2000);
        }
        assert_eq!((out.parts().count(), out.len()), (1, 6000));
    }

    #[test]
    fn what_is_no_output_takes_no_room() {
        let mut out = Out::default();
        out.buffer().push(b'x');
        out.keep_all();
        for _ in 0..100 {
            out.buffer().extend([b'-'; 5000]);
            out.skip_bytes(5000);
            out.buffer().push(b'x');
            out.keep_bytes(1);
        }
        assert_eq!((out.len(), out.buffer().len()), (101, 101));
    }

    #[test]
    fn an_empty_one_starts_over_and_loses_nothing_unseen() {
        let mut out = Out::default();
        out.buffer().extend(b"headbody");
        out.skip_bytes(4);
        assert_eq!(out.buffer(), b"headbody");
        out.keep_all();
        assert_eq!(out.first_part(), b"body");
        out.consume(4);
        assert_eq!(out.buffer(), b"");
    }
}
