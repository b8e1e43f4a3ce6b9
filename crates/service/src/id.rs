//! Request ids: unique over restarts and machines, short enough to read aloud.

use std::{cell::Cell, ops::Deref};

/// The source of request ids of one event loop.
#[derive(Debug)]
pub struct Ids {
    base: u64,
    next: Cell<u64>,
}

/// The id of a request, as numbers, because most ids are never read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    base: u64,
    number: u64,
}

/// An id as text: 20 characters of `0-9a-z` without `i l o u`.
#[derive(Debug, Clone, Copy)]
pub struct IdText([u8; 20]);

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl Ids {
    /// Returns a source of ids that starts at a random number.
    pub fn new() -> Self {
        let mut seed = [[0; 8]; 2];
        let flags = rustix::rand::GetRandomFlags::empty();
        // Without random bytes (never seen since Linux 3.17) the ids are still unique in this process.
        let _ = rustix::rand::getrandom(seed.as_flattened_mut(), flags);
        let [base, next] = seed.map(u64::from_ne_bytes);
        let next = next.into();
        Self { base, next }
    }

    /// Returns the next id.
    pub fn next(&self) -> Id {
        let n = self.next.get();
        self.next.set(n.wrapping_add(1));
        Id {
            base: self.base,
            number: n,
        }
    }
}

impl Default for Ids {
    fn default() -> Self {
        Self::new()
    }
}

impl Id {
    /// Returns the id as text.
    pub fn to_base32(self) -> IdText {
        let mut bits = u128::from(self.base) << 36 | u128::from(self.number & 0xf_ffff_ffff);
        let mut out = [0; 20];
        for c in out.iter_mut().rev() {
            *c = ALPHABET[usize::try_from(bits & 31).unwrap_or(0)];
            bits >>= 5;
        }
        IdText(out)
    }
}

impl Deref for IdText {
    type Target = str;

    fn deref(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ() {
        let (a, b) = (Ids::new(), Ids::new());
        let mut all: Vec<_> = (0..1000)
            .flat_map(|_| {
                [
                    a.next().to_base32().to_string(),
                    b.next().to_base32().to_string(),
                ]
            })
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }
}
