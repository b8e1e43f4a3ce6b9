//! The hooks for a component's own HTTP requests.

use hyper::{Request, Response};
use wasmtime_wasi_http::{Error as HttpError, RequestOptions, WasiBody, WasiHttpHooks};

/// Refuses all HTTP requests of a component. If its route allows the network, a component reaches
/// other machines by sockets.
#[derive(Debug)]
pub(super) struct Hooks;

type HttpAnswer = (
    Response<WasiBody>,
    Box<dyn Future<Output = Result<(), HttpError>> + Send>,
);

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        _request: Request<WasiBody>,
        _options: Option<RequestOptions>,
        _done: Box<dyn Future<Output = Result<(), HttpError>> + Send>,
    ) -> Box<dyn Future<Output = Result<HttpAnswer, HttpError>> + Send> {
        Box::new(std::future::ready(Err(HttpError::HttpRequestDenied)))
    }
}
