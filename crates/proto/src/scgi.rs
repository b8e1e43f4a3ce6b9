//! SCGI ("SCGI: A Simple Common Gateway Interface alternative", N. Schemenauer, 2008), both sides of it.
//! A request is a netstring of variables, followed by the body. The reply is that of a CGI program.

use crate::{Parsed, digits, vars::Sink};

/// Writes the variables of a request. CONTENT_LENGTH comes first and is always there, because the
/// protocol has no other end of a body.
#[derive(Debug)]
pub struct ScgiRequest {
    variables: Vec<u8>,
}

impl ScgiRequest {
    /// Makes a request with this many bytes of body.
    pub fn new(content_length: u64) -> Self {
        let mut request = Self {
            variables: Vec::with_capacity(1024),
        };
        request.push_variable(b"CONTENT_LENGTH", content_length.to_string().as_bytes());
        request.push_variable(b"SCGI", b"1");
        request
    }

    fn push_variable(&mut self, name: &[u8], value: &[u8]) {
        for part in [name, b"\0", value, b"\0"] {
            self.variables.extend_from_slice(part);
        }
    }

    /// Returns the netstring; the body follows it.
    pub fn finish(self) -> Vec<u8> {
        let mut out = self.variables.len().to_string().into_bytes();
        out.push(b':');
        out.extend_from_slice(&self.variables);
        out.push(b',');
        out
    }
}

impl Sink for ScgiRequest {
    fn put_variable(&mut self, name: &[u8], value: &[u8]) {
        // These two variables are already written, and must not come twice.
        if name != b"CONTENT_LENGTH" && name != b"SCGI" {
            self.push_variable(name, value);
        }
    }
}

/// The variables of a request that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variables<'b> {
    /// Bytes of body that follow, below 2^63.
    pub content_length: u64,
    /// All variables. NUL ends each name and each value.
    block: &'b [u8],
}

/// The variables are larger than the limit.
pub const TOO_LARGE: ScgiError = ScgiError("the variables are larger than the limit");

/// The reason why the bytes are no SCGI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScgiError(pub &'static str);

/// Reads the variables of a request, of at most `most` bytes, from the beginning of a connection. Only
/// the length is looked at before all of them have arrived.
///
/// # Errors
/// The bytes are no SCGI, or more than `most`.
pub fn parse_variables(buf: &[u8], most: usize) -> Result<Parsed<Variables<'_>>, ScgiError> {
    let Parsed::Complete(length, at) = parse_netstring_length(buf, most)? else {
        return Ok(Parsed::Partial);
    };
    let Some((&end, block)) = buf.get(at..=at + length).and_then(<[u8]>::split_last) else {
        return Ok(Parsed::Partial);
    };
    if end != b',' {
        return Err(ScgiError("the netstring does not end in a comma"));
    }
    let variables = Variables {
        content_length: check_variables(block)?,
        block,
    };
    Ok(Parsed::Complete(variables, at + length + 1))
}

/// Reads the length of the netstring. Also returns the position where the netstring begins.
fn parse_netstring_length(buf: &[u8], most: usize) -> Result<Parsed<usize>, ScgiError> {
    let mut length = 0_usize;
    for (at, &b) in buf.iter().enumerate() {
        match b {
            b':' if at > 0 => return Ok(Parsed::Complete(length, at + 1)),
            b'0'..=b'9' if at == 0 || length > 0 => {
                let digit = usize::from(b - b'0');
                length = length
                    .checked_mul(10)
                    .and_then(|n| n.checked_add(digit))
                    .filter(|&n| n <= most)
                    .ok_or(TOO_LARGE)?;
            }
            _ => return Err(ScgiError("no length of a netstring comes first")),
        }
    }
    Ok(Parsed::Partial)
}

/// Checks that every name has a value, CONTENT_LENGTH is the first, and SCGI is 1. Returns the length of
/// the body.
fn check_variables(block: &[u8]) -> Result<u64, ScgiError> {
    if block.last() != Some(&0) || !memchr::memchr_iter(0, block).count().is_multiple_of(2) {
        return Err(ScgiError("a variable has no value or no end"));
    }
    let mut pairs = ScgiPairs { rest: block };
    let length = match pairs.next() {
        Some((b"CONTENT_LENGTH", value)) => digits::parse_length(value),
        _ => None,
    };
    let length = length.ok_or(ScgiError("the first variable is not a CONTENT_LENGTH"))?;
    let mut scgi = pairs.filter(|(name, _)| *name == b"SCGI");
    match (scgi.next(), scgi.next()) {
        (Some((_, b"1")), None) => Ok(length),
        _ => Err(ScgiError("there is not one variable SCGI with the value 1")),
    }
}

