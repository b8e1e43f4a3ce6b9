//! Range requests (RFC 9110, 14).

use std::ops::Range;

use crate::{
    Fields,
    cond::{self, Validators},
    fields::elements,
    h1::Method,
};

/// The part of a representation to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// The whole representation: no Range field, an invalid Range field, or an If-Range that does
    /// not match.
    Whole,
    /// 206 with these parts, in the requested order. No part is empty, and there are at most as many
    /// as the limit.
    Partial(Vec<Range<u64>>),
    /// 416.
    Unsatisfiable,
}

/// Evaluates Range and If-Range for a representation of `size` bytes. Three cases count as
/// [`Ranges::Whole`]: more than `max` ranges, overlapping ranges that together exceed the whole, and
/// an invalid field. A server may ignore any Range (14.2).
pub fn evaluate(
    method: &Method,
    fields: &Fields,
    current: Validators<'_>,
    size: u64,
    max: usize,
) -> Ranges {
    // 14.2: GET is the only method for which ranges are defined.
    if *method != Method::Get {
        return Ranges::Whole;
    }
    let mut values = fields.all_values("range");
    let (Some(value), None) = (values.next(), values.next()) else {
        return Ranges::Whole;
    };
    match parse_specs(value, max) {
        Some(specs) if cond::if_range_allows(fields, current) => select_parts(&specs, size),
        _ => Ranges::Whole,
    }
}

/// A range-spec (14.1.1). Numbers beyond `u64` become its largest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spec {
    /// `first-` and `first-last`; the last position is included.
    Int { first: u64, last: u64 },
    /// `-length`: that many bytes from the end.
    Suffix(u64),
}

