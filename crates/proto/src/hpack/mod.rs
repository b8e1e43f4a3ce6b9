//! HPACK (RFC 7541): unpacks the fields of a head of HTTP/2.
//!
//! `h2` can do so, too, but it refuses targets that HTTP/1 takes, and shows no refused head.

mod error;
mod huffman;
mod table;

pub use error::Undecodable;

use table::FieldTable;

/// Unpacks the blocks of one connection, in the order in which they come.
#[derive(Debug, Default)]
pub struct HpackDecoder {
    table: FieldTable,
    /// Name and value of a literal field.
    text: Vec<u8>,
}

/// Memory that a decoder keeps for the text of the next block.
const KEPT: usize = 1 << 10;

impl HpackDecoder {
    /// Passes each field of a whole block to `take`, as name and value. Indexed fields repeat earlier ones, so all fields
    /// together can be much longer than the block.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut take: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Undecodable> {
        let (mut rest, mut begun) = (block, false);
        while let Some(&kind) = rest.first() {
            if kind & 0xe0 == 0x20 {
                let limit = take_integer(&mut rest, 5)?;
                if begun || !self.table.resize(limit) {
                    return Err(Undecodable);
                }
                continue;
            }
            begun = true;
            if kind & 0x80 != 0 {
                let (name, value) = self.table.entry(take_integer(&mut rest, 7)?)?;
                take(name, value);
                continue;
            }
            let inserts = kind & 0x40 != 0;
            self.text.clear();
            match take_integer(&mut rest, if inserts { 6 } else { 4 })? {
                0 => take_string(&mut rest, &mut self.text)?,
                known => self.text.extend_from_slice(self.table.entry(known)?.0),
            }
            let name = self.text.len();
            take_string(&mut rest, &mut self.text)?;
            let (name, value) = self.text.split_at(name);
            take(name, value);
            if inserts {
                self.table.insert(name, value);
            }
        }
        if self.text.capacity() > KEPT {
            self.text = Vec::new();
        }
        Ok(())
    }
}

/// Reads an integer that begins in the last `prefix` bits of a byte (RFC 7541, 5.1).
fn take_integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Undecodable> {
    let (&first, mut behind) = rest.split_first().ok_or(Undecodable)?;
    let most = usize::from(u8::MAX >> (8 - prefix));
    let mut value = usize::from(first) & most;
    let mut more = value == most;
    let mut shift = 0;
    while more {
        let (&byte, next) = behind.split_first().ok_or(Undecodable)?;
        if shift > 21 {
            return Err(Undecodable);
        }
        value += usize::from(byte & 0x7f) << shift;
        (behind, more, shift) = (next, byte & 0x80 != 0, shift + 7);
    }
    *rest = behind;
    Ok(value)
}

/// Reads a string (RFC 7541, 5.2) and appends it to `text`.
fn take_string(rest: &mut &[u8], text: &mut Vec<u8>) -> Result<(), Undecodable> {
    let packed = rest.first().is_some_and(|first| first & 0x80 != 0);
    let len = take_integer(rest, 7)?;
    let (string, behind) = rest.split_at_checked(len).ok_or(Undecodable)?;
    *rest = behind;
    if packed {
        return huffman::decode(string, text);
    }
    text.extend_from_slice(string);
    Ok(())
}

#[cfg(test)]
mod tests;