impl<'b> Variables<'b> {
    /// Returns names and values, in their order.
    pub fn iter(&self) -> ScgiPairs<'b> {
        ScgiPairs { rest: self.block }
    }
}

/// Names and values.
#[derive(Debug, Clone)]
pub struct ScgiPairs<'b> {
    rest: &'b [u8],
}

impl<'b> ScgiPairs<'b> {
    fn next_string(&mut self) -> Option<&'b [u8]> {
        let end = memchr::memchr(0, self.rest)?;
        let word = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(word)
    }
}

impl<'b> Iterator for ScgiPairs<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.next_string()?, self.next_string()?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of the specification.
    const DEEP: &[u8] = b"70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,What is the answer to life?";

    #[test]
    fn the_example_of_the_specification_is_read_and_written() {
        let Ok(Parsed::Complete(variables, used)) = parse_variables(DEEP, 100) else {
            panic!("{:?}", parse_variables(DEEP, 100));
        };
        assert_eq!(variables.content_length, 27);
        assert_eq!(&DEEP[used..], b"What is the answer to life?");
        let mut request = ScgiRequest::new(27);
        for (name, value) in variables.iter() {
            request.put_variable(name, value);
        }
        assert_eq!(request.finish(), DEEP[..used]);
    }

    #[test]
    fn a_cut_is_partial_everywhere() {
        for cut in 0..74 {
            assert_eq!(
                parse_variables(&DEEP[..cut], 100),
                Ok(Parsed::Partial),
                "{cut}"
            );
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let wrap = |block: &str| format!("{}:{block},", block.len()).into_bytes();
        let refused: &[&[u8]] = &[
            b":,",
            b"x",
            b"07:",
            b"00:",
            b" 5:",
            b"+5:",
            b"101:",
            b"99999999999999999999:",
            b"0:,",
            b"3:abc;",
            b"GET / HTTP/1.1",
            &wrap("SCGI\x001\0CONTENT_LENGTH\x000\0"),
            &wrap("CONTENT_LENGTH\x000\0"),
            &wrap("CONTENT_LENGTH\x000\0SCGI\x002\0"),
            &wrap("CONTENT_LENGTH\x000\0SCGI\x001\0SCGI\x001\0"),
            &wrap("CONTENT_LENGTH\0+1\0SCGI\x001\0"),
            &wrap("CONTENT_LENGTH\0\0SCGI\x001\0"),
            &wrap("CONTENT_LENGTH\x009223372036854775808\0SCGI\x001\0"),
            &wrap("CONTENT_LENGTH\x000\0SCGI\x001\0A\0"),
            &wrap("CONTENT_LENGTH\x000\0SCGI\x001"),
        ];
        for bytes in refused {
            let words = String::from_utf8_lossy(bytes);
            assert!(
                parse_variables(bytes, 100).is_err(),
                "{words:?}: {:?}",
                parse_variables(bytes, 100)
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            pairs in prop::collection::vec(("[A-Z_]{1,9}", "[^\0]{0,200}"), 0..20),
            length in 0..1_u64 << 63,
            cut in 0..4000_usize,
        ) {
            let mut request = ScgiRequest::new(length);
            for (name, value) in &pairs {
                request.put_variable(name.as_bytes(), value.as_bytes());
            }
            let bytes = request.finish();
            prop_assert!(matches!(parse_variables(&bytes[..cut.min(bytes.len() - 1)], 1 << 20), Ok(Parsed::Partial)));
            let Ok(Parsed::Complete(variables, used)) = parse_variables(&bytes, 1 << 20) else {
                return Err(TestCaseError::fail("not read"));
            };
            prop_assert_eq!((used, variables.content_length), (bytes.len(), length));
            let said = |(n, _): &&(String, String)| n != "SCGI" && n != "CONTENT_LENGTH";
            let want: Vec<_> = pairs.iter().filter(said).map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
            prop_assert_eq!(variables.iter().skip(2).collect::<Vec<_>>(), want);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), most in 0..200_usize) {
            if let Ok(Parsed::Complete(variables, used)) = parse_variables(&bytes, most) {
                prop_assert!(used <= bytes.len());
                prop_assert!(variables.iter().count() >= 2);
            }
        }
    }
}
