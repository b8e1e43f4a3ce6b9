//! Conditional requests (RFC 9110, 13).

use std::time::{Duration, SystemTime};

use crate::{Fields, h1::Method};

/// The fields by which a client asks for a part of a representation, or for it only under a condition.
pub const FIELDS: [&str; 6] = [
    "range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
    "if-range",
];

/// The known validators of the selected representation.
#[derive(Debug, Clone, Copy)]
pub struct Validators<'a> {
    /// The entity tag, quotes and `W/` included.
    pub etag: Option<&'a str>,
    /// Last-Modified; a part of a second is ignored.
    pub modified: Option<SystemTime>,
}

/// The result of a request's preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CondOutcome {
    /// Answer as if there were no preconditions.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since in the order of RFC 9110,
/// 13.2.2. `None`: there is no current representation.
///
/// A list of entity tags is read up to the first element that is no tag. A date that is invalid or comes
/// twice is ignored, as 13.1.3 and 13.1.4 want.
pub fn evaluate(method: &Method, fields: &Fields, current: Option<Validators<'_>>) -> CondOutcome {
    if fields.has_field("if-match") {
        if !any_tag_matches(fields, "if-match", current, strong_eq) {
            return CondOutcome::Failed;
        }
    } else if newer_than(fields, "if-unmodified-since", current) == Some(true) {
        return CondOutcome::Failed;
    }
    let reads = matches!(method, Method::Get | Method::Head);
    if fields.has_field("if-none-match") {
        return match (
            any_tag_matches(fields, "if-none-match", current, weak_eq),
            reads,
        ) {
            (false, _) => CondOutcome::Proceed,
            (true, true) => CondOutcome::NotModified,
            (true, false) => CondOutcome::Failed,
        };
    }
    if reads && newer_than(fields, "if-modified-since", current) == Some(false) {
        return CondOutcome::NotModified;
    }
    CondOutcome::Proceed
}

/// Returns whether If-Range, if it is there, allows a part to be sent (RFC 9110, 13.1.5).
///
/// A date counts only if the entity tag, if there is one, is strong. A weak tag says that the
/// representation may still change within the second that the date names (8.8.2.2).
pub(crate) fn if_range_allows(fields: &Fields, current: Validators<'_>) -> bool {
    let mut values = fields.all_values("if-range");
    let Some(value) = values.next() else {
        return true;
    };
    if values.next().is_some() {
        return false;
    }
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        let (tag, rest) = split_tag(value).unwrap_or((value, b"?"));
        return rest.is_empty() && current.etag.is_some_and(|e| strong_eq(tag, e.as_bytes()));
    }
    let weak = current.etag.is_some_and(|e| e.starts_with("W/"));
    !weak
        && parse_date(value).is_some_and(|d| {
            current
                .modified
                .is_some_and(|m| whole_seconds(m) == whole_seconds(d))
        })
}

/// Returns whether a tag in the fields called `name` equals the current tag, or is `*` while there is a
/// current representation.
fn any_tag_matches(
    fields: &Fields,
    name: &str,
    current: Option<Validators<'_>>,
    eq: fn(&[u8], &[u8]) -> bool,
) -> bool {
    let Some(current) = current else {
        return false;
    };
    let star = |v: &[u8]| v.trim_ascii() == b"*";
    if fields.all_values(name).any(star) {
        return fields.all_values(name).count() == 1;
    }
    let Some(etag) = current.etag else {
        return false;
    };
    fields
        .all_values(name)
        .any(|v| entity_tags(v).any(|t| eq(t, etag.as_bytes())))
}

/// Returns the entity tags of a list (5.6.1), up to the first element that is no tag. Tags may hold
/// commas.
fn entity_tags(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', rest @ ..] = list {
            list = rest;
        }
        let (tag, rest) = split_tag(list)?;
        let rest = rest.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
        list = rest;
        Some(tag)
    })
}

/// Splits an entity tag, `W/` and quotes included, from the front (8.8.3).
fn split_tag(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let open = if input.starts_with(b"W/") { 2 } else { 0 };
    let opaque = input[open..].strip_prefix(b"\"")?;
    let is_etagc = |b: u8| b == 0x21 || (0x23..=0x7e).contains(&b) || b >= 0x80;
    let len = opaque.iter().position(|&b| !is_etagc(b))?;
    (opaque[len] == b'"').then(|| input.split_at(open + 1 + len + 1))
}

/// Compares strongly (8.8.3.2): both tags are strong, and equal.
fn strong_eq(a: &[u8], b: &[u8]) -> bool {
    a == b && !a.starts_with(b"W/")
}

/// Compares weakly (8.8.3.2): the tags are equal, whether weak or not.
fn weak_eq(a: &[u8], b: &[u8]) -> bool {
    let opaque = |t: &'_ [u8]| if t.starts_with(b"W/") { 2 } else { 0 };
    a[opaque(a)..] == b[opaque(b)..]
}

