//! Parsers and writers of protocols: HTTP/1 heads and bodies, HTTP/2 heads, request targets, CGI variables,
//! CGI responses, FastCGI, SCGI, preconditions and ranges. Pure functions: no I/O, no clock, no async.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod cgi;
pub mod coding;
pub mod cond;
pub mod digits;
pub mod fcgi;
pub mod fields;
pub mod forwarded;
pub mod gateway;
pub mod h1;
pub mod h2;
mod head_error;
pub mod hosts;
pub mod hpack;
pub mod proxy;
pub mod range;
pub mod scgi;
pub mod status;
pub mod target;
pub mod vars;

pub use fields::Fields;

/// The result of a parser of streamed input: read more, or the item and the number of bytes used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// The input ends before the item does.
    Partial,
    /// The item, and the number of input bytes that belong to it.
    Complete(T, usize),
}
