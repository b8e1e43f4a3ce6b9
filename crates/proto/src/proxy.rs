//! The PROXY protocol, version 2 (HAProxy, "The PROXY protocol", 2.2).

use std::net::{IpAddr, SocketAddr};

use crate::Parsed;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Limit of addresses and TLVs together. The largest addresses of the specification take 216 bytes,
/// without TLVs.
const MAX_LEN: usize = 2048;

/// The ends of the connection, as the proxy names them: (client, server). `None` for the proxy
/// itself (LOCAL) and for Unix sockets.
pub type Ends = Option<(SocketAddr, SocketAddr)>;

/// The bytes are no PROXY protocol version 2 header: the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyError;

/// Parses the header at the beginning of a connection.
pub fn parse_header(buf: &[u8]) -> Result<Parsed<Ends>, ProxyError> {
    let signed = buf.len().min(SIGNATURE.len());
    if buf[..signed] != SIGNATURE[..signed] {
        return Err(ProxyError);
    }
    let Some(&[command, family, high, low]) = buf.get(12..16) else {
        return Ok(Parsed::Partial);
    };
    let len = usize::from(high) << 8 | usize::from(low);
    if command & 0xf0 != 0x20 || len > MAX_LEN {
        return Err(ProxyError);
    }
    let Some(block) = buf.get(16..16 + len) else {
        return Ok(Parsed::Partial);
    };
    let ends = match (command & 0x0f, family) {
        (0, _) => None,
        (1, 0x11) => Some(parse_ends::<4>(block).ok_or(ProxyError)?),
        (1, 0x21) => Some(parse_ends::<16>(block).ok_or(ProxyError)?),
        (1, 0x31) => None,
        _ => return Err(ProxyError),
    };
    Ok(Parsed::Complete(ends, 16 + len))
}

/// Reads both addresses, of `N` bytes each, then both ports.
fn parse_ends<const N: usize>(block: &[u8]) -> Option<(SocketAddr, SocketAddr)>
where
    IpAddr: From<[u8; N]>,
{
    let (from, rest) = block.split_first_chunk::<N>()?;
    let (to, rest) = rest.split_first_chunk::<N>()?;
    let &[a, b, c, d] = rest.first_chunk::<4>()?;
    let end = |ip: &[u8; N], port| SocketAddr::new((*ip).into(), u16::from_be_bytes(port));
    Some((end(from, [a, b]), end(to, [c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let mut h = SIGNATURE.to_vec();
        h.extend([command, family]);
        h.extend(u16::try_from(block.len()).unwrap().to_be_bytes());
        h.extend(block);
        h
    }

    #[test]
    fn addresses_are_taken_over() {
        let block = [192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 0x00, 0x50, 0xff];
        let h = header(0x21, 0x11, &block);
        let ends = Some((
            "192.0.2.1:12345".parse().unwrap(),
            "198.51.100.2:80".parse().unwrap(),
        ));
        assert_eq!(parse_header(&h), Ok(Parsed::Complete(ends, h.len())));
        for cut in 0..h.len() {
            assert_eq!(parse_header(&h[..cut]), Ok(Parsed::Partial), "cut at {cut}");
        }
        let mut six = vec![0; 36];
        (six[15], six[31], six[33], six[35]) = (1, 2, 7, 8);
        let h = header(0x21, 0x21, &six);
        let ends = Some(("[::1]:7".parse().unwrap(), "[::2]:8".parse().unwrap()));
        assert_eq!(parse_header(&h), Ok(Parsed::Complete(ends, h.len())));
    }

    #[test]
    fn local_and_unix_have_no_addresses() {
        for (command, family) in [(0x20, 0), (0x21, 0x31)] {
            let h = header(command, family, &[0; 4]);
            assert_eq!(parse_header(&h), Ok(Parsed::Complete(None, 20)));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert_eq!(parse_header(b"GET / HTTP/1.1\r\n"), Err(ProxyError));
        assert_eq!(parse_header(b"PROXY TCP4 "), Err(ProxyError));
        assert_eq!(parse_header(&header(0x11, 0x11, &[0; 12])), Err(ProxyError)); // version 1
        assert_eq!(parse_header(&header(0x22, 0x11, &[0; 12])), Err(ProxyError)); // unknown command
        assert_eq!(parse_header(&header(0x21, 0x12, &[0; 12])), Err(ProxyError)); // datagram
        assert_eq!(parse_header(&header(0x21, 0x11, &[0; 11])), Err(ProxyError)); // too short
        assert_eq!(
            parse_header(&header(0x21, 0x11, &[0; 4000])[..16]),
            Err(ProxyError)
        ); // too long
    }
}