/// Returns whether the representation was modified after the date in the field called `name`. `None` if
/// the field is to be ignored: it is absent, invalid or doubled, or there is no date to compare it with.
fn newer_than(fields: &Fields, name: &str, current: Option<Validators<'_>>) -> Option<bool> {
    let mut values = fields.all_values(name);
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let modified = current?.modified?;
    Some(whole_seconds(modified) > whole_seconds(parse_date(value)?))
}

const WEEK: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// Reads an HTTP-date (5.6.7) with any day of the week. Apache and nginx do not check the day either.
pub fn parse_date(value: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let parse = |text: &str| httpdate::parse_http_date(text).ok();
    parse(text).or_else(|| {
        let (named, rest) = text.split_at(text.find([',', ' '])?);
        let in_form = |day: &'static str| if named.len() == 3 { &day[..3] } else { day };
        WEEK.map(in_form).contains(&named).then_some(())?;
        WEEK.iter()
            .find_map(|day| parse(&[in_form(day), rest].concat()))
    })
}

/// Returns the time in whole seconds, because no HTTP-date can say parts of a second.
fn whole_seconds(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    Duration::from_secs(since.unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests {
    use super::{CondOutcome::*, *};

    const OLD: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn modified() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_900)
    }

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        let mut f = Fields::new();
        pairs.iter().for_each(|(n, v)| f.push(n, v));
        f
    }

    fn ask(method: Method, etag: &str, pairs: &[(&str, &str)]) -> CondOutcome {
        let current = Validators {
            etag: (!etag.is_empty()).then_some(etag),
            modified: Some(modified()),
        };
        evaluate(&method, &fields(pairs), Some(current))
    }

    #[test]
    fn s13_1_1_if_match_compares_strongly() {
        for (etag, value, want) in [
            ("\"a\"", "\"a\"", Proceed),
            ("\"a\"", "\"b\", \"a\"", Proceed),
            ("\"a\"", "\"b\"", Failed),
            ("\"a\"", "W/\"a\"", Failed),
            ("W/\"a\"", "W/\"a\"", Failed),
            ("W/\"a\"", "\"a\"", Failed),
            ("\"a\"", "*", Proceed),
            ("W/\"a\"", "*", Proceed),
            ("", "*", Proceed),
            ("", "\"a\"", Failed),
            ("\"a\"", "a", Failed),
            ("\"a\"", "", Failed),
            ("\"a\"", "*, \"a\"", Failed),
        ] {
            let got = ask(Method::Get, etag, &[("If-Match", value)]);
            assert_eq!(got, want, "{etag} {value}");
        }
    }

    #[test]
    fn s13_1_2_if_none_match_compares_weakly() {
        for (etag, value, want) in [
            ("\"a\"", "\"a\"", NotModified),
            ("\"a\"", "W/\"a\"", NotModified),
            ("W/\"a\"", "\"a\"", NotModified),
            ("\"a\"", "\"b\"", Proceed),
            ("\"a\"", "\"b\" ,, ,W/\"a\"", NotModified),
            ("\"a,b\"", "\"x\",\"a,b\"", NotModified),
            ("\"a\"", "\"a,b\"", Proceed),
            ("\"a\"", "a", Proceed),
            ("\"a\"", "w/\"a\"", Proceed),
            ("\"a\"", "\"a", Proceed),
            ("\"a\"", "\"a\"x", Proceed),
            ("\"a\"", "x, \"a\"", Proceed),
            ("\"\"", "\"\"", NotModified),
            ("\"a\"", " * ", NotModified),
            ("", "*", NotModified),
            ("", "\"a\"", Proceed),
        ] {
            let got = ask(Method::Get, etag, &[("if-none-match", value)]);
            assert_eq!(got, want, "{etag} {value}");
        }
    }

    #[test]
    fn s13_1_2_lists_over_several_fields_are_one_list() {
        let two = [("If-None-Match", "\"b\""), ("If-None-Match", "\"a\"")];
        assert_eq!(ask(Method::Get, "\"a\"", &two), NotModified);
        let star = [("If-None-Match", "*"), ("If-None-Match", "\"b\"")];
        assert_eq!(ask(Method::Get, "\"a\"", &star), Proceed);
    }

    #[test]
    fn s13_1_2_a_match_fails_a_method_that_changes_things() {
        let f = [("If-None-Match", "\"a\"")];
        assert_eq!(ask(Method::Head, "\"a\"", &f), NotModified);
        assert_eq!(ask(Method::Post, "\"a\"", &f), Failed);
        assert_eq!(ask(Method::Other("PUT".into()), "\"a\"", &f), Failed);
    }

    #[test]
    fn s13_1_3_if_modified_since() {
        for (method, value, want) in [
            (Method::Get, OLD, Proceed),
            (Method::Get, SAME, NotModified),
            (Method::Head, SAME, NotModified),
            (Method::Get, NEW, NotModified),
            (Method::Post, NEW, Proceed),
            (Method::Other("get".into()), NEW, Proceed),
            (Method::Get, "Sunday, 06-Nov-94 08:49:37 GMT", NotModified),
            (Method::Get, "Sun Nov  6 08:49:37 1994", NotModified),
            (Method::Get, "yesterday", Proceed),
            (Method::Get, "", Proceed),
            (Method::Get, "Sun, 31 Feb 2094 08:49:37 GMT", Proceed),
            (Method::Get, "784111778", Proceed),
            // That day was a Sunday.
            (Method::Get, "Mon, 06 Nov 1994 08:49:37 GMT", NotModified),
            (Method::Get, "Mon, 06 Nov 1994 08:49:36 GMT", Proceed),
            (Method::Get, "Friday, 06-Nov-94 08:49:37 GMT", NotModified),
            (Method::Get, "Tue Nov  6 08:49:37 1994", NotModified),
            (Method::Get, "Moo, 06 Nov 1994 08:49:37 GMT", Proceed),
            (Method::Get, "Monday, 06 Nov 1994 08:49:37 GMT", Proceed),
            (Method::Get, "Mon", Proceed),
            (Method::Get, ", 06 Nov 1994 08:49:37 GMT", Proceed),
        ] {
            let got = ask(method.clone(), "\"a\"", &[("If-Modified-Since", value)]);
            assert_eq!(got, want, "{method:?} {value}");
        }
        let twice = [("If-Modified-Since", NEW), ("If-Modified-Since", NEW)];
        assert_eq!(ask(Method::Get, "\"a\"", &twice), Proceed);
    }

    #[test]
    fn s13_1_4_if_unmodified_since() {
        for (value, want) in [
            (OLD, Failed),
            (SAME, Proceed),
            (NEW, Proceed),
            ("never", Proceed),
        ] {
            let f = [("If-Unmodified-Since", value)];
            assert_eq!(ask(Method::Get, "\"a\"", &f), want, "{value}");
            assert_eq!(ask(Method::Post, "\"a\"", &f), want, "{value}");
        }
    }

    #[test]
    fn s13_2_2_order() {
        for (pairs, want) in [
            // If-Match decides, If-Unmodified-Since is not looked at.
            (
                &[("If-Match", "\"a\""), ("If-Unmodified-Since", OLD)][..],
                Proceed,
            ),
            (
                &[("If-Match", "\"b\""), ("If-Unmodified-Since", NEW)],
                Failed,
            ),
            // Both halves are evaluated; the first failure wins.
            (
                &[("If-None-Match", "\"a\""), ("If-Match", "\"a\"")],
                NotModified,
            ),
            (&[("If-None-Match", "\"a\""), ("If-Match", "\"b\"")], Failed),
            (
                &[("If-Modified-Since", NEW), ("If-Unmodified-Since", OLD)],
                Failed,
            ),
            // If-None-Match is there, so If-Modified-Since is ignored.
            (
                &[("If-None-Match", "\"b\""), ("If-Modified-Since", NEW)],
                Proceed,
            ),
            (
                &[("If-None-Match", "\"a\""), ("If-Modified-Since", OLD)],
                NotModified,
            ),
            (
                &[("If-None-Match", "?"), ("If-Modified-Since", NEW)],
                Proceed,
            ),
        ] {
            assert_eq!(ask(Method::Get, "\"a\"", pairs), want, "{pairs:?}");
        }
    }

    #[test]
    fn s13_nothing_there_matches_nothing() {
        let none = |n, v| evaluate(&Method::Get, &fields(&[(n, v)]), None);
        assert_eq!(none("If-Match", "*"), Failed);
        assert_eq!(none("If-None-Match", "*"), Proceed);
        assert_eq!(none("If-Modified-Since", NEW), Proceed);
        assert_eq!(none("If-Unmodified-Since", OLD), Proceed);
    }

    #[test]
    fn s13_1_3_no_modification_date_means_ignored() {
        let current = Validators {
            etag: None,
            modified: None,
        };
        for name in ["If-Modified-Since", "If-Unmodified-Since"] {
            let f = fields(&[(name, NEW)]);
            assert_eq!(evaluate(&Method::Get, &f, Some(current)), Proceed);
        }
    }

    #[test]
    fn s13_1_5_if_range() {
        for (etag, value, want) in [
            ("\"a\"", "\"a\"", true),
            ("\"a\"", "W/\"a\"", false),
            ("W/\"a\"", "W/\"a\"", false),
            ("\"a\"", "\"a\", \"b\"", false),
            ("\"a\"", "\"a", false),
            ("\"a\"", "*", false),
            ("\"a\"", SAME, true),
            ("\"a\"", OLD, false),
            ("\"a\"", NEW, false),
            ("W/\"a\"", SAME, false),
            ("", SAME, true),
            ("", "\"a\"", false),
        ] {
            let current = Validators {
                etag: (!etag.is_empty()).then_some(etag),
                modified: Some(modified()),
            };
            let got = if_range_allows(&fields(&[("If-Range", value)]), current);
            assert_eq!(got, want, "{etag} {value}");
        }
    }
}
