//! Writes the bytes of a response, within the client's allowance and in the format of the connection: as they are (HTTP, SCGI),
//! or in FastCGI records.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
};

use galgo_io::{rate_allowance::RateAllowance, transport::Transport};
use galgo_proto::fcgi::{self, HEADER, Header, MOST, Outcome, RecordType};

/// The format of a response on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireFormat {
    /// The response as HTTP/1.
    Http,
    /// The response as a CGI program writes it. It ends with the connection.
    Scgi,
    /// The response as a CGI program writes it, in the records of a request.
    FastCgi {
        /// The id that the front server gave the request.
        id: u16,
    },
}

/// Writes all of `parts`. `more`: tells the kernel that more follows, either bytes or the end of the connection.
pub(super) async fn write_all(
    sock: &Transport,
    allowance: &mut RateAllowance,
    mut parts: &mut [IoSlice<'_>],
    more: bool,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let mut waits = false;
        let write =
            poll_fn(|cx| allowance.poll_io(cx, |cx| sock.poll_write(parts, more, &mut waits, cx)));
        match write.await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut parts, n),
        }
    }
    Ok(())
}

/// Returns the records that end a request. END_REQUEST would end STDOUT as well, but some front servers want to read its end.
/// `status` is the exit status of the program.
pub(super) fn end_records(id: u16, status: u32) -> [u8; HEADER + 16] {
    let mut out = [0; HEADER + 16];
    let (stdout, end) = out.split_at_mut(HEADER);
    stdout.copy_from_slice(&Header::new(RecordType::STDOUT, id, 0).to_bytes());
    end.copy_from_slice(&fcgi::end_request(id, status, Outcome::COMPLETE));
    out
}

impl WireFormat {
    /// Returns whether the peer is a client that speaks HTTP.
    pub(super) fn is_http(self) -> bool {
        self == Self::Http
    }

    /// Writes `parts`. With the last parts of a response comes the program's `status`, and then the end of the response is
    /// written, too. `closing`: the connection ends with these parts, and they leave with its end in one segment.
    pub(super) async fn write(
        self,
        sock: &Transport,
        allowance: &mut RateAllowance,
        parts: &mut [IoSlice<'_>],
        status: Option<u32>,
        closing: bool,
    ) -> io::Result<()> {
        let more = closing && status.is_some() && self.is_http();
        match self {
            Self::Http | Self::Scgi => write_all(sock, allowance, parts, more).await,
            // Boxed: other responses need no room for it.
            Self::FastCgi { id } => {
                Box::pin(write_records(id, sock, allowance, parts, status)).await
            }
        }
    }

    /// Announces that bytes of a long body follow at once. Returns how many of `len` bytes the announcement covers.
    pub(super) async fn announce(
        self,
        sock: &Transport,
        allowance: &mut RateAllowance,
        len: usize,
    ) -> io::Result<usize> {
        let Self::FastCgi { id } = self else {
            return Ok(len);
        };
        let len = len.min(MOST);
        let head = Header {
            padding: 0,
            ..Header::new(RecordType::STDOUT, id, len)
        };
        write_all(sock, allowance, &mut [IoSlice::new(&head.to_bytes())], true).await?;
        Ok(len)
    }
}

/// Writes `parts` in records of STDOUT.
async fn write_records(
    id: u16,
    sock: &Transport,
    allowance: &mut RateAllowance,
    parts: &[IoSlice<'_>],
    status: Option<u32>,
) -> io::Result<()> {
    let pieces: Vec<&[u8]> = parts.iter().flat_map(|part| split_evenly(part)).collect();
    let header = |piece: &&[u8]| Header::new(RecordType::STDOUT, id, piece.len());
    let headers: Vec<_> = pieces.iter().map(header).collect();
    let heads: Vec<_> = headers.iter().map(|header| header.to_bytes()).collect();
    let end = status.map(|status| end_records(id, status));
    let mut slices: Vec<_> = heads
        .iter()
        .zip(&headers)
        .zip(&pieces)
        .flat_map(|((head, header), piece)| {
            [&head[..], piece, header.padding_bytes()].map(IoSlice::new)
        })
        .collect();
    slices.extend(end.iter().map(|end| IoSlice::new(end)));
    write_all(sock, allowance, &mut slices, false).await
}

/// Splits `bytes` into pieces that fit into a record, of about equal length.
fn split_evenly(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let records = bytes.len().div_ceil(MOST).max(1);
    let each = bytes
        .len()
        .div_ceil(records)
        .next_multiple_of(8)
        .clamp(8, MOST);
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
            MOST - 1,
            MOST,
            MOST + 1,
            65536,
            3 * MOST + 5,
            1 << 20,
        ] {
            let bytes = vec![b'x'; len];
            let pieces: Vec<_> = split_evenly(&bytes).collect();
            assert_eq!(pieces.concat(), bytes);
            assert_eq!(pieces.len(), len.div_ceil(MOST), "{len}");
            assert!(pieces.iter().all(|p| !p.is_empty() && p.len() <= MOST));
            assert!(pieces.iter().all(|p| {
                (p.len()
                    + Header::new(RecordType::STDOUT, 1, p.len())
                        .padding_bytes()
                        .len())
                .is_multiple_of(8)
            }));
        }
    }
}
