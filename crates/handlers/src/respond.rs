//! A constant answer from memory, for any method.

use std::sync::Arc;

use galgo_proto::Fields;
use galgo_service::body::{Body, Response};

/// A constant answer from memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Respond {
    /// Status.
    pub status: u16,
    /// Content-Type; `None` if there is no body.
    pub content_type: Option<String>,
    /// Fields added.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Arc<[u8]>,
}

/// Returns the answer of a `respond` route.
pub fn answer(respond: &Respond) -> Response {
    let mut response = Response::new(respond.status);
    response.fields = Fields::with_capacity(1 + respond.headers.len(), 128);
    if let Some(content_type) = &respond.content_type {
        response.fields.push("Content-Type", content_type);
    }
    for (name, value) in &respond.headers {
        response.fields.push(name, value);
    }
    response.body = Body::Shared(respond.body.clone());
    response
}
