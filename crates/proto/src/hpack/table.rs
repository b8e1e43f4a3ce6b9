//! The tables of HPACK (RFC 7541, 2.3): the fields that every connection knows, and those that a connection has inserted.

use std::collections::VecDeque;

use super::error::Undecodable;

/// The size of a table at most, in which each field takes 32 bytes more than its text (RFC 7541, 4.1; RFC 9113, 6.5.2).
const LIMIT: usize = 4096;
const FIELD: usize = 32;

/// A table, whose newest field comes first.
#[derive(Debug)]
pub(super) struct FieldTable {
    inserted: VecDeque<Inserted>,
    /// Bytes of the inserted fields.
    pub(super) size: usize,
    limit: usize,
}

/// A field: its name and its value in one text, and the length of the name.
#[derive(Debug)]
struct Inserted(Box<[u8]>, usize);

impl Default for FieldTable {
    fn default() -> Self {
        Self {
            inserted: VecDeque::new(),
            size: 0,
            limit: LIMIT,
        }
    }
}

impl FieldTable {
    /// Returns name and value of the field with this number.
    pub(super) fn entry(&self, number: usize) -> Result<(&[u8], &[u8]), Undecodable> {
        let at = number.checked_sub(1).ok_or(Undecodable)?;
        if let Some((name, value)) = KNOWN.get(at) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let inserted = self.inserted.get(at - KNOWN.len());
        let Inserted(text, name) = inserted.ok_or(Undecodable)?;
        Ok(text.split_at(*name))
    }

    /// Inserts a field, and removes the oldest ones to make room. A field that is larger than the table empties it.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + FIELD;
        self.shrink_to(self.limit.saturating_sub(size));
        if size <= self.limit {
            let text = [name, value].concat().into();
            self.inserted.push_front(Inserted(text, name.len()));
            self.size += size;
        }
    }

    /// Changes the limit on the size. Returns false if it would be too large.
    pub(super) fn resize(&mut self, limit: usize) -> bool {
        self.limit = limit.min(LIMIT);
        self.shrink_to(limit);
        limit <= LIMIT
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size
            && let Some(Inserted(text, _)) = self.inserted.pop_back()
        {
            self.size -= text.len() + FIELD;
        }
    }
}

/// The fields that every connection knows (RFC 7541, A).
#[rustfmt::skip]
static KNOWN: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"), (":scheme", "http"),
    (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""), ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""), ("accept-ranges", ""), ("accept", ""), ("access-control-allow-origin", ""), ("age", ""),
    ("allow", ""), ("authorization", ""), ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""),
    ("content-language", ""), ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""),
    ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""),
    ("link", ""), ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""),
    ("range", ""), ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];
