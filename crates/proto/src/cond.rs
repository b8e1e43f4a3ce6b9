//! Conditional requests (RFC 9110, 13).

use std::time::SystemTime;

use crate::{Fields, h1::Method};

/// What is known of the selected representation.
#[derive(Debug, Clone, Copy)]
pub struct Validators<'a> {
    /// The entity tag, quotes and `W/` included.
    pub etag: Option<&'a str>,
    /// Last-Modified.
    pub modified: Option<SystemTime>,
}

/// What the preconditions of a request ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Answer as if there were none.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since in the order of
/// RFC 9110, 13.2.2. `None`: there is no current representation.
pub fn evaluate(_method: &Method, _fields: &Fields, _current: Option<Validators<'_>>) -> Outcome {
    todo!()
}
