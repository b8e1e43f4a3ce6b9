//! Bytes that were received and not yet used.

/// A buffer that is filled at its end and used up from its front.
#[derive(Debug, Default)]
pub struct Buf {
    bytes: Vec<u8>,
    start: usize,
}

impl Buf {
    /// Creates a buffer that already holds `bytes`.
    pub fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, start: 0 }
    }

    /// Returns the bytes that are held.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Returns how many bytes are held.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Returns whether no bytes are held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `n` bytes. A buffer that becomes empty starts over at its front.
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.bytes.len());
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Gives the memory back, if no bytes are held.
    pub fn free_if_empty(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Makes room for one read of about `want` bytes, and returns the vector to append to.
    pub fn reserve_read(&mut self, want: usize) -> &mut Vec<u8> {
        if self.start > 0 && self.bytes.capacity() - self.bytes.len() < want {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.reserve(want);
        &mut self.bytes
    }

    /// Returns whether the last read left room, which means that there was no more to read.
    pub fn has_spare_capacity(&self) -> bool {
        self.bytes.len() < self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_not_consumed() {
        let mut b = Buf::from(b"abcdef".to_vec());
        b.consume(2);
        assert_eq!(b.as_slice(), b"cdef");
        b.reserve_read(1 << 16).extend_from_slice(b"gh");
        assert_eq!(b.as_slice(), b"cdefgh");
        b.consume(6);
        assert!(b.is_empty());
        b.free_if_empty();
        assert_eq!(b.bytes.capacity(), 0);
    }
}
