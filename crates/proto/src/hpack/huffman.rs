//! The Huffman code of HPACK (RFC 7541, B). The code is canonical, so the lengths of its codes tell the codes.

use super::error::Undecodable;

/// The length in bits of the code of each byte, and of the end of a string.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,  5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,  6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The length of the longest code.
const LONGEST: usize = 30;
/// Bits of a code that are looked up at once. Longer codes are of bytes that heads rarely have.
const BITS: u32 = 9;
static CODES: Codes = Codes::from_lengths();

/// The codes, left-aligned in 32 bits.
struct Codes {
    /// Byte and length of the code that begins with these bits. The length 0 stands for a longer code.
    short: [(u8, u8); 1 << BITS],
    /// All bytes, by the length of their codes.
    bytes: [u8; 257],
    /// The end of the codes of this length or shorter ones.
    ends: [u64; LONGEST + 1],
    /// The number of codes that are shorter than this.
    shorter: [usize; LONGEST + 1],
}

impl Codes {
    #[allow(clippy::cast_possible_truncation)] // 0 to 255, and at most `BITS`
    const fn from_lengths() -> Self {
        let mut codes = Self {
            short: [(0, 0); 1 << BITS],
            bytes: [0; 257],
            ends: [0; LONGEST + 1],
            shorter: [0; LONGEST + 1],
        };
        let (mut code, mut known, mut len) = (0_u64, 0, 1);
        while len <= LONGEST {
            codes.shorter[len] = known;
            let mut byte = 0;
            while byte < 257 {
                if LENGTHS[byte] as usize == len {
                    codes.bytes[known] = byte as u8;
                    let mut same = 0;
                    while len <= BITS as usize && same < 1 << (BITS as usize - len) {
                        codes.short[(code >> (32 - BITS)) as usize + same] =
                            (byte as u8, len as u8);
                        same += 1;
                    }
                    (code, known) = (code + (1 << (32 - len)), known + 1);
                }
                byte += 1;
            }
            codes.ends[len] = code;
            len += 1;
        }
        codes
    }

    /// Returns the byte whose code `bits` begin with, and the length of that code. The end of a string is no byte.
    #[allow(clippy::cast_possible_truncation)] // 32 bits
    fn first_byte(&self, bits: u64) -> Result<(u8, u32), Undecodable> {
        let top = bits >> 32;
        let (byte, len) = self.short[(top >> (32 - BITS)) as usize];
        if len > 0 {
            return Ok((byte, len.into()));
        }
        let longer = BITS as usize + 1..LONGEST + 1;
        let len = longer.into_iter().find(|&len| top < self.ends[len]);
        let len = len.ok_or(Undecodable)?;
        let at = self.shorter[len] + ((top - self.ends[len - 1]) >> (32 - len)) as usize;
        if at == self.bytes.len() - 1 {
            return Err(Undecodable);
        }
        Ok((self.bytes[at], len as u32))
    }
}

/// Unpacks a string, and appends it to `text`.
pub(super) fn decode(string: &[u8], text: &mut Vec<u8>) -> Result<(), Undecodable> {
    text.reserve(string.len() * 8 / 5);
    let mut string = string.iter();
    // The next bits, left-aligned, and their number.
    let (mut bits, mut count) = (0_u64, 0);
    loop {
        while count <= 56
            && let Some(&byte) = string.next()
        {
            bits |= u64::from(byte) << (56 - count);
            count += 8;
        }
        // If fewer bits than a code are left, they are padding: less than a byte, all of them ones.
        if count < 8 && bits == !(u64::MAX >> count) {
            return Ok(());
        }
        let (byte, len) = CODES.first_byte(bits)?;
        if len > count {
            return Err(Undecodable);
        }
        text.push(byte);
        (bits, count) = (bits << len, count - len);
    }
}
