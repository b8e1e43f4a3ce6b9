//! Content codings, and the choice that a client prefers (RFC 9110, 12.5.3).

use crate::{Fields, fields::elements};

/// The content codings that galgo may have a representation in (8.4.1; RFC 7932, RFC 8878).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Coding {
    Brotli,
    Zstd,
    Gzip,
    Identity,
}

impl Coding {
    /// Every coding, the usually smallest first.
    pub const ALL: [Self; 4] = [Self::Brotli, Self::Zstd, Self::Gzip, Self::Identity];

    /// Returns the coding's name in Content-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Identity => "identity",
        }
    }

    /// Returns the coding called `name`; `x-gzip` is gzip (8.4.1.3).
    fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        let same = |c: &Self| name.eq_ignore_ascii_case(c.name().as_bytes());
        Self::ALL.into_iter().find(same)
    }
}

/// The codings that the Accept-Encoding fields of a request allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedCodings {
    /// Qualities in thousandths, in the order of [`Coding::ALL`].
    quality: [u16; 4],
}

impl AcceptedCodings {
    /// Reads the fields. Without a field, or with an empty field, only identity is accepted, because a
    /// client must ask for a coding. An invalid element is skipped. If two elements name a coding, the
    /// lower quality counts.
    pub fn from_fields(fields: &Fields) -> Self {
        let mut named: [Option<u16>; 4] = [None; 4];
        let mut star = None;
        let all = fields.all_values("accept-encoding").flat_map(elements);
        for (name, q) in all.filter_map(parse_element) {
            let slot = match Coding::from_name(name) {
                Some(coding) => &mut named[coding as usize],
                None if name == b"*" => &mut star,
                None => continue,
            };
            *slot = Some(slot.map_or(q, |before: u16| before.min(q)));
        }
        let mut quality = named.map(|q| q.or(star).unwrap_or(0));
        // Identity is acceptable unless it is excluded, yet any coding asked for by name comes first.
        let identity = Coding::Identity as usize;
        quality[identity] = named[identity].or(star).unwrap_or(1);
        Self { quality }
    }

    /// Returns the quality of `coding`, in thousandths; 0: not acceptable.
    pub fn quality(&self, coding: Coding) -> u16 {
        self.quality[coding as usize]
    }

    /// Returns the acceptable codings, best first; equals stand in the order of [`Coding::ALL`].
    pub fn ranked(&self) -> impl Iterator<Item = Coding> {
        let mut all = Coding::ALL;
        all.sort_by_key(|&c| std::cmp::Reverse(self.quality(c)));
        let quality = *self;
        all.into_iter().filter(move |&c| quality.quality(c) > 0)
    }
}

/// Reads `codings [ weight ]`; `None` if the element has another form.
fn parse_element(element: &[u8]) -> Option<(&[u8], u16)> {
    let mut halves = element.splitn(2, |&b| b == b';');
    let name = halves.next()?.trim_ascii();
    let q = match halves.next() {
        None => 1000,
        Some(weight) => match weight.trim_ascii() {
            [b'q' | b'Q', b'=', digits @ ..] => parse_qvalue(digits)?,
            _ => return None,
        },
    };
    Some((name, q))
}

/// Reads a qvalue (12.4.2): 0 to 1 with at most three digits after the point.
fn parse_qvalue(digits: &[u8]) -> Option<u16> {
    let (whole, fraction): (_, &[u8]) = match digits {
        [whole @ (b'0' | b'1')] => (whole, b""),
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut value = u16::from(whole - b'0');
    for i in 0..3 {
        let digit = fraction.get(i).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u16::from(digit - b'0');
    }
    (value <= 1000).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Coding::*, *};

    fn ranked(values: &[&str]) -> Vec<Coding> {
        let mut f = Fields::new();
        values.iter().for_each(|v| f.push("Accept-Encoding", v));
        AcceptedCodings::from_fields(&f).ranked().collect()
    }

    #[test]
    fn s12_5_3_accept_encoding() {
        for (value, want) in [
            ("", &[Identity][..]),
            ("gzip", &[Gzip, Identity]),
            ("GZip", &[Gzip, Identity]),
            ("x-gzip", &[Gzip, Identity]),
            ("compress, deflate", &[Identity]),
            ("gzip, deflate, br, zstd", &[Brotli, Zstd, Gzip, Identity]),
            ("gzip;q=1.0, br;q=0.5", &[Gzip, Brotli, Identity]),
            ("gzip;q=0.001", &[Gzip, Identity]),
            ("gzip;q=0, br", &[Brotli, Identity]),
            ("gzip;q=0.5, identity", &[Identity, Gzip]),
            ("gzip;q=0.5, identity;q=0.5", &[Gzip, Identity]),
            ("identity;q=0", &[]),
            ("br, identity;q=0", &[Brotli]),
            ("*", &[Brotli, Zstd, Gzip, Identity]),
            ("*;q=0", &[]),
            ("*;q=0, gzip", &[Gzip]),
            ("*;q=0, identity;q=0.1", &[Identity]),
            ("br;q=0, *;q=0.3", &[Zstd, Gzip, Identity]),
            ("gzip;q=0.2, *;q=0.1", &[Gzip, Brotli, Zstd, Identity]),
            (" gzip ; Q=0.7 ,\tbr ;\tq=0.8", &[Brotli, Gzip, Identity]),
            ("gzip, gzip;q=0", &[Identity]),
        ] {
            assert_eq!(ranked(&[value]), want, "{value}");
        }
        assert_eq!(ranked(&[]), [Identity]);
        assert_eq!(ranked(&["gzip;q=0.5", "br"]), [Brotli, Gzip, Identity]);
    }

    #[test]
    fn s12_4_2_a_weight_that_is_none_is_skipped() {
        for value in [
            "gzip;q=",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.0001",
            "gzip;q=-1",
            "gzip;q=.5",
            "gzip;q=0,5",
            "gzip;q= 1",
            "gzip;q=0.x",
            "gzip;level=9",
            "gzip;",
            "gzip br",
        ] {
            assert_eq!(ranked(&[value]).first(), Some(&Identity), "{value}");
        }
        assert_eq!(ranked(&["gzip;q=1."]), [Gzip, Identity]);
        assert_eq!(ranked(&["gzip;q=1.000"]), [Gzip, Identity]);
    }

    proptest! {
        #[test]
        fn any_bytes_at_all_are_survived(value: Vec<u8>) {
            let mut f = Fields::new();
            f.push("Accept-Encoding", value);
            let accepted = AcceptedCodings::from_fields(&f);
            let list: Vec<_> = accepted.ranked().collect();
            prop_assert!(list.iter().all(|&c| accepted.quality(c) > 0));
            prop_assert!(list.windows(2).all(|w| accepted.quality(w[0]) >= accepted.quality(w[1])));
        }
    }
}
