//! Programs that write the whole HTTP response themselves (RFC 3875, 5: non-parsed header).

/// The status in the status line at the start of `output`, for the log: 100 to 599. `None` where the
/// output begins with something else, or has not come as far as the status yet. Nothing else is
/// checked: the bytes go to the client as they are.
pub fn status(output: &[u8]) -> Option<u16> {
    let rest = output.strip_prefix(b"HTTP/")?;
    let [major, b'.', minor, b' ', a, b, c, after, ..] = rest else {
        return None;
    };
    let digits = [major, minor, a, b, c].iter().all(|d| d.is_ascii_digit());
    if !digits || !matches!(after, b' ' | b'\r' | b'\n') {
        return None;
    }
    let status = [a, b, c]
        .iter()
        .fold(0, |n, &&d| n * 10 + u16::from(d - b'0'));
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
            assert_eq!(status(output.as_bytes()), want, "{output:?}");
        }
    }
}
