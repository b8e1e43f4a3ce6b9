//! The service that answers requests, as the front sees it.

use crate::{body::Response, fault::Fault, id::Id, link::Link, request::Request};

/// The client has left: no answer is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left;

/// A service that answers requests: one site, in one event loop.
pub trait Service {
    /// Answers a request; a failure is a response, too, and is logged.
    ///
    /// # Errors
    /// The client has left.
    fn call(&self, request: &mut Request<'_>) -> impl Future<Output = Result<Response, Left>>;

    /// Logs that a response was cut.
    fn log_cut_response(&self, request: &Request<'_>, fault: &Fault);

    /// Returns the response to bytes that are no request: only their sender is known.
    fn build_refusal(&self, link: &Link, id: Id, fault: &Fault) -> Response;
}
