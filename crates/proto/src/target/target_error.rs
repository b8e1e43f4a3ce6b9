//! Reasons why a target is refused.

use crate::head_error::HeadError;

/// Longer than the limit.
pub(super) const TOO_LONG: HeadError =
    HeadError::new(414, "the target is longer than the limit (max_target)");
/// Space, control, `#`.
pub(super) const BYTE: HeadError = HeadError::bad_request("a byte that no target may hold");
/// Neither origin-form, absolute-form of http or https, nor `*`.
pub(super) const FORM: HeadError =
    HeadError::bad_request("target is neither a path nor an http URI");
/// `%` without two hexadecimal digits, or an encoding that hides `/`, NUL or a control byte.
pub(super) const PERCENT: HeadError =
    HeadError::bad_request("bad or dangerous percent-encoding in the target");
/// A segment `..` that leads above the root; in a path that a front server has decoded, any segment `.` or `..`.
pub(super) const DOT_SEGMENT: HeadError = HeadError::bad_request("the target leads above the root");
