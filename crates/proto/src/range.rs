//! Range requests (RFC 9110, 14).

use std::ops::Range;

use crate::{Fields, cond::Validators, h1::Method};

/// Which part of a representation to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// All of it: no Range field, one that is not understood, or an If-Range that does not match.
    Whole,
    /// 206 with these parts, in the order asked for, none empty, at most the limit.
    Partial(Vec<Range<u64>>),
    /// 416.
    Unsatisfiable,
}

/// Evaluates Range and If-Range for a representation of `size` bytes. More than `max` ranges, or
/// ranges that overlap so that more than the whole would be sent, count as [`Ranges::Whole`].
pub fn evaluate(
    _method: &Method,
    _fields: &Fields,
    _current: Validators<'_>,
    _size: u64,
    _max: usize,
) -> Ranges {
    todo!()
}
