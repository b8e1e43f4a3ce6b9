//! The header of a record (3.3), and the types of records.

use crate::fcgi::record_error::RecordError;

/// Bytes of a record's header (3.3).
pub const HEADER: usize = 8;
/// Limit of the content that is put into one record: the largest multiple of eight below 2^16,
/// which needs no padding.
pub const MOST: usize = 65_528;
/// FCGI_NULL_REQUEST_ID: the record is about the connection, not about a request.
pub const MANAGEMENT: u16 = 0;

/// The type of a record (8). The specification knows these numbers; any other number may arrive.
/// know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordType(pub u8);

#[expect(missing_docs, reason = "named by the specification")]
impl RecordType {
    pub const BEGIN: Self = Self(1);
    pub const ABORT: Self = Self(2);
    pub const END: Self = Self(3);
    pub const PARAMS: Self = Self(4);
    pub const STDIN: Self = Self(5);
    pub const STDOUT: Self = Self(6);
    pub const STDERR: Self = Self(7);
    pub const DATA: Self = Self(8);
    pub const GET_VALUES: Self = Self(9);
    pub const GET_VALUES_RESULT: Self = Self(10);
    pub const UNKNOWN_TYPE: Self = Self(11);
}

/// The header of a record (3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Type of the record.
    pub kind: RecordType,
    /// The request that the record belongs to; [`MANAGEMENT`]: none.
    pub id: u16,
    /// Bytes of content.
    pub content: u16,
    /// Bytes of padding after the content.
    pub padding: u8,
}

impl Header {
    /// Makes the header of a record with `content` bytes, padded to a multiple of eight. If there
    /// are more than [`MOST`] bytes, the header says [`MOST`]: the rest belongs into another
    /// record.
    pub fn new(kind: RecordType, id: u16, content: usize) -> Self {
        let content = u16::try_from(content.min(MOST)).unwrap_or(0);
        Self {
            kind,
            id,
            content,
            padding: (8 - (content % 8) as u8) % 8,
        }
    }

    /// Encodes the header for sending.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let [id_high, id] = self.id.to_be_bytes();
        let [high, low] = self.content.to_be_bytes();
        [1, self.kind.0, id_high, id, high, low, self.padding, 0]
    }

    /// Reads a header from the front of `buf`; `None`: the header is not whole.
    ///
    /// # Errors
    /// The version is not 1.
    pub fn parse(buf: &[u8]) -> Result<Option<Self>, RecordError> {
        match (buf.first(), buf.first_chunk()) {
            (Some(&version), _) if version != 1 => Err(RecordError::Version(version)),
            (_, Some(header)) => Self::from_bytes(*header).map(Some),
            (_, None) => Ok(None),
        }
    }

    /// Reads a header; `Err`: its version is not 1.
    pub(super) fn from_bytes(b: [u8; HEADER]) -> Result<Self, RecordError> {
        if b[0] != 1 {
            return Err(RecordError::Version(b[0]));
        }
        Ok(Self {
            kind: RecordType(b[1]),
            id: u16::from_be_bytes([b[2], b[3]]),
            content: u16::from_be_bytes([b[4], b[5]]),
            padding: b[6],
        })
    }

    /// Returns the padding that belongs after the content.
    pub fn padding_bytes(self) -> &'static [u8] {
        const ZEROS: [u8; 255] = [0; 255];
        &ZEROS[..usize::from(self.padding)]
    }
}
