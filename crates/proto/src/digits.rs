//! Conversion of numbers and digits.

/// Number of digits of the largest `u64`.
pub const DIGITS: usize = 20;

/// Writes a number as text. `write!` takes four times the instructions.
pub fn write_decimal(mut n: u64, digits: &mut [u8; DIGITS]) -> &[u8] {
    let mut first = DIGITS;
    loop {
        first -= 1;
        digits[first] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &digits[first..];
        }
    }
}

/// Reads a number from digits alone, if a `u64` holds it: 1*DIGIT, without the sign that `parse` takes.
pub(crate) fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// Reads a [`parse_number`] below 2^63: a length that is a file offset everywhere.
pub(crate) fn parse_length(digits: &[u8]) -> Option<u64> {
    parse_number(digits).filter(|&n| n < 1 << 63)
}

/// Returns the value of a hexadecimal digit.
pub(crate) fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Returns the byte of a percent-encoding from the two hexadecimal digits after the `%`, with which `text`
/// begins.
pub(crate) fn parse_percent(text: &[u8]) -> Option<u8> {
    let &[high, low, ..] = text else {
        return None;
    };
    Some(hex_value(high)? << 4 | hex_value(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_display_has_them() {
        for n in [0, 7, 10, 200, 65_535, 1_000_000, u64::MAX] {
            assert_eq!(write_decimal(n, &mut [0; DIGITS]), n.to_string().as_bytes());
        }
    }
}
