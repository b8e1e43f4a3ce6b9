//! Header fields in the order they came, in one allocation (RFC 9110, 5).

/// A list of header fields. Names keep their letter case; comparisons ignore it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    /// Each field: the lengths of its name and of its value ([`LEN`] bytes each), then both.
    bytes: Vec<u8>,
    len: usize,
}

/// Bytes that most lists fit in.
const USUAL: usize = 384;
/// Bytes of a length.
const LEN: usize = size_of::<usize>();

impl Fields {
    /// Makes an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes an empty list with room for `fields` fields of `bytes` bytes in all.
    pub fn with_capacity(fields: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(fields * 2 * LEN + bytes),
            len: 0,
        }
    }

    /// Appends a field. The caller has checked that name and value are valid.
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        let room = 2 * LEN + name.len() + value.len();
        // Most lists are short, and growing step by step costs more than the room.
        self.bytes.reserve(match self.bytes.capacity() {
            0 => room.max(USUAL),
            _ => room,
        });
        self.bytes.extend_from_slice(&name.len().to_ne_bytes());
        self.bytes.extend_from_slice(&value.len().to_ne_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.len += 1;
    }

    /// Returns all fields as (name, value), in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (name, value, behind) = split_field(rest)?;
            rest = behind;
            Some((name, value))
        })
    }

    /// Returns the values of every field called `name`, in order.
    pub fn all_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, v)| v)
    }

    /// Returns the value of the first field called `name`.
    pub fn first_value<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.all_values(name).next()
    }

    /// Returns whether a field called `name` is there.
    pub fn has_field(&self, name: &str) -> bool {
        self.iter()
            .any(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
    }

    /// Returns whether a field with any of these names is there.
    pub fn has_any(&self, names: &[&str]) -> bool {
        self.iter().any(|(n, _)| is_one_of(n, names))
    }

    /// Removes the fields with these names.
    pub fn remove(&mut self, names: &[&str]) {
        self.retain(|n, _| !is_one_of(n, names));
    }

    /// Keeps only the fields for which `keep(name, value)` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let (mut from, mut to) = (0, 0);
        while let Some((name, value, behind)) = split_field(&self.bytes[from..]) {
            let next = self.bytes.len() - behind.len();
            if keep(name, value) {
                self.bytes.copy_within(from..next, to);
                to += next - from;
            } else {
                self.len -= 1;
            }
            from = next;
        }
        self.bytes.truncate(to);
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of memory that the list takes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Splits the first field of `bytes` from the rest.
fn split_field(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, behind) = bytes.split_first_chunk::<LEN>()?;
    let (value, behind) = behind.split_first_chunk::<LEN>()?;
    let (name, behind) = behind.split_at_checked(usize::from_ne_bytes(*name))?;
    let (value, behind) = behind.split_at_checked(usize::from_ne_bytes(*value))?;
    Some((name, value, behind))
}

/// Returns whether the name of a field is in `names`, in any letter case.
pub fn is_one_of(name: &[u8], names: &[impl AsRef<[u8]>]) -> bool {
    names.iter().any(|n| name.eq_ignore_ascii_case(n.as_ref()))
}

/// Returns whether any comma-separated element of the fields called `name` equals `token`, in any
/// letter case.
pub fn lists_token(fields: &Fields, name: &str, token: &str) -> bool {
    let is = |e: &[u8]| e.eq_ignore_ascii_case(token.as_bytes());
    fields.all_values(name).any(|v| elements(v).any(is))
}

/// Returns the elements of a comma-separated list (RFC 9110, 5.6.1), empty ones too.
pub(crate) fn elements(list: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    list.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

/// Returns whether `b` may stand in a token (RFC 9110, 5.6.2).
pub fn is_token(b: u8) -> bool {
    TOKEN[b as usize]
}

/// Returns whether `b` may stand in a field value: anything but control bytes, tab allowed.
pub(crate) fn is_text(b: u8) -> bool {
    b == b'\t' || !b.is_ascii_control()
}

/// A table, because every byte of a name or method is looked up.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0u8;
    while b < 128 {
        table[b as usize] = b.is_ascii_alphanumeric();
        b += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < marks.len() {
        table[marks[i] as usize] = true;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_ignores_case() {
        let mut f = Fields::new();
        f.push("Set-Cookie", "a=1");
        f.push("X", "");
        f.push("set-cookie", "b=2");
        assert_eq!(
            f.all_values("SET-COOKIE").collect::<Vec<_>>(),
            [b"a=1", b"b=2"]
        );
        assert_eq!(f.first_value("x"), Some(&b""[..]));
        f.push("Y", "c");
        f.retain(|n, _| n != b"X");
        assert_eq!(f.len(), 3);
        assert!(!f.has_field("x"));
        assert_eq!(f.first_value("y"), Some(&b"c"[..]));
        f.retain(|n, _| n != b"Y");
        let mut same = Fields::with_capacity(2, 64);
        same.push("Set-Cookie", "a=1");
        same.push("set-cookie", "b=2");
        assert_eq!(f, same);
    }

    #[test]
    fn s5_6_2_tokens() {
        let tokens: Vec<u8> = (0..=255).filter(|&b| is_token(b)).collect();
        assert_eq!(
            tokens,
            b"!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~"
        );
    }

    #[test]
    fn lists_finds_an_element() {
        let mut f = Fields::new();
        f.push("Connection", "keep-alive, Close");
        assert!(lists_token(&f, "connection", "close"));
        assert!(!lists_token(&f, "connection", "clos"));
    }
}
