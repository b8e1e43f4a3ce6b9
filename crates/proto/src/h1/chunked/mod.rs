//! Chunked bodies (RFC 9112, 7.1).

use crate::{
    Parsed,
    digits::hex_value,
    fields::{is_text, is_token},
};

/// Digits of a chunk size: enough for a u64.
const SIZE_DIGITS: u8 = 16;
/// Limit of the extensions of one chunk, in bytes. They are skipped (RFC 9112, 7.1.1), so more is only a
/// burden.
const EXTENSION: u32 = 1 << 10;
/// Limit of the extensions of one body, in bytes. Without it, each byte of data could come with a
/// thousand bytes of extensions.
const EXTENSIONS: u32 = 16 << 10;
/// Limit of the trailer section, in bytes.
const TRAILERS: u32 = 8 << 10;

/// Decodes a chunked body (RFC 9112, 7.1). Trailers are bounded, checked for form and discarded.
#[derive(Debug, Clone, Default)]
pub struct Chunked {
    state: ChunkedState,
    /// Bytes of extensions at this chunk.
    extension: u32,
    /// Bytes of extensions so far.
    extensions: u32,
    /// Bytes of trailers so far.
    trailers: u32,
}

/// The element that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkedState {
    /// A digit of a chunk size, or a byte that may follow it.
    Size {
        digits: u8,
        size: u64,
    },
    /// Extensions.
    Extension {
        at: Extension,
        size: u64,
    },
    /// The LF after a chunk size.
    SizeLf {
        size: u64,
    },
    /// This much data, never 0.
    Data(u64),
    /// The CRLF after the data.
    DataCr,
    DataLf,
    /// A trailer field or the CR of the empty line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// The LF of the empty line.
    LastLf,
    End,
    Refused(ChunkError),
}

/// The element that comes next in `*( BWS ";" BWS name [ BWS "=" BWS value ] )` (RFC 9112, 7.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// Whitespace, and the `;` before a name. The previous extension is whole.
    Before,
    /// Whitespace, and the first byte of a name.
    Name,
    /// More of a name, or a byte that may follow it.
    InName,
    /// Whitespace after a name, and `=` or `;`.
    AfterName,
    /// Whitespace, and the first byte of a value.
    Value,
    /// More of a value that is a token, or a byte that may follow it.
    InValue,
    /// A value in quotes.
    Quoted,
    /// The byte after a backslash in a quoted value.
    Escaped,
    /// A byte that may follow a quoted value.
    AfterQuoted,
}

impl Extension {
    /// Returns the state after `b`; `None`: the byte may not stand here.
    fn next_state(self, b: u8) -> Option<Self> {
        use Extension::*;
        match (self, b) {
            (Before | InName | AfterName | InValue | AfterQuoted, b';') => Some(Name),
            (Before | InValue | AfterQuoted, b' ' | b'\t') => Some(Before),
            (Name, b' ' | b'\t') => Some(Name),
            (InName | AfterName, b' ' | b'\t') => Some(AfterName),
            (InName | AfterName, b'=') => Some(Value),
            (Value, b' ' | b'\t') => Some(Value),
            (Value, b'"') => Some(Quoted),
            (Quoted, b'"') => Some(AfterQuoted),
            (Quoted, b'\\') => Some(Escaped),
            (Quoted | Escaped, _) if is_text(b) => Some(Quoted),
            (Name | InName, _) if is_token(b) => Some(InName),
            (Value | InValue, _) if is_token(b) => Some(InValue),
            _ => None,
        }
    }

    /// Returns whether the line may end here.
    fn is_whole(self) -> bool {
        matches!(self, Self::InName | Self::InValue | Self::AfterQuoted)
    }
}

impl Default for ChunkedState {
    fn default() -> Self {
        Self::Size { digits: 0, size: 0 }
    }
}

/// A step of [`Chunked::next_chunk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunk {
    /// The input begins with this many bytes of body data: take them, then call again with the input
    /// after them.
    Data(usize),
    /// The body and its trailers have ended.
    End,
}

/// The reason why a chunked body is refused: 400 and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkError(pub &'static str);

