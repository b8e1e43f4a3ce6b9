//! What every handler may use, and what it may want to be done.

use std::rc::Rc;

use galgo_service::body::Response;

use crate::{resources::Resources, shared::HandlersShared};

/// What every handler may use: what its event loop has, and what the configuration that the request began with has made.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// What its event loop has.
    pub resources: &'a Rc<Resources>,
    /// What the handlers of all event loops share.
    pub shared: &'a HandlersShared,
}

/// What a program wants to be done.
#[derive(Debug)]
pub enum Answer {
    /// Send this.
    Response(Response),
    /// Answer this path and query instead (RFC 3875, 6.2.2).
    Local(String),
}
