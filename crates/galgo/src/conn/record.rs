//! FastCGI records and SCGI headers, as a server receives them.

use std::ops::Range;

use galgo_proto::Parsed;

pub(super) const HEADER: usize = 8;
pub(super) const BEGIN: u8 = 1;
pub(super) const ABORT: u8 = 2;
pub(super) const END: u8 = 3;
pub(super) const PARAMS: u8 = 4;
pub(super) const STDIN: u8 = 5;
pub(super) const STDOUT: u8 = 6;
pub(super) const DATA: u8 = 8;
pub(super) const GET_VALUES: u8 = 9;
pub(super) const GET_VALUES_RESULT: u8 = 10;
pub(super) const UNKNOWN_TYPE: u8 = 11;
pub(super) const RESPONDER: u16 = 1;
pub(super) const KEEP_CONN: u8 = 1;
pub(super) const COMPLETE: u8 = 0;
pub(super) const CANT_MPX: u8 = 1;
pub(super) const UNKNOWN_ROLE: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) id: u16,
    pub(super) content: u16,
    pub(super) padding: u8,
}

impl Header {
    pub(super) fn parse(buf: &[u8]) -> Result<Option<Self>, ()> {
        if buf.first().is_some_and(|&version| version != 1) {
            return Err(());
        }
        let Some(&[_, kind, a, b, c, d, padding, _]) = buf.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        Ok(Some(Self {
            kind,
            id: u16::from_be_bytes([a, b]),
            content: u16::from_be_bytes([c, d]),
            padding,
        }))
    }

    pub(super) fn bytes(self) -> [u8; HEADER] {
        let [a, b] = self.id.to_be_bytes();
        let [c, d] = self.content.to_be_bytes();
        [1, self.kind, a, b, c, d, self.padding, 0]
    }
}

pub(super) fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        id,
        // INVARIANT: what is answered here is a few bytes.
        content: u16::try_from(content.len()).unwrap_or_default(),
        padding: 0,
    };
    [&header.bytes(), content].concat()
}

/// The end of STDOUT is said by END_REQUEST's being there, but fronts like to see it.
pub(super) fn end(id: u16, app: u32, status: u8) -> Vec<u8> {
    let [a, b, c, d] = app.to_be_bytes();
    let mut out = Vec::new();
    if status == COMPLETE {
        out.extend(record(STDOUT, id, b""));
    }
    out.extend(record(END, id, &[a, b, c, d, status, 0, 0, 0]));
    out
}

pub(super) fn unknown(kind: u8) -> Vec<u8> {
    record(UNKNOWN_TYPE, 0, &[kind, 0, 0, 0, 0, 0, 0, 0])
}

pub(super) fn put_pair(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend([name.len(), value.len()].map(|n| u8::try_from(n).unwrap_or_default()));
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

pub(super) fn pairs(mut rest: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    fn length(rest: &mut &[u8]) -> Option<usize> {
        let (&first, more) = rest.split_first()?;
        if first < 0x80 {
            *rest = more;
            return Some(first.into());
        }
        let (&[a, b, c, d], more) = rest.split_first_chunk::<4>()?;
        *rest = more;
        usize::try_from(u32::from_be_bytes([a & 0x7f, b, c, d])).ok()
    }
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest)?, length(&mut rest)?);
        let (name, more) = rest.split_at_checked(name)?;
        let (value, more) = more.split_at_checked(value)?;
        rest = more;
        all.push((name, value));
    }
    Some(all)
}

/// Where the headers lie, and where the body begins. The error is a status.
pub(super) fn netstring(buf: &[u8], limit: usize) -> Result<Parsed<Range<usize>>, u16> {
    let digits = buf.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits > 7 || (digits > 1 && buf[0] == b'0') {
        return Err(400);
    }
    let Some(&colon) = buf.get(digits) else {
        return Ok(Parsed::Partial);
    };
    if colon != b':' || digits == 0 {
        return Err(400);
    }
    let n = buf[..digits]
        .iter()
        .fold(0, |n, d| n * 10 + usize::from(d - b'0'));
    if n > limit {
        return Err(431);
    }
    let headers = digits + 1..digits + 1 + n;
    match buf.get(headers.end) {
        None => Ok(Parsed::Partial),
        Some(b',') => Ok(Parsed::Complete(headers.clone(), headers.end + 1)),
        Some(_) => Err(400),
    }
}

pub(super) fn headers(bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut parts = bytes.strip_suffix(b"\0")?.split(|&b| b == 0);
    let mut all = Vec::new();
    while let Some(name) = parts.next() {
        all.push((name, parts.next()?));
    }
    let first = all.first().is_some_and(|(n, _)| *n == b"CONTENT_LENGTH");
    (first && all.contains(&(b"SCGI", b"1"))).then_some(all)
}
