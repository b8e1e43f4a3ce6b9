//! The page at `/` of a developer's site that has no page there: the live routes, and the problems of the others.

use galgo_handlers::status::{self, STYLE, escape};
use galgo_proto::h1::{Head, Method};
use galgo_service::{
    body::{Body, Response},
    request::Request,
};
use galgo_spawn::words;

use crate::{
    config::{Config, Handler, Route},
    described::describe,
    programs::{self, FileState, Seen, Severity},
    site::Site,
};

/// Limit of programs on the page, over all routes. Checking one takes about a millisecond.
const SHOWN: usize = 50;

/// Returns the page, if no route answers. `None`: the client gets a 404 instead.
pub(super) async fn answer(site: &Site, request: &Request<'_>, head: &Head) -> Option<Response> {
    let asks = head.target.path() == b"/" && matches!(head.method, Method::Get | Method::Head);
    if !asks || !status::shows_cause(&site.shared, request) {
        return None;
    }
    let html = render_document(&site.config, head).await;
    let mut response = Response::new(200)
        .with_field("Content-Type", "text/html; charset=utf-8")
        .with_field("Cache-Control", "no-store")
        .with_field(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        );
    response.body = Body::Bytes(html.into_bytes());
    Some(response)
}

async fn render_document(config: &Config, head: &Head) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>What is live</title>\n\
         <style>{STYLE}</style></head>\n<body><h1>What is live</h1>\n"
    );
    let mut room = SHOWN;
    for route in &config.routes {
        let hosts = route.host.as_ref();
        let here = hosts.is_none_or(|hosts| hosts.match_closeness(&head.host).is_some());
        html.push_str("<h2>");
        // A folder of programs is not a page.
        let leads = here && route.names.is_none() && !matches!(route.handler, Handler::Cgi(_));
        write_link(&mut html, route.path.as_bytes(), leads, &route.to_string());
        html.push_str("</h2>\n<p>");
        write_text(&mut html, &describe(config, route));
        html.push_str("</p>\n");
        write_programs(&mut html, config, route, here, &mut room).await;
    }
    html.push_str(
        "<footer>No route answers at <code>/</code>: files in <code>public/</code> would.<br>\
         Only browsers on this machine see this page (<code>dev_errors</code>).</footer></body></html>\n",
    );
    html
}

/// Lists the programs of a route. Between two programs other requests of the event loop can run.
async fn write_programs(
    html: &mut String,
    config: &Config,
    route: &Route,
    here: bool,
    room: &mut usize,
) {
    let Some(cgi) = route.programs() else {
        return;
    };
    let mut none = true;
    html.push_str("<ul>\n");
    for file in programs::list_files(&cgi.root) {
        tokio::task::yield_now().await;
        let Some(seen) = programs::examine_file(config, route, cgi, file) else {
            continue;
        };
        if seen.verdict() == Severity::Note {
            continue;
        }
        none = false;
        if *room == 0 {
            html.push_str("<li>and more: <code>galgo check</code> shows all</li>\n");
            break;
        }
        *room -= 1;
        write_program(html, &seen, here);
    }
    if none && route.among_files.is_none() {
        html.push_str("<li>no program yet: copy one in, and it is served at once</li>\n");
    }
    html.push_str("</ul>\n");
}

fn write_program(html: &mut String, seen: &Seen, here: bool) {
    html.push_str("<li>");
    let fails = seen.verdict() == Severity::Fails;
    write_link(html, &seen.url, here && !fails, &words::escape(&seen.url));
    if let FileState::Program(found) = &seen.state {
        for finding in found {
            html.push_str(if finding.fails {
                "<p class=\"cause\">fails: "
            } else {
                "<p class=\"cause\">warning: "
            });
            write_text(html, &finding.says);
            if !finding.mend.is_empty() {
                html.push_str("<br>try: <code>");
                write_text(html, &finding.mend);
                html.push_str("</code>");
            }
            html.push_str("</p>");
        }
    }
    html.push_str("</li>\n");
}

/// Writes a link to a decoded path, or just the words if the link leads nowhere.
fn write_link(html: &mut String, path: &[u8], leads: bool, says: &str) {
    if !leads {
        return write_text(html, says);
    }
    // The path begins with one slash because routes do.
    html.push_str("<a href=\"");
    html.push_str(&programs::percent_encode(path));
    html.push_str("\">");
    write_text(html, says);
    html.push_str("</a>");
}

fn write_text(html: &mut String, says: &str) {
    escape(html, &words::escape(says.as_bytes()));
}