/// Parses the range-specs of a field; `None` for another unit, an invalid form, or too many.
fn parse_specs(value: &[u8], max: usize) -> Option<Vec<Spec>> {
    let equals = value.iter().position(|&b| b == b'=')?;
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for element in elements(set) {
        // 5.6.1.2: empty elements of a list are skipped.
        if element.is_empty() {
            continue;
        }
        if specs.len() == max {
            return None;
        }
        specs.push(parse_spec(element)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn parse_spec(element: &[u8]) -> Option<Spec> {
    let dash = element.iter().position(|&b| b == b'-')?;
    match (&element[..dash], &element[dash + 1..]) {
        (b"", length) => Some(Spec::Suffix(parse_saturated(length)?)),
        (first, b"") => Some(Spec::Int {
            first: parse_saturated(first)?,
            last: u64::MAX,
        }),
        (first, last) => {
            let (first, last) = (parse_saturated(first)?, parse_saturated(last)?);
            (first <= last).then_some(Spec::Int { first, last })
        }
    }
}

/// Reads 1*DIGIT, saturated.
fn parse_saturated(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0u64, |n, &d| {
        n.saturating_mul(10).saturating_add(u64::from(d - b'0'))
    }))
}

/// Returns the parts of `specs` that a representation of `size` bytes satisfies (14.1.2).
fn select_parts(specs: &[Spec], size: u64) -> Ranges {
    let mut satisfied = false;
    let mut parts = Vec::with_capacity(specs.len());
    // Wider than a size: a sum saturated at the largest size would look like the whole.
    let mut total = 0u128;
    for spec in specs {
        let part = match *spec {
            Spec::Int { first, last } if first < size => first..last.saturating_add(1).min(size),
            Spec::Suffix(length) if length > 0 => size.saturating_sub(length)..size,
            _ => continue,
        };
        satisfied = true;
        // A suffix of nothing is satisfiable, yet Content-Range cannot say it.
        if part.is_empty() {
            continue;
        }
        total += u128::from(part.end - part.start);
        parts.push(part);
    }
    match (satisfied, parts.is_empty() || total > u128::from(size)) {
        (false, _) => Ranges::Unsatisfiable,
        (true, true) => Ranges::Whole,
        (true, false) => Ranges::Partial(parts),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        Ranges::{Unsatisfiable, Whole},
        *,
    };

    const CURRENT: Validators<'_> = Validators {
        etag: Some("\"a\""),
        modified: None,
    };

    fn ask(pairs: &[(&str, &str)], size: u64, max: usize) -> Ranges {
        let mut f = Fields::new();
        pairs.iter().for_each(|(n, v)| f.push(n, v));
        evaluate(&Method::Get, &f, CURRENT, size, max)
    }

    fn range(value: &str, size: u64) -> Ranges {
        ask(&[("Range", value)], size, 16)
    }

    fn parts(list: &[(u64, u64)]) -> Ranges {
        Ranges::Partial(list.iter().map(|&(a, b)| a..b).collect())
    }

    #[test]
    fn s14_1_2_byte_ranges() {
        for (value, want) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=0-499", parts(&[(0, 500)])),
            ("bytes=500-999", parts(&[(500, 1000)])),
            ("bytes=9500-", parts(&[(9500, 10_000)])),
            ("bytes=-500", parts(&[(9500, 10_000)])),
            ("bytes=-20000", parts(&[(0, 10_000)])),
            ("bytes=0-", parts(&[(0, 10_000)])),
            ("bytes=9999-9999", parts(&[(9999, 10_000)])),
            ("bytes=9999-20000", parts(&[(9999, 10_000)])),
            ("bytes=0-0,-1", parts(&[(0, 1), (9999, 10_000)])),
            ("bytes=-1,0-0", parts(&[(9999, 10_000), (0, 1)])),
            ("BYTES=0-0", parts(&[(0, 1)])),
            ("bytes= 0-1 ,\t, 4-5 ", parts(&[(0, 2), (4, 6)])),
            ("bytes=007-8", parts(&[(7, 9)])),
            ("bytes=0-0,0-0", parts(&[(0, 1), (0, 1)])),
        ] {
            assert_eq!(range(value, 10_000), want, "{value}");
        }
    }

    #[test]
    fn s14_1_2_unsatisfiable_ranges_are_left_out() {
        for (value, want) in [
            ("bytes=10000-", Unsatisfiable),
            ("bytes=10000-10001", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=-0,10000-", Unsatisfiable),
            ("bytes=10000-,5-5", parts(&[(5, 6)])),
        ] {
            assert_eq!(range(value, 10_000), want, "{value}");
        }
    }

    #[test]
    fn s14_2_what_is_not_valid_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=0",
            "bytes=2-1",
            "bytes=0-1,2-1",
            "bytes=0-1-2",
            "bytes=--1",
            "bytes=+0-1",
            "bytes=0 - 1",
            "bytes=0-1;2-3",
            "bytes=0x0-1",
            "bytes =0-1",
            "bytes:0-1",
            "lines=0-1",
            "0-1",
        ] {
            assert_eq!(range(value, 10_000), Whole, "{value}");
        }
        let twice = [("Range", "bytes=0-0"), ("Range", "bytes=1-1")];
        assert_eq!(ask(&twice, 10, 16), Whole);
    }

    #[test]
    fn numbers_beyond_u64_saturate() {
        let huge = "99999999999999999999999";
        assert_eq!(range(&format!("bytes={huge}-"), 10), Unsatisfiable);
        assert_eq!(range(&format!("bytes={huge}-{huge}"), 10), Unsatisfiable);
        assert_eq!(range(&format!("bytes=3-{huge}"), 10), parts(&[(3, 10)]));
        assert_eq!(range(&format!("bytes=-{huge}"), 10), parts(&[(0, 10)]));
        assert_eq!(range(&format!("bytes={huge}-1"), 10), Whole);
        let all = parts(&[(0, u64::MAX)]);
        assert_eq!(range("bytes=0-18446744073709551615", u64::MAX), all);
    }

    #[test]
    fn s14_1_2_nothing_of_an_empty_representation() {
        assert_eq!(range("bytes=0-", 0), Unsatisfiable);
        assert_eq!(range("bytes=0-0", 0), Unsatisfiable);
        assert_eq!(range("bytes=-0", 0), Unsatisfiable);
        assert_eq!(range("bytes=-5", 0), Whole);
    }

    #[test]
    fn s14_2_too_many_or_more_than_the_whole_is_the_whole() {
        let f = |v: &str, max| ask(&[("Range", v)], 100, max);
        assert_eq!(f("bytes=0-0,2-2", 2), parts(&[(0, 1), (2, 3)]));
        assert_eq!(f("bytes=0-0,2-2,4-4", 2), Whole);
        assert_eq!(f("bytes=0-0,2-2,", 2), parts(&[(0, 1), (2, 3)]));
        assert_eq!(f("bytes=0-49,50-99", 2), parts(&[(0, 50), (50, 100)]));
        assert_eq!(f("bytes=0-50,50-99", 2), Whole);
        assert_eq!(f("bytes=0-,0-", 2), Whole);
    }

    #[test]
    fn s14_2_only_for_get() {
        let mut f = Fields::new();
        f.push("Range", "bytes=0-0");
        for m in [Method::Head, Method::Post, Method::Other("PUT".into())] {
            assert_eq!(evaluate(&m, &f, CURRENT, 10, 16), Whole, "{m:?}");
        }
    }

    #[test]
    fn s13_1_5_if_range_decides_before_416() {
        let f = |range, if_range| ask(&[("Range", range), ("If-Range", if_range)], 10, 16);
        assert_eq!(f("bytes=0-0", "\"a\""), parts(&[(0, 1)]));
        assert_eq!(f("bytes=10-", "\"a\""), Unsatisfiable);
        assert_eq!(f("bytes=0-0", "\"b\""), Whole);
        assert_eq!(f("bytes=10-", "\"b\""), Whole);
        assert_eq!(f("bytes=0-0", "W/\"a\""), Whole);
    }

    proptest! {
        #[test]
        fn parts_are_within_the_representation_and_never_empty(
            text in "bytes=([0-9]{0,20}-[0-9]{0,20},? ?){1,6}", size in prop_oneof![0..40u64, any::<u64>()], max in 0..6usize,
        ) {
            if let Ranges::Partial(list) = ask(&[("Range", &text)], size, max) {
                prop_assert!(!list.is_empty() && list.len() <= max);
                let mut total = 0;
                for part in list {
                    prop_assert!(part.start < part.end && part.end <= size);
                    total += part.end - part.start;
                }
                prop_assert!(total <= size);
            }
        }

        #[test]
        fn any_bytes_at_all_are_survived(value: Vec<u8>, size: u64) {
            let mut f = Fields::new();
            f.push("Range", [b"bytes=", &value[..]].concat());
            f.push("If-Range", &value);
            f.push("If-Match", &value);
            let again = f.clone();
            let got = evaluate(&Method::Get, &f, CURRENT, size, 16);
            if let Ranges::Partial(list) = &got {
                prop_assert!(list.iter().all(|part| part.start < part.end && part.end <= size));
            }
            // No function keeps state, or changes its input.
            prop_assert_eq!(evaluate(&Method::Get, &again, CURRENT, size, 16), got);
            let met = cond::evaluate(&Method::Get, &f, Some(CURRENT));
            prop_assert_eq!(cond::evaluate(&Method::Get, &again, Some(CURRENT)), met);
        }

        #[test]
        fn a_range_within_is_that_range(size in 1..u64::MAX, a: u64, b: u64) {
            let (a, b) = ((a % size).min(b % size), (a % size).max(b % size));
            prop_assert_eq!(range(&format!("bytes={a}-{b}"), size), parts(&[(a, b + 1)]));
        }
    }

    #[test]
    fn s15_3_7_more_than_the_largest_size_is_the_whole() {
        let mut fields = Fields::new();
        fields.push("Range", "bytes=0-59,20-");
        let got = evaluate(&Method::Get, &fields, CURRENT, u64::MAX, 8);
        assert_eq!(got, Whole);
    }
}
