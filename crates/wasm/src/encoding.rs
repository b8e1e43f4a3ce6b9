//! Messages as bytes: numbers of eight bytes, little-endian, and texts after their length.

/// Appends numbers and texts to a message.
#[derive(Debug, Default)]
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Encoder {
    pub(crate) fn put_number(&mut self, n: u64) -> &mut Self {
        self.0.extend_from_slice(&n.to_le_bytes());
        self
    }

    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.put_number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Takes a message apart again. `None`: the message is shorter than it says.
#[derive(Debug)]
pub(crate) struct Decoder<'m>(pub(crate) &'m [u8]);

impl<'m> Decoder<'m> {
    pub(crate) fn take_number(&mut self) -> Option<u64> {
        let (n, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*n))
    }

    pub(crate) fn take_bytes(&mut self) -> Option<&'m [u8]> {
        let length = usize::try_from(self.take_number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn take_text(&mut self) -> Option<String> {
        String::from_utf8(self.take_bytes()?.to_vec()).ok()
    }
}
