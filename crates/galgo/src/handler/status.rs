//! Failed requests: a plain page for the client, words for the log, and on a developer's own
//! machine a page that shows the cause.

use std::rc::Rc;

use crate::{
    body::{Body, Response},
    conn::Request,
    fault::Fault,
    log::Level,
    worker::Worker,
};

/// Notes a failed request in its access log entry and, where somebody can act on it, in the error log.
pub fn report(worker: &Worker, request: &Request<'_>, fault: &Fault) {
    let id = {
        let mut entry = request.entry.borrow_mut();
        entry.outcome = fault.outcome();
        entry.status = fault.status();
        entry.id
    };
    let level = match fault {
        Fault::Client(..) | Fault::Gone(_) | Fault::NotFound => return,
        Fault::Refused(_) | Fault::Busy(_) => Level::Warn,
        Fault::Script(_) | Fault::Late(_) | Fault::Internal(_) => Level::Error,
    };
    // The decoded path: escaped by the log, as everything is.
    let path = String::from_utf8_lossy(&request.head.target.path);
    let about = format!("[{}] {path}", id.as_str());
    worker
        .server
        .logs
        .error
        .write(level, &about, &fault.to_string());
}

/// The response to a failed request.
pub fn failed(worker: &Rc<Worker>, request: &Request<'_>, fault: &Fault) -> Response {
    let near = request
        .link
        .remote_ip
        .is_none_or(|a| a.ip().to_canonical().is_loopback());
    let shows = worker.server.config.dev_errors && near;
    let dev = matches!(fault, Fault::Script(_) | Fault::Late(_) | Fault::Refused(_));
    let cause = (shows && dev).then(|| Cause {
        words: fault.to_string(),
        stderr: &request.stderr,
    });
    let mut response = page(fault.status(), request.id().as_str(), cause);
    if let Fault::Busy(_) = fault {
        response.fields.push("Retry-After", "1");
    }
    response
}

/// Gives an error without a body its page, and the access log its word.
pub fn dress(request: &Request<'_>, mut response: Response) -> Response {
    if response.status < 400 || !response.body.is_empty() {
        return response;
    }
    request.entry.borrow_mut().outcome = match response.status {
        403 => Fault::Refused(String::new()).outcome(),
        404 => Fault::NotFound.outcome(),
        503 => Fault::Busy("").outcome(),
        500.. => Fault::Internal(String::new()).outcome(),
        _ => Fault::Client(400, "").outcome(),
    };
    let page = page(response.status, request.id().as_str(), None);
    for (name, value) in page.fields.iter() {
        response.fields.push(name, value);
    }
    response.body = page.body;
    response
}

/// What only a developer's own browser is shown.
#[derive(Debug)]
pub struct Cause<'a> {
    words: String,
    stderr: &'a str,
}

/// The page of a status: nothing of the request is in it but its id.
pub fn page(status: u16, id: &str, cause: Option<Cause<'_>>) -> Response {
    let reason = reason(status);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{status} {reason}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;\
         max-width:46rem;margin:12vh auto;padding:0 1rem}}h1{{font-weight:600}}\
         pre{{white-space:pre-wrap;overflow-wrap:anywhere;padding:1rem;border-radius:.4rem;\
         background:#8882}}small{{opacity:.6}}</style></head>\n<body><h1>{status} {reason}</h1>\n"
    );
    if let Some(cause) = cause {
        html.push_str("<p>");
        escape(&mut html, &cause.words);
        html.push_str("</p>\n");
        if !cause.stderr.is_empty() {
            html.push_str("<h2>What it wrote to standard error</h2>\n<pre>");
            escape(&mut html, cause.stderr);
            html.push_str("</pre>\n");
        }
        html.push_str(
            "<p>The same program without a server: <code>galgo run PROGRAM</code>. \
             All programs: <code>galgo check</code>.</p>\n\
             <p><small>Only browsers on this machine see the cause (dev_errors).</small></p>\n",
        );
    }
    html.push_str("<p><small>Request ");
    html.push_str(id);
    html.push_str("</small></p></body></html>\n");
    let mut response = Response::new(status)
        .with("Content-Type", "text/html; charset=utf-8")
        .with("Cache-Control", "no-store");
    response.body = Body::Bytes(html.into_bytes());
    response
}

/// Appends `text` so that HTML takes it for text.
pub fn escape(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
}

/// The reason phrase of a status (RFC 9110, 15 and the IANA registry).
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_text() {
        let cause = Cause {
            words: "<script>".into(),
            stderr: "a & \"b\"",
        };
        let Body::Bytes(html) = page(502, "id", Some(cause)).body else {
            panic!()
        };
        let html = String::from_utf8(html).unwrap();
        assert!(html.contains("&lt;script&gt;") && html.contains("a &amp; &quot;b&quot;"));
        assert!(!html.contains("<script>"));
    }
}
