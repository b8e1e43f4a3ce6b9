//! The context of every handler, and the answers that programs ask for.

use std::rc::Rc;

use galgo_service::body::Response;

use crate::{resources::Resources, shared::HandlersShared};

/// The context of every handler: the resources of its event loop, and the parts that the configuration of the request
/// has made.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The resources of the event loop.
    pub resources: &'a Rc<Resources>,
    /// The parts that handlers of all event loops share.
    pub shared: &'a HandlersShared,
}

/// The answer that a program asks for.
#[derive(Debug)]
pub enum Answer {
    /// Send this response.
    Response(Response),
    /// Answer this path and query instead (RFC 3875, 6.2.2).
    Local(String),
}
