//! Why a target is refused.

/// Why a target is refused; each is a 400 but for `TooLong`, which is a 414.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// Longer than the limit.
    TooLong,
    /// A byte that may not stand in a target: space, control, `#`.
    Byte,
    /// Neither origin-form, absolute-form of http or https, nor `*`.
    Form,
    /// `%` without two hexadecimal digits, or one that hides `/`, NUL or a control byte.
    Percent,
    /// A segment `..` that leads above the root; in a path that a front server has decoded, any segment `.` or `..`.
    DotSegment,
}
