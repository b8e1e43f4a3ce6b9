//! Protocol-specific meta-variables (RFC 3875, 4.1.18): a request's fields as HTTP_*, and CONTENT_TYPE.

use std::cmp::Ordering;

use super::given::{Script, Sink};
use crate::Fields;

/// Counts of the fields that were left out of the variables, for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Fields with anything but letters, digits and `-` in their name.
    pub names: u32,
    /// Values that begin with `() {`.
    pub shellshock: u32,
}

/// The request gives this variable more than one reading: 400. A field that holds one value came twice,
/// or its value holds NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ambiguous(pub String);

/// Variables (without `HTTP_`) that no field sets.
const WITHHELD: &[&[u8]] = &[
    b"CONNECTION",
    b"CONTENT_LENGTH",
    b"EXPECT",
    b"HTTP2_SETTINGS",
    b"KEEP_ALIVE",
    b"PROXY",
    b"PROXY_AUTHORIZATION",
    b"PROXY_CONNECTION",
    b"TE",
    b"TRAILER",
    b"TRANSFER_ENCODING",
    b"UPGRADE",
];

struct ProtocolVariable<'a> {
    name: &'a [u8],
    value: &'a [u8],
    at: usize,
}

/// Puts the variables of `fields` into `sink`.
pub(super) fn put_fields(
    fields: &Fields,
    script: &Script<'_>,
    sink: &mut impl Sink,
) -> Result<Dropped, Ambiguous> {
    let mut dropped = Dropped::default();
    let sorted = sort_fields(fields, &mut dropped);
    let (mut name, mut joined) = (Vec::with_capacity(64), Vec::new());
    for group in sorted.chunk_by(|a, b| compare(a.name, b.name).is_eq()) {
        write_variable_name(group[0].name, &mut name);
        // NUL ends a value early in an environment and nowhere else.
        if group.iter().any(|f| memchr::memchr(0, f.value).is_some()) {
            return Err(ambiguous(&name));
        }
        let Some(env) = passed(group, &name, script)? else {
            continue;
        };
        let separator: &[u8] = if env == b"HTTP_COOKIE" { b"; " } else { b", " };
        if let Some(value) = join_values(group, separator, script, &mut joined, &mut dropped) {
            sink.put_variable(env, value);
        }
    }
    Ok(dropped)
}

/// Returns the fields that may become variables. Fields of one name stand together and in their order.
/// Sorting finds repetitions among n fields in n log n steps, and needs no table of names.
fn sort_fields<'a>(fields: &'a Fields, dropped: &mut Dropped) -> Vec<ProtocolVariable<'a>> {
    let mut sorted = Vec::with_capacity(fields.len());
    for (at, (name, value)) in fields.iter().enumerate() {
        if is_plain(name) {
            sorted.push(ProtocolVariable { name, value, at });
        } else {
            dropped.names = dropped.names.saturating_add(1);
        }
    }
    sorted.sort_unstable_by(|a, b| compare(a.name, b.name).then(a.at.cmp(&b.at)));
    sorted
}

/// Returns whether `name` consists of letters, digits and `-`. A variable's name has `_` for all other
/// bytes of a token, so `X.User`, `X!User` and `X_User` would pose as X-User, which a proxy in front has
/// checked or deleted. Two different plain names never become the same variable.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Returns the byte of a variable's name for the byte of a field's name.
fn variable_byte(b: u8) -> u8 {
    match b {
        b'-' => b'_',
        b => b.to_ascii_uppercase(),
    }
}

fn compare(a: &[u8], b: &[u8]) -> Ordering {
    a.iter()
        .map(|&b| variable_byte(b))
        .cmp(b.iter().map(|&b| variable_byte(b)))
}

/// Replaces the content of `variable` by `HTTP_NAME` for the field `name`.
fn write_variable_name(name: &[u8], variable: &mut Vec<u8>) {
    variable.clear();
    variable.extend_from_slice(b"HTTP_");
    variable.extend(name.iter().map(|&b| variable_byte(b)));
}

fn ambiguous(variable: &[u8]) -> Ambiguous {
    Ambiguous(String::from_utf8_lossy(variable).into_owned())
}

/// Returns the variable that `group` sets, if it may set one. Fields that hold one value refuse a second.
fn passed<'a>(
    group: &[ProtocolVariable<'_>],
    variable: &'a [u8],
    script: &Script<'_>,
) -> Result<Option<&'a [u8]>, Ambiguous> {
    let single = |variable: &'a [u8]| match group {
        [_] => Ok(Some(variable)),
        _ => Err(ambiguous(variable)),
    };
    match &variable[b"HTTP_".len()..] {
        b"AUTHORIZATION" if script.pass_authorization => single(variable),
        b"CONTENT_TYPE" => single(b"CONTENT_TYPE"),
        b"UPGRADE" | b"CONNECTION" if script.upgrade => Ok(Some(variable)),
        b"" | b"AUTHORIZATION" => Ok(None),
        name if WITHHELD.contains(&name) => Ok(None),
        _ => Ok(Some(variable)),
    }
}

/// Joins the values of `group`, and uses `joined` only for several. `None` if all were dropped.
fn join_values<'a>(
    group: &[ProtocolVariable<'a>],
    separator: &[u8],
    script: &Script<'_>,
    joined: &'a mut Vec<u8>,
    dropped: &mut Dropped,
) -> Option<&'a [u8]> {
    let mut values = group.iter().map(|f| f.value).filter(|value| {
        let drop = script.drop_shellshock && is_function(value);
        dropped.shellshock = dropped.shellshock.saturating_add(drop.into());
        !drop
    });
    let first = values.next()?;
    let Some(second) = values.next() else {
        return Some(first);
    };
    joined.clear();
    joined.extend_from_slice(first);
    for value in std::iter::once(second).chain(values) {
        joined.extend_from_slice(separator);
        joined.extend_from_slice(value);
    }
    Some(joined)
}

/// Returns whether old versions of bash would take `value` for a function and run the text after it
/// (CVE-2014-6271). White space in front stops bash, but not a program that trims and exports again.
fn is_function(value: &[u8]) -> bool {
    value.trim_ascii_start().starts_with(b"() {")
}
