//! Programs that write the whole HTTP response themselves (RFC 3875, 5: non-parsed header).

use crate::digits::parse_number;

/// Reads the status in the status line at the start of `output`, for the log: 100 to 599. `None` if
/// the output begins with other bytes, or does not reach to the status yet. Nothing else is checked:
/// the bytes go to the client as they are.
pub fn parse_nph_status(output: &[u8]) -> Option<u16> {
    let rest = output.strip_prefix(b"HTTP/")?;
    let [b'0'..=b'9', b'.', b'0'..=b'9', b' ', rest @ ..] = rest else {
        return None;
    };
    let (digits, [b' ' | b'\r' | b'\n', ..]) = rest.split_at_checked(3)? else {
        return None;
    };
    let status = u16::try_from(parse_number(digits)?).ok()?;
    (100..=599).contains(&status).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_status_line_is_read_for_the_log() {
        for (output, want) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 404\n", Some(404)),
            ("HTTP/1.1 200", None),
            ("HTTP/1.1 2000 OK", None),
            ("HTTP/1.1 099 x", None),
            ("HTTP/1.1 abc x", None),
            ("HTTP/11 200 OK", None),
            ("Status: 200\n", None),
            ("", None),
        ] {
            assert_eq!(parse_nph_status(output.as_bytes()), want, "{output:?}");
        }
    }
}
