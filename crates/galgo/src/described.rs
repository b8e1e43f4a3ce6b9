//! Descriptions of routes in words, for a table or a page.

use std::path::Path;

use galgo_handlers::steps::redirect::Redirect;
use galgo_proto::status::reason;
use galgo_spawn::words;

use crate::{
    config::{Application, Cgi, CgiOptions, CgiRoot, Config, Handler, Respond, Route, To},
    isolation,
};

/// Describes what a route serves.
pub(crate) fn describe(config: &Config, route: &Route) -> String {
    match &route.handler {
        Handler::Cgi(cgi) => {
            let kind = match &cgi.root {
                CgiRoot::Folder { .. } => "programs in",
                CgiRoot::Program { .. } => "program",
            };
            let folder = shorten_path(cgi.root.path());
            format!("{kind} {folder}{}", describe_rights(config, route, cgi))
        }
        Handler::Upstream(up) => describe_application(up),
        Handler::Files(files) => {
            let folder = shorten_path(&files.path);
            match &route.among_files {
                None => format!("files in {folder}"),
                Some(cgi) => {
                    let rights = describe_rights(config, route, cgi);
                    format!("files and programs in {folder}{rights}")
                }
            }
        }
        Handler::Respond(respond) => {
            let redirect = route.steps.as_ref().and_then(|s| s.redirect.as_ref());
            redirect.map_or_else(|| describe_answer(respond), describe_redirect)
        }
    }
}

/// Describes a route that only redirects.
fn describe_redirect(redirect: &Redirect) -> String {
    let status = redirect.status;
    let always = redirect.https.is_none() && redirect.port.is_none();
    let rest = if always {
        ""
    } else {
        " for some, 404 for others"
    };
    format!("redirect, {status} {}{rest}", reason(status))
}

fn describe_application(up: &Application) -> String {
    let scripts = match &up.scripts {
        Some(root) => format!("scripts in {}, ", shorten_path(root.path())),
        None => String::new(),
    };
    let kind = up.protocol.config_key();
    match &up.to {
        To::Address(address) => format!("{scripts}{kind} {address}"),
        To::Workers(w) => {
            let (n, run, strict) = (
                w.count,
                words::escape_path(&w.run),
                describe_strict(&up.options),
            );
            format!("{scripts}{kind} workers: {n} x {run}{strict}")
        }
    }
}

/// Describes whose rights the programs in a user's own folder have, which is not obvious, and how a strict sandbox
/// is enforced.
fn describe_rights(config: &Config, route: &Route, cgi: &Cgi) -> String {
    let users_own = config.userdir.is_some() && route.path.starts_with("/~");
    if cgi.options.strict.is_some() || cgi.runs_as_others() || !users_own {
        return describe_strict(&cgi.options);
    }
    let uid = galgo_spawn::identity::effective_uid();
    format!(" (run as the server's own user, uid {uid}, not as theirs)")
}

/// Describes how a strict sandbox is enforced; empty for any other sandbox.
fn describe_strict(options: &CgiOptions) -> String {
    match &options.strict {
        Some(_) => format!(", strict{}", isolation::describe_enforcement(options)),
        None => String::new(),
    }
}

fn describe_answer(respond: &Respond) -> String {
    let status = respond.status;
    let length = respond.body.len();
    match &respond.content_type {
        Some(kind) => format!("always {status} {}: {kind}, {length} bytes", reason(status)),
        None => format!("always {status} {}", reason(status)),
    }
}

/// Returns a path as a person in the current directory would type it.
pub(crate) fn shorten_path(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let near = path.strip_prefix(&here).ok();
    match near {
        Some(p) if p.as_os_str().is_empty() => ".".into(),
        near => words::escape_path(near.unwrap_or(path)),
    }
}
