//! Failed requests: a plain page for the client, words for the log, and on a developer's own machine a page that shows
//! the cause.

use galgo_proto::{fields::is_one_of, h1::Version};
use galgo_service::{
    body::{Body, Response},
    fault::Fault,
    link::{Link, is_loopback},
    log::Level,
    request::Request,
};

use crate::context::Context;
use crate::{resources::Resources, shared::HandlersShared};

/// Notes a failed request in its access log entry. If the operator or an author can act on it, also in the error log.
pub fn report_fault(resources: &Resources, request: &Request<'_>, fault: &Fault) {
    let id = {
        let mut entry = request.entry.borrow_mut();
        entry.outcome = fault.outcome();
        entry.status = fault.status();
        entry.id
    };
    if matches!(fault, Fault::Busy(_) | Fault::Stalled(_)) && !resources.says_busy() {
        return;
    }
    let level = match fault {
        Fault::Client(..) | Fault::TooMany(_) => {
            let path = request.head.target.path();
            return resources.log_refusal(request.link, id, path, fault);
        }
        Fault::Gone(_) | Fault::NotFound => return,
        Fault::Refused(_) | Fault::Busy(_) | Fault::Stalled(_) => Level::Warn,
        Fault::Script(_) | Fault::Late(_) | Fault::Storage(_) | Fault::Internal(_) => Level::Error,
    };
    // The decoded path. The log escapes it, like all text.
    let path = String::from_utf8_lossy(request.head.target.path());
    let about = format!("[{}] {path}", &*id.to_base32());
    resources.errors.write(level, &about, &fault.to_string());
}

/// Returns the response to a failed request.
pub fn failure_response(shared: &HandlersShared, request: &Request<'_>, fault: &Fault) -> Response {
    let shows = shows_cause(shared, request);
    let program = matches!(fault, Fault::Script(_) | Fault::Late(_) | Fault::Refused(_));
    let dev = program || matches!(fault, Fault::Client(..) | Fault::TooMany(_));
    let cause = (shows && dev).then(|| Cause {
        words: fault.to_string(),
        program,
        // A program that was never started wrote nothing.
        stderr: (!request.entry.borrow().start.is_zero()).then_some(&request.stderr),
        hint: fault_hint(fault),
    });
    let mut response = status_page(fault.status(), &request.id().to_base32(), cause);
    if let Some(after) = retry_after(fault) {
        response.fields.push("Retry-After", after.to_string());
    }
    response
}

/// Returns after how many seconds a new try may succeed, if known: whole seconds (RFC 9110, 10.2.3), at least one.
fn retry_after(fault: &Fault) -> Option<u64> {
    match fault {
        Fault::Busy(_) | Fault::Stalled(_) => Some(1),
        Fault::TooMany(wait) => {
            let begun = u64::from(wait.subsec_nanos() > 0);
            Some((wait.as_secs() + begun).max(1))
        }
        _ => None,
    }
}

/// Returns the response to bytes that are no request. Its words are about those bytes, and name nothing of the server.
pub fn unread_response(shared: &HandlersShared, link: &Link, fault: &Fault, id: &str) -> Response {
    let cause = (shared.shows_causes && is_near(link)).then(|| Cause {
        words: fault.to_string(),
        program: false,
        stderr: None,
        hint: "",
    });
    status_page(fault.status(), id, cause)
}

/// Returns whether the client is shown the cause of a failure.
pub fn shows_cause(shared: &HandlersShared, request: &Request<'_>) -> bool {
    shared.shows_causes && is_developer(request)
}

/// Returns whether a browser on this machine sent the request to this machine. A request over a Unix socket, by the
/// PROXY protocol, or with a field of a proxy comes from a proxy, and its client is unknown. Some proxies send no such
/// field; many of them speak HTTP/1.0, which no browser does. A foreign host name belongs to a page elsewhere that had
/// its name lead here (DNS rebinding), or to a site.
fn is_developer(request: &Request<'_>) -> bool {
    let head = &request.head;
    let direct = is_near(request.link) && !head.fields.iter().any(|(name, _)| passes_on(name));
    direct && head.version != Version::Http10 && is_here(&head.host)
}

/// Returns whether the connection is from this machine, as far as its address tells, and directly from the client.
fn is_near(link: &Link) -> bool {
    link.remote_ip.is_some_and(is_loopback) && link.announced_by.is_none() && !link.passed_on
}

/// Returns whether servers that pass requests on write the field.
fn passes_on(name: &[u8]) -> bool {
    const NAMES: [&str; 6] = [
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "true-client-ip",
        "cf-connecting-ip",
    ];
    let start = name.get(.."x-forwarded".len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(b"x-forwarded")) || is_one_of(name, &NAMES)
}

/// Returns whether a parsed host is this machine by its name or its address.
fn is_here(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let ip = bare.unwrap_or(host).parse();
    host == "localhost" || ip.is_ok_and(is_loopback)
}

/// Says what to do about a failure, if its words do not say so themselves.
pub fn fault_hint(fault: &Fault) -> &'static str {
    match fault {
        Fault::Script(why) if why.contains("printed nothing") => {
            "read its standard error first; a program must print a header, \
             an empty line and its document, and flush them before it ends"
        }
        Fault::Script(why) if why.contains("promised Content-Length") => {
            "count bytes, not characters, or print no Content-Length at all"
        }
        Fault::Late(why) if why.contains("first_byte_timeout") => {
            "print the header early and flush it, or raise first_byte_timeout"
        }
        Fault::Late(why) if why.contains("idle_timeout") => {
            "print something from time to time and flush it, or raise idle_timeout"
        }
        Fault::Late(_) => "raise total_timeout if the program needs that long",
        _ => "",
    }
}

