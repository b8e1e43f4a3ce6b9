//! The request target (RFC 9112, 3.2): origin-form, absolute-form and `*`.

/// A request target, checked and decoded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Path and query as they came (`/a%20b?x=1`): REQUEST_URI. Absolute-form has lost its scheme and authority.
    pub raw: String,
    /// The path, percent-decoded exactly once; begins with `/`, or is `*`. Holds no NUL, no control
    /// byte, no segment `.` or `..`, and no slash that came as `%2f`.
    pub path: Vec<u8>,
    /// Where the query begins in `raw`, after the `?`; `None` where there is no `?`.
    pub query_at: Option<usize>,
    /// `host[:port]` of an absolute-form target.
    pub authority: Option<String>,
}

/// Why a target is refused; each is a 400 but for `TooLong`, which is a 414.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// Longer than the limit.
    TooLong,
    /// A byte that may not stand in a target: space, control, 8-bit, `#`.
    Byte,
    /// Neither origin-form, absolute-form of http or https, nor `*`.
    Form,
    /// `%` without two hexadecimal digits, or one that hides `/`, NUL or a control byte.
    Percent,
    /// A segment `.` or `..`, plain or encoded.
    DotSegment,
}

impl Target {
    /// Parses the target of a request line.
    pub fn parse(_raw: &[u8], _limit: usize) -> Result<Self, TargetError> {
        todo!()
    }

    /// The query without its `?`; empty where there is none.
    pub fn query(&self) -> &str {
        self.query_at.map_or("", |at| &self.raw[at..])
    }
}
