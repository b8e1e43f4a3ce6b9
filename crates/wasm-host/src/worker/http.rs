//! A component that exports `wasi:http/incoming-handler`. Its request is made from the variables and
//! standard input; its response goes to standard output in the form of CGI.

use std::{
    collections::HashMap,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use galgo_proto::fcgi::RecordType;
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Body, Frame},
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
    http::{Method, Uri},
};
use rustix::io::Errno;
use wasmtime::{Error, Result, Store};
use wasmtime_wasi_http::{
    Error as HttpError, WasiHttpView,
    p2::{
        bindings::{ProxyPre, http::types::Scheme},
        body::HyperOutgoingBody,
    },
};

use super::{
    connection::PIECE,
    state::{InstanceState, split_variables},
    stdio::{InStream, OutStream},
};

pub(super) async fn call_handler(
    pre: &ProxyPre<InstanceState>,
    store: &mut Store<InstanceState>,
    env: &[u8],
) -> Result<()> {
    let connection = store.data().connection.clone();
    let mut stdout = OutStream::new(&connection, RecordType::STDOUT);
    let (scheme, request) = build_request(env, InStream::new(&connection))?;
    let (sender, answer) = tokio::sync::oneshot::channel();
    let request = store
        .data_mut()
        .http()
        .new_incoming_request(scheme, request)?;
    let out = store.data_mut().http().new_response_outparam(sender)?;
    let print = async {
        match answer.await {
            Ok(Ok(response)) => print_response(&mut stdout, response).await,
            Ok(Err(code)) => Err(Error::msg(format!(
                "the component answered with the error {code:?}"
            ))),
            Err(_) => Err(Error::msg(
                "the component ended without a response (response-outparam.set)",
            )),
        }
    };
    let proxy = pre.instantiate_async(&mut *store).await?;
    let handle = async {
        let handler = proxy.wasi_http_incoming_handler();
        let handled = handler.call_handle(&mut *store, request, out).await;
        // Parts of its response that the guest still holds are dropped with it.
        let table = store.data_mut().http().table;
        *table = wasmtime::component::ResourceTable::new();
        handled
    };
    let (handled, printed) = tokio::join!(handle, print);
    handled.and(printed)
}

/// Returns the request that the variables describe (RFC 3875, 4.1).
fn build_request(env: &[u8], body: InStream) -> Result<(Scheme, Request<StdinBody>)> {
    let env: HashMap<&[u8], &[u8]> = split_variables(env).collect();
    let value = |name: &str| env.get(name.as_bytes()).copied().unwrap_or_default();
    let text = |name: &str| String::from_utf8_lossy(value(name)).into_owned();
    let (scheme, name) = match value("HTTPS") {
        b"on" => (Scheme::Https, "https"),
        _ => (Scheme::Http, "http"),
    };
    let host = match text("HTTP_HOST") {
        host if host.is_empty() => format!("{}:{}", text("SERVER_NAME"), text("SERVER_PORT")),
        host => host,
    };
    let target = match text("REQUEST_URI") {
        uri if uri.starts_with('/') => uri,
        _ => text("SCRIPT_NAME"),
    };
    let uri = Uri::builder()
        .scheme(name)
        .authority(host)
        .path_and_query(target);
    let mut request = Request::new(StdinBody(body));
    *request.method_mut() = Method::from_bytes(value("REQUEST_METHOD"))?;
    *request.uri_mut() = uri.build()?;
    for (name, value) in &env {
        let field = match *name {
            b"CONTENT_TYPE" | b"CONTENT_LENGTH" => *name,
            name => match name.strip_prefix(b"HTTP_") {
                Some(field) => field,
                None => continue,
            },
        };
        let field: Vec<u8> = field
            .iter()
            .map(|&b| if b == b'_' { b'-' } else { b })
            .collect();
        let field = HeaderName::from_bytes(&field.to_ascii_lowercase());
        if let (Ok(field), Ok(value), false) =
            (field, HeaderValue::from_bytes(value), value.is_empty())
        {
            request.headers_mut().append(field, value);
        }
    }
    Ok((scheme, request))
}

/// Prints the response as a CGI program does (RFC 3875, 6.2.1).
async fn print_response(
    stdout: &mut OutStream,
    response: Response<HyperOutgoingBody>,
) -> Result<()> {
    let (mut parts, mut body) = response.into_parts();
    let bodiless = matches!(parts.status.as_u16(), 204 | 304);
    if !bodiless && !body.is_end_stream() && !parts.headers.contains_key(CONTENT_TYPE) {
        // A CGI program must name a type. HTTP lets the reader choose if there is none (RFC 9110,
        // 8.3); this type says just that.
        let any = HeaderValue::from_static("application/octet-stream");
        parts.headers.insert(CONTENT_TYPE, any);
    }
    let mut head = format!("Status: {}\r\n", parts.status.as_u16()).into_bytes();
    for (name, value) in &parts.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stdout.write_all(&head).await.map_err(io_error)?;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|e| Error::msg(format!("the response of the component broke off: {e:?}")))?;
        if let Ok(data) = frame.into_data() {
            stdout.write_all(&data).await.map_err(io_error)?;
        }
    }
    Ok(())
}

fn io_error(e: Errno) -> Error {
    std::io::Error::from(e).into()
}

/// Standard input as a request's body.
struct StdinBody(InStream);

impl Body for StdinBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_piece(PIECE, cx).map(|piece| match piece {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => Some(Ok(Frame::data(piece))),
            Err(_) => Some(Err(HttpError::ConnectionTerminated)),
        })
    }
}