/// Gives an error without a body its page, and the access log its word. `cause` is the reason of a refusal, for the
/// error log and a developer.
pub fn add_page(
    cx: Context<'_>,
    request: &Request<'_>,
    mut response: Response,
    cause: Option<&'static str>,
) -> Response {
    if response.status < 400 || !response.body.is_empty() {
        return response;
    }
    let fault = cause.map(|cause| match response.status {
        status @ (405 | 501) => Fault::Client(status, cause),
        _ => Fault::Refused(cause.into()),
    });
    let page = match fault {
        None => status_page(response.status, &request.id().to_base32(), None),
        Some(fault) => {
            report_fault(cx.resources, request, &fault);
            failure_response(cx.shared, request, &fault)
        }
    };
    request.entry.borrow_mut().outcome = match response.status {
        403 => Fault::Refused(String::new()).outcome(),
        404 => Fault::NotFound.outcome(),
        503 => Fault::Busy("").outcome(),
        501 => Fault::Client(501, "").outcome(),
        500.. => Fault::Internal(String::new()).outcome(),
        _ => Fault::Client(400, "").outcome(),
    };
    for (name, value) in page.fields.iter() {
        response.fields.push(name, value);
    }
    response.body = page.body;
    response
}

/// Details that only a developer's own browser is shown.
#[derive(Debug)]
pub struct Cause<'a> {
    words: String,
    /// The cause is a program's.
    program: bool,
    stderr: Option<&'a str>,
    hint: &'static str,
}

/// The style sheet of the pages that galgo writes itself.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--red:light-dark(#b3261e,#ff8a80)}\
body{font:16px/1.55 system-ui,sans-serif;max-width:46rem;margin:10vh auto;padding:0 1.2rem}\
h1{font-weight:600;margin:0 0 1rem}h1 b{color:var(--red)}h2{font-size:1rem;margin:2rem 0 .5rem}\
.cause{border-left:4px solid var(--red);padding:.2rem 0 .2rem 1rem;font-size:1.1rem;\
overflow-wrap:anywhere}\
pre{font:14px/1.5 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;margin:0;\
padding:1rem;border:1px solid var(--line);border-radius:.4rem;background:#8881}\
code{font-family:ui-monospace,monospace}\
footer{margin-top:2.5rem;padding-top:.8rem;border-top:1px solid var(--line);\
font-size:.85rem;opacity:.7}";

/// Returns the page of a status. Nothing of the request is in it but its id.
pub fn status_page(status: u16, id: &str, cause: Option<Cause<'_>>) -> Response {
    let reason = galgo_proto::status::reason(status);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{status} {reason}</title>\n\
         <style>{STYLE}</style></head>\n<body><h1><b>{status}</b> {reason}</h1>\n"
    );
    let developer = cause.is_some();
    if let Some(cause) = cause {
        explain(&mut html, &cause);
    }
    html.push_str("<footer>Request ");
    html.push_str(id);
    if developer {
        html.push_str("<br>Only browsers on this machine see the cause (<code>dev_errors</code>).");
    }
    html.push_str("</footer></body></html>\n");
    let mut response = Response::new(status)
        .with_field("Content-Type", "text/html; charset=utf-8")
        .with_field("Cache-Control", "no-store");
    response.body = Body::Bytes(html.into_bytes());
    response
}

fn explain(html: &mut String, cause: &Cause<'_>) {
    html.push_str("<p class=\"cause\">");
    escape(html, &cause.words);
    html.push_str("</p>\n");
    if !cause.hint.is_empty() {
        html.push_str("<p>Hint: ");
        escape(html, cause.hint);
        html.push_str(".</p>\n");
    }
    if let Some(stderr) = cause.stderr {
        html.push_str("<h2>Standard error</h2>\n");
        match stderr.trim_end() {
            "" => html.push_str("<p>The program wrote nothing to standard error.</p>\n"),
            text => {
                html.push_str("<pre>");
                escape(html, text);
                html.push_str("</pre>\n");
            }
        }
    }
    if !cause.program {
        return;
    }
    html.push_str(
        "<h2>Try</h2>\n<pre>galgo run PROGRAM    the same, in a terminal\n\
         galgo check          everything else that would fail</pre>\n",
    );
}

/// Appends `text`, escaped so that HTML takes it for text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_this_machine() {
        for here in ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"] {
            assert!(is_here(here), "{here}");
        }
        for other in [
            "",
            "localhost.example",
            "a.localhost",
            "127.0.0.1.example",
            "128.0.0.1",
            "[::2]",
            "0.0.0.0",
            "2130706433",
            "127.1",
        ] {
            assert!(!is_here(other), "{other}");
        }
    }

    #[test]
    fn the_cause_is_text() {
        let cause = Cause {
            words: "<script>".into(),
            program: true,
            stderr: Some("a & \"b\""),
            hint: "",
        };
        let Body::Bytes(html) = status_page(502, "id", Some(cause)).body else {
            panic!()
        };
        let html = String::from_utf8(html).unwrap();
        assert!(html.contains("&lt;script&gt;") && html.contains("a &amp; &quot;b&quot;"));
        assert!(!html.contains("<script>"));
    }
}
