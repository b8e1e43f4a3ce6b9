//! Static files.

use galgo_proto::h1::Head;

use crate::{body::Response, config};

/// Answers a request for the file at `rest`, the decoded path below the route, without a leading slash.
pub fn answer(_files: &config::Files, _head: &Head, _rest: &[u8]) -> Response {
    todo!()
}
