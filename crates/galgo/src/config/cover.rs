//! Programs must not be served as files: a program folder inside a files folder has to be covered
//! by a route that is not that files route, else its sources could be read.

use std::{
    fs,
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use super::{
    checked::{CgiRoot, Files, Handler, Placed, Route},
    error::ConfigError,
    error::ConfigText,
};

pub(super) fn check(text: &ConfigText<'_>, routes: &[Placed]) -> Result<(), ConfigError> {
    for (files_route, at) in routes {
        let Handler::Files(files) = &files_route.handler else {
            continue;
        };
        let base = real(files);
        for (cgi_route, _) in routes {
            let programs = match &cgi_route.handler {
                Handler::Cgi(cgi) => Some(&cgi.root),
                Handler::Upstream(up) => up.scripts.as_ref(),
                Handler::Files(_) | Handler::Respond(_) => None,
            };
            let Some(programs) = programs else {
                continue;
            };
            let Ok(root) = fs::canonicalize(programs.path()) else {
                continue;
            };
            let Ok(below) = root.strip_prefix(&base) else {
                continue;
            };
            let url = url(files_route, below, programs);
            if disclosed(routes, files_route, &url) {
                let url = String::from_utf8_lossy(&url);
                return Err(text.bare(at.clone(), format!(
                    "files: {} holds the programs of {:?}, and their sources could be read at {url:?}: move the programs out, or add a `cgi` route with that path",
                    files.path.display(), cgi_route.path,
                )));
            }
        }
    }
    Ok(())
}

/// The path of the folder that was opened, links resolved.
fn real(files: &Files) -> PathBuf {
    let link = format!("/proc/self/fd/{}", files.fd.as_fd().as_raw_fd());
    fs::read_link(link)
        .or_else(|_| fs::canonicalize(&files.path))
        .unwrap_or(files.path.clone())
}

/// Where the files route would show the programs.
fn url(route: &Route, below: &Path, root: &CgiRoot) -> Vec<u8> {
    let mut url = [route.path.as_bytes(), below.as_os_str().as_bytes()].concat();
    if matches!(root, CgiRoot::Folder { .. }) && !url.ends_with(b"/") {
        url.push(b'/');
    }
    url
}

/// Whether any host leads `url` to the files route. A host that no route names behaves as none.
fn disclosed(routes: &[Placed], files: &Route, url: &[u8]) -> bool {
    let hosts = routes.iter().filter_map(|(route, _)| route.host.as_deref());
    hosts.chain([""]).any(|host| {
        let tried = routes.iter().map(|(route, _)| route);
        let winner = crate::route::first(tried, host, url).and_then(|(at, _)| routes.get(at));
        winner.is_some_and(|(route, _)| std::ptr::eq(route, files))
    })
}
