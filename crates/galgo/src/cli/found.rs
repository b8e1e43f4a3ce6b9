//! The table of what a configuration serves.

use std::io::{self, Write};

use crate::config::{CgiRoot, Config, Handler, Route};

/// Prints a line for each route and each program.
pub(super) fn table(out: &mut impl Write, config: &Config, _terminal: bool) -> io::Result<()> {
    for route in &config.routes {
        let (kind, what) = describe(route);
        let host = route.host.as_deref().unwrap_or("");
        writeln!(
            out,
            "  {:<28} {kind:<8} {what}",
            format!("{host}{}", route.path)
        )?;
    }
    Ok(())
}

fn describe(route: &Route) -> (&'static str, String) {
    match &route.handler {
        Handler::Cgi(cgi) => match &cgi.root {
            CgiRoot::Folder { path, .. } => ("programs", path.display().to_string()),
            CgiRoot::Program { path } => ("program", path.display().to_string()),
        },
        Handler::Files(files) => ("files", files.path.display().to_string()),
        Handler::Respond(respond) => (
            "answer",
            format!("{}, {} bytes", respond.status, respond.body.len()),
        ),
    }
}
