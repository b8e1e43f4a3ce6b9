//! A component that answers HTTP requests itself (`wasi:http/incoming-handler`): method and path, the
//! fields, and the body back.
//!
//! cargo build --release --target wasm32-wasip2

use std::io::Write;

use wasip2::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

struct Handler;

wasip2::http::proxy::export!(Handler);

impl wasip2::exports::http::incoming_handler::Guest for Handler {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let mut text = format!(
            "{:?} {}\n",
            request.method(),
            request.path_with_query().unwrap_or_default()
        );
        for (name, value) in request.headers().entries() {
            let value = String::from_utf8_lossy(&value);
            text.push_str(&format!("{name}: {value}\n"));
        }
        let fields = Fields::new();
        let _ = fields.append("content-type", b"text/plain; charset=utf-8");
        let response = OutgoingResponse::new(fields);
        let body = response.body().expect("a new response has a body");
        ResponseOutparam::set(out, Ok(response));
        let mut to = body.write().expect("a new body can be written");
        let _ = to.write_all(text.as_bytes());
        let incoming = request.consume().expect("a request has a body");
        let from = incoming.stream().expect("its body can be read");
        while let Ok(piece) = from.blocking_read(16 << 10) {
            if to.write_all(&piece).is_err() {
                return;
            }
        }
        drop(to);
        let _ = OutgoingBody::finish(body, None);
    }
}
