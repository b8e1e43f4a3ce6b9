//! Finds the end of a request head (RFC 9112, 2.1 and 2.2).

use memchr::{memchr2, memrchr};

use super::method::{LONGEST_METHOD, Version};
use crate::{fields::is_token, head_error::HeadError};

/// Limits of a request head.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Bytes of the whole head: 431 beyond.
    pub bytes: usize,
    /// Header fields: 431 beyond.
    pub fields: usize,
    /// Bytes of the request target: 414 beyond.
    pub target: usize,
    /// `%2F` in a path counts as `/`; else it is a 400.
    pub encoded_slash: bool,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 10,
            fields: 256,
            target: 16 << 10,
            encoded_slash: false,
        }
    }
}

/// Finds the end of a head in a growing buffer without looking at any byte twice.
///
/// One scan is for one head: the next request of a connection starts with a new one.
#[derive(Debug, Clone, Default)]
pub struct HeadScan {
    /// Everything before this position has been looked at, but for a CR that was the last byte.
    seen: usize,
    /// Start of the current line.
    line: usize,
    /// The request line has been seen.
    fields: bool,
}

impl HeadScan {
    /// Looks at the new bytes in `buf`. Returns `Some(n)` if `buf[..n]` is a whole head (the empty
    /// line included). One empty line before the request line is not counted as its end (RFC 9112,
    /// 2.2). Refuses at once: a bare LF, a bare CR, a head over the limit, and a request line
    /// without a version (so that an HTTP/0.9 client is answered).
    pub fn scan_head(
        &mut self,
        buf: &[u8],
        limits: &HeadLimits,
    ) -> Result<Option<usize>, HeadError> {
        loop {
            let (bound, beyond) = self.line_bound(limits);
            let window = &buf[..buf.len().min(bound)];
            if !self.fields {
                self.check_first_byte(window)?;
            }
            let rest = window.get(self.seen..).unwrap_or_default();
            let (at, next) = match memchr2(b'\r', b'\n', rest) {
                Some(i) => (self.seen + i, window.get(self.seen + i + 1)),
                None => (window.len(), None),
            };
            match (window.get(at), next) {
                (Some(b'\n'), _) => {
                    return Err(HeadError::bad_request("LF without CR in the head"));
                }
                (Some(_), Some(b'\n')) => {
                    if let Some(end) = self.line_end(window, at)? {
                        return Ok(Some(end));
                    }
                }
                (Some(_), Some(_)) => {
                    return Err(HeadError::bad_request("CR without LF in the head"));
                }
                _ if window.len() == bound => return Err(beyond),
                _ => {
                    self.seen = at;
                    return Ok(None);
                }
            }
        }
    }

    /// Returns the position where the current line must have ended, and the error if it has not.
    fn line_bound(&self, limits: &HeadLimits) -> (usize, HeadError) {
        // method, SP, target, SP, version, CRLF
        let longest_line = LONGEST_METHOD + 1 + limits.target + " HTTP/1.1\r\n".len();
        let request_line = self.line.saturating_add(longest_line);
        if !self.fields && request_line < limits.bytes {
            (
                request_line,
                HeadError::new(
                    414,
                    "the request line is longer than the limit (max_target)",
                ),
            )
        } else {
            (limits.bytes, HeadError::TOO_LARGE)
        }
    }

    /// Refuses at once a client that does not speak HTTP/1 at all, such as a TLS client.
    fn check_first_byte(&self, window: &[u8]) -> Result<(), HeadError> {
        match window.get(self.line) {
            Some(&b) if !is_token(b) && b != b'\r' && b != b'\n' => Err(HeadError::bad_request(
                "request does not begin with a method",
            )),
            _ => Ok(()),
        }
    }

    /// Takes the line that ends with the CR at `at`. `Some` is the end of the head.
    fn line_end(&mut self, window: &[u8], at: usize) -> Result<Option<usize>, HeadError> {
        let line = &window[self.line..at];
        match (line.is_empty(), self.fields) {
            (true, true) => return Ok(Some(at + 2)),
            (true, false) if at > 0 => {
                return Err(HeadError::bad_request(
                    "empty lines instead of a request line",
                ));
            }
            (true, false) | (false, true) => {}
            (false, false) => {
                let version = memrchr(b' ', line).map_or(line, |sp| &line[sp + 1..]);
                Version::parse(version)?;
                self.fields = true;
            }
        }
        self.line = at + 2;
        self.seen = at + 2;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: HeadLimits = HeadLimits {
        bytes: 100,
        fields: 9,
        target: 10,
        encoded_slash: false,
    };

    /// Returns the length at which a scan fed byte by byte decides, and its decision.
    fn decides(buf: &[u8], limits: &HeadLimits) -> (usize, Result<Option<usize>, u16>) {
        let mut scan = HeadScan::default();
        for n in 0..=buf.len() {
            match scan.scan_head(&buf[..n], limits) {
                Ok(None) => {}
                done => return (n, done.map_err(|e| e.status)),
            }
        }
        (buf.len(), Ok(None))
    }

    #[test]
    fn the_head_ends_at_the_empty_line_and_not_before() {
        for head in [
            "GET / HTTP/1.1\r\nA: b\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
        ] {
            let piped = format!("{head}GET /next HTTP/1.1\r\n\r\n");
            assert_eq!(
                decides(piped.as_bytes(), &SMALL),
                (head.len(), Ok(Some(head.len())))
            );
            let whole = HeadScan::default().scan_head(piped.as_bytes(), &SMALL);
            assert_eq!(whole, Ok(Some(head.len())));
        }
    }

    #[test]
    fn refusals_do_not_wait_for_more() {
        for (buf, at, status) in [
            ("GET / HTTP/1.1\nHost", 15, 400),
            ("GET / HTTP/1.1\rHost", 16, 400),
            ("\nGET", 1, 400),
            ("\r\n\r\nGET", 4, 400),
            ("\x16\x03\x01\x02", 1, 400),
            (" GET", 1, 400),
            ("GET /\r\n", 7, 400),
            ("GET / HTTP/2.0\r\n", 16, 505),
        ] {
            assert_eq!(
                decides(buf.as_bytes(), &SMALL),
                (at, Err(status)),
                "{buf:?}"
            );
        }
    }

    #[test]
    fn over_the_limit_at_once() {
        // A request line of 32 + 1 + 10 + 11 bytes could still be valid.
        assert_eq!(decides(&[b'G'; 200], &SMALL), (54, Err(414)));
        let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'y'; 200]].concat();
        assert_eq!(decides(&endless, &SMALL), (100, Err(431)));
        let tiny = HeadLimits { bytes: 20, ..SMALL };
        assert_eq!(decides(&[b'G'; 200], &tiny), (20, Err(431)));
    }

    #[test]
    fn a_head_of_exactly_the_limit_is_whole() {
        let head = b"GET / HTTP/1.1\r\nA: b\r\n\r\n";
        let exact = HeadLimits {
            bytes: head.len(),
            ..SMALL
        };
        assert_eq!(decides(head, &exact), (head.len(), Ok(Some(head.len()))));
        let less = HeadLimits {
            bytes: head.len() - 1,
            ..SMALL
        };
        assert_eq!(decides(head, &less), (head.len() - 1, Err(431)));
    }
}
