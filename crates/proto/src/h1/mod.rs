//! HTTP/1 request heads and message bodies (RFC 9112), strict: ambiguous bytes are refused.
//!
//! [`HeadScan`] finds the end of a head while bytes arrive. Then [`Head::parse`] reads the head. The
//! framing of its body is a [`BodyLen`], and a [`Chunked`] decodes a chunked body.

mod body;
mod chunked;
mod head;
mod method;
mod once;
mod scan;

pub use crate::head_error::{ALLOW, HeadError};
pub use body::BodyLen;
pub(crate) use body::parse_content_length;
pub use chunked::{Chunk, ChunkError, Chunked};
pub use head::Head;
pub(crate) use head::{FramingFields, set_host_field};
pub use method::{Method, Version};
pub(crate) use once::Once;
pub use scan::{HeadLimits, HeadScan};
