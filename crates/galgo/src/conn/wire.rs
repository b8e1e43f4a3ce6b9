//! What stands around the bytes of a response: nothing (HTTP, SCGI), or FastCGI records.

use std::io::{self, IoSlice};

use super::{
    record::{self, Header},
    send::{write_all, write_more},
};
use crate::{pace::Pace, sock::Sock};

/// How a response stands on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// As HTTP/1.
    Http,
    /// As a CGI response, to the end of the connection.
    Scgi,
    /// As a CGI response, in the records of a request.
    FastCgi {
        /// The id the front gave the request.
        id: u16,
    },
}

/// The most that one record holds, in whole eights: so nothing of a long output needs padding.
pub(super) const RECORD: usize = 0xfff8;

impl Wire {
    /// Whether the peer is a client that speaks HTTP.
    pub fn is_http(self) -> bool {
        self == Self::Http
    }

    /// Writes `parts`, and with the `last` of a response its end.
    pub(super) async fn write(
        self,
        sock: &Sock,
        pace: &mut Pace,
        parts: [&[u8]; 4],
        last: bool,
    ) -> io::Result<()> {
        let Self::FastCgi { id } = self else {
            return write_all(sock, pace, &mut parts.map(IoSlice::new)).await;
        };
        let pieces: Vec<&[u8]> = parts.iter().flat_map(|part| even(part)).collect();
        let heads: Vec<_> = pieces
            .iter()
            .map(|piece| header(id, piece.len()).bytes())
            .collect();
        let end = record::end(id, 0, record::COMPLETE);
        let mut slices: Vec<_> = heads
            .iter()
            .zip(&pieces)
            .flat_map(|(head, piece)| {
                let padding = &[0; 8][..padding(piece.len())];
                [
                    IoSlice::new(head),
                    IoSlice::new(piece),
                    IoSlice::new(padding),
                ]
            })
            .collect();
        if last {
            slices.push(IoSlice::new(&end));
        }
        write_all(sock, pace, &mut slices).await
    }

    /// Announces that `len` bytes of a long body follow at once, and says for how many of them that holds.
    pub(super) async fn announce(
        self,
        sock: &Sock,
        pace: &mut Pace,
        len: usize,
    ) -> io::Result<usize> {
        let Self::FastCgi { id } = self else {
            return Ok(len);
        };
        let len = len.min(RECORD);
        let head = Header {
            padding: 0,
            ..header(id, len)
        };
        write_more(sock, pace, &head.bytes()).await.map(|()| len)
    }
}

fn padding(len: usize) -> usize {
    len.wrapping_neg() % 8
}

fn header(id: u16, len: usize) -> Header {
    Header {
        kind: record::STDOUT,
        id,
        // INVARIANT: no piece is longer than a record, and padding is below 8.
        content: u16::try_from(len).unwrap_or(u16::MAX),
        padding: u8::try_from(padding(len)).unwrap_or_default(),
    }
}

/// Pieces of `bytes` that fit a record, of about the same length.
fn even(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let records = bytes.len().div_ceil(RECORD).max(1);
    let each = bytes
        .len()
        .div_ceil(records)
        .next_multiple_of(8)
        .clamp(8, RECORD);
    bytes.chunks(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fit_and_are_all_there() {
        for len in [
            0,
            1,
            7,
            8,
            9,
            RECORD - 1,
            RECORD,
            RECORD + 1,
            65536,
            3 * RECORD + 5,
            1 << 20,
        ] {
            let bytes = vec![b'x'; len];
            let pieces: Vec<_> = even(&bytes).collect();
            assert_eq!(pieces.concat(), bytes);
            assert_eq!(pieces.len(), len.div_ceil(RECORD), "{len}");
            assert!(pieces.iter().all(|p| !p.is_empty() && p.len() <= RECORD));
            assert!(
                pieces
                    .iter()
                    .all(|p| (p.len() + padding(p.len())).is_multiple_of(8))
            );
        }
    }
}
