//! What answers requests, as the front sees it.

use crate::{body::Response, fault::Fault, id::Id, link::Link, request::Request};

/// The client has left: there is nothing to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left;

/// What answers requests: one site, in one event loop.
pub trait Service {
    /// Answers a request; a failure is a response, too, and is logged.
    ///
    /// # Errors
    /// The client has left.
    fn call(&self, request: &mut Request<'_>) -> impl Future<Output = Result<Response, Left>>;

    /// A response was cut: for the logs.
    fn cut(&self, request: &Request<'_>, fault: &Fault);

    /// The response to bytes that are no request: only their sender is known.
    fn refuse(&self, link: &Link, id: Id, fault: &Fault) -> Response;
}
