//! HTTP/1 request heads and message bodies (RFC 9112), strict: what is ambiguous is refused.
//!
//! [`HeadScan`] finds where a head ends while bytes arrive, [`Head::parse`] reads it, [`BodyLen`] says
//! how the body behind it is framed, [`Chunked`] takes a chunked body apart.

mod body;
mod chunked;
mod head;
mod method;
mod once;
mod scan;

pub use crate::head_error::{ALLOW, HeadError};
pub use body::BodyLen;
pub(crate) use body::content_length;
pub use chunked::{Chunk, ChunkError, Chunked};
pub use head::Head;
pub(crate) use head::{FramingFields, host_of_target};
pub use method::{Method, Version};
pub(crate) use once::Once;
pub use scan::{HeadLimits, HeadScan};