impl Chunked {
    /// Reads framing from the front of `input`. `Complete(Data(n), used)`: after `used` bytes of framing
    /// come `n` bytes of data, all of them in `input` (`n >= 1`). This call consumes the data as well,
    /// so the caller drops `used + n`. `Complete(End, used)`: the body is over, and later calls say so
    /// too. `Partial`: every byte of `input` was framing that has been consumed; read more. Later calls
    /// repeat an error.
    pub fn next_chunk(&mut self, input: &[u8]) -> Result<Parsed<Chunk>, ChunkError> {
        let mut used = 0;
        loop {
            match self.state {
                ChunkedState::Refused(e) => return Err(e),
                ChunkedState::End => return Ok(Parsed::Complete(Chunk::End, used)),
                ChunkedState::Data(size) if used < input.len() => {
                    let n = usize::try_from(size)
                        .map_or(input.len() - used, |size| size.min(input.len() - used));
                    self.state = match size - n as u64 {
                        0 => ChunkedState::DataCr,
                        rest => ChunkedState::Data(rest),
                    };
                    return Ok(Parsed::Complete(Chunk::Data(n), used));
                }
                _ => {}
            }
            let Some(&b) = input.get(used) else {
                return Ok(Parsed::Partial);
            };
            used += 1;
            self.state = self.next_state(b).unwrap_or_else(ChunkedState::Refused);
        }
    }

    /// Returns the bytes of data that a chunk size has announced and [`Chunked::next_chunk`] has not returned
    /// yet.
    pub fn announced(&self) -> u64 {
        match self.state {
            ChunkedState::Data(left) => left,
            _ => 0,
        }
    }

    /// Returns whether the body and its trailers have ended.
    pub fn is_end(&self) -> bool {
        self.state == ChunkedState::End
    }

    /// Returns the state after one byte of framing.
    fn next_state(&mut self, b: u8) -> Result<ChunkedState, ChunkError> {
        use ChunkedState::*;
        match (self.state, b) {
            (Size { digits, size }, _) => self.read_size(digits, size, b),
            (ChunkedState::Extension { at, size }, _) => self.read_extension(at, size, b),
            (SizeLf { size: 0 }, b'\n') => Ok(Trailer),
            (SizeLf { size }, b'\n') => Ok(Data(size)),
            (DataCr, b'\r') => Ok(DataLf),
            (DataLf, b'\n') => Ok(ChunkedState::default()),
            (DataCr | DataLf, _) => Err(ChunkError("no CRLF after the data of a chunk")),
            (Trailer, b'\r') => Ok(LastLf),
            (LastLf, b'\n') => Ok(End),
            (Trailer | TrailerName | TrailerValue | TrailerLf, _) => self.read_trailer(b),
            (SizeLf { .. } | LastLf, _) => Err(ChunkError("CR without LF in the framing")),
            // INVARIANT: step() takes no byte of framing in these.
            (Data(_) | End | Refused(_), _) => Err(ChunkError("not framing")),
        }
    }

    fn read_size(&mut self, digits: u8, size: u64, b: u8) -> Result<ChunkedState, ChunkError> {
        let digit = match (hex_value(b), b) {
            (Some(digit), _) => digit,
            _ if digits == 0 => return Err(ChunkError("chunk without a size")),
            (None, b'\r') => return Ok(ChunkedState::SizeLf { size }),
            (None, b';' | b' ' | b'\t') => {
                self.extension = 0;
                return self.read_extension(Extension::Before, size, b);
            }
            _ => return Err(ChunkError("chunk size is not hexadecimal")),
        };
        if digits == SIZE_DIGITS {
            return Err(ChunkError("chunk size has too many digits"));
        }
        Ok(ChunkedState::Size {
            digits: digits + 1,
            size: size << 4 | u64::from(digit),
        })
    }

    fn read_extension(
        &mut self,
        at: Extension,
        size: u64,
        b: u8,
    ) -> Result<ChunkedState, ChunkError> {
        self.extension += 1;
        self.extensions += 1;
        if self.extension > EXTENSION || self.extensions > EXTENSIONS {
            return Err(ChunkError("too many chunk extensions"));
        }
        if b == b'\r' && at.is_whole() {
            return Ok(ChunkedState::SizeLf { size });
        }
        let at = at.next_state(b).ok_or(ChunkError("bad chunk extension"))?;
        Ok(ChunkedState::Extension { at, size })
    }

    fn read_trailer(&mut self, b: u8) -> Result<ChunkedState, ChunkError> {
        use ChunkedState::*;
        self.trailers += 1;
        if self.trailers > TRAILERS {
            return Err(ChunkError("trailers too large"));
        }
        match (self.state, b) {
            (TrailerName, b':') => Ok(TrailerValue),
            (Trailer | TrailerName, _) if is_token(b) => Ok(TrailerName),
            (TrailerValue, b'\r') => Ok(TrailerLf),
            (TrailerValue, _) if is_text(b) => Ok(TrailerValue),
            (TrailerLf, b'\n') => Ok(Trailer),
            (TrailerLf, _) => Err(ChunkError("CR without LF in the trailers")),
            _ => Err(ChunkError("bad trailer field")),
        }
    }
}

#[cfg(test)]
mod tests;
