//! Checks that programs are not served as files. If a program folder lies inside a folder of files, a route other than that
//! files route has to cover it. Otherwise clients could read the programs' sources.

use std::{
    ffi::OsStr,
    fs,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use galgo_proto::hosts::Hosts;
use galgo_spawn::{
    glob::Glob,
    hanging::look_at,
    owners::{PROGRAMS, PUBLIC},
    trusted_path::canonicalize,
};

use crate::{
    config::{Application, CgiRoot, Config, Files, Handler, Placed, Route, Sites},
    config_text::{
        config_error::{ConfigError, ConfigText},
        folder::path_of_open,
        raw::RawConfig,
    },
};

/// The index of the route to blame, and the error.
type Offence = (usize, ConfigError);

pub(crate) fn check_routes(text: &ConfigText<'_>, routes: &[Placed]) -> Result<(), Offence> {
    for (files_route, at) in routes {
        let Handler::Files(files) = &files_route.handler else {
            continue;
        };
        let base = resolved_folder(files);
        for (to_blame, (cgi_route, _)) in routes.iter().enumerate() {
            // A files route does not show a file that it knows as a program.
            let known =
                std::ptr::eq(cgi_route, files_route) || recognizes_programs(files, cgi_route);
            let programs = programs_root(cgi_route).filter(|_| !known);
            let judge = cgi_route.authorizer_program().map(|cgi| &cgi.root);
            for programs in programs.into_iter().chain(judge) {
                let Ok(root) = canonicalize(programs.path()) else {
                    continue;
                };
                let Ok(below) = root.strip_prefix(&base) else {
                    continue;
                };
                let url = exposing_url(files_route, below, programs);
                if !is_disclosed(routes, files_route, &url) {
                    continue;
                }
                let url = String::from_utf8_lossy(&url);
                let error =
                    text.keyless_error(at.clone(), exposure_message(files, cgi_route, &url));
                return Err((to_blame, text.mark_owner(error, programs.path(), 403)));
            }
        }
    }
    Ok(())
}

/// Returns the programs of a route, or the scripts of its application.
fn programs_root(route: &Route) -> Option<&CgiRoot> {
    match &route.handler {
        Handler::Upstream(up) => up.scripts.as_ref(),
        _ => route.programs().map(|cgi| &cgi.root),
    }
}

/// Returns the message that a URL would show the programs of `route`, with the fix.
fn exposure_message(files: &Files, route: &Route, url: &str) -> String {
    let names = match &route.handler {
        Handler::Upstream(up) => script_names(up),
        _ => {
            let own = route.programs().map_or(&[][..], |cgi| &cgi.names);
            let all = route.names.iter().chain(own);
            all.map(|name| name.as_str().to_owned()).collect()
        }
    };
    let instead = match &names[..] {
        [] => "replace that route with `cgi_names` in this one".to_owned(),
        // Every file would count as a program.
        names if names.iter().any(|name| name == "*") => {
            "list the extensions of scripts as `scripts` in that route and as `cgi_names` in this one".to_owned()
        }
        names => format!("add to this route: cgi_names = {names:?}"),
    };
    let path = &route.path;
    let pattern = route.names.as_ref().map_or("", Glob::as_str);
    format!(
        "files: {} holds the programs of \"{path}{pattern}\", and anybody could read their sources at {url:?}: move the programs out, add a `cgi` route with that path, or {instead}",
        files.path.display()
    )
}

/// Returns patterns for the names of an application's scripts.
fn script_names(up: &Application) -> Vec<String> {
    match &up.scripts {
        Some(CgiRoot::Program { path, .. }) => {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.into_iter().map(Into::into).collect()
        }
        _ => up.endings.iter().map(|end| format!("*{end}")).collect(),
    }
}

/// Returns whether the files route recognizes all programs of a route by their names.
fn recognizes_programs(files: &Files, route: &Route) -> bool {
    // The pattern is compared as if it were a name: its `*` fits only a `*` of the other pattern, which then fits all names
    // that this pattern stands for.
    let all = |pattern: &Glob| files.is_source(pattern.as_str().as_bytes());
    let one = |path: &Path| {
        let name = path.file_name();
        name.is_some_and(|name| files.is_source(name.as_bytes()))
    };
    if let Handler::Upstream(up) = &route.handler {
        // In a folder, the application runs only scripts with these extensions.
        let known = |end: &String| files.is_source(format!("*{end}").as_bytes());
        return match &up.scripts {
            Some(CgiRoot::Program { path, .. }) => one(path),
            Some(CgiRoot::Folder { .. }) => !up.endings.is_empty() && up.endings.iter().all(known),
            None => false,
        };
    }
    let Some(cgi) = route.programs() else {
        return false;
    };
    match (&cgi.root, &route.names) {
        (CgiRoot::Program { path, .. }, _) => one(path),
        _ if !cgi.names.is_empty() => cgi.names.iter().all(all),
        // If a folder's name fits the pattern, each file in that folder is a program.
        (CgiRoot::Folder { path, .. }, Some(names)) => all(names) && !has_folder(path, names),
        (CgiRoot::Folder { .. }, None) => false,
    }
}

/// Returns whether `path` holds a folder whose name fits the pattern.
fn has_folder(path: &Path, names: &Glob) -> bool {
    let found = look_at(path, || {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut fit = entries.filter(|entry| names.matches_name(entry.file_name().as_bytes()));
        Ok(fit.any(|entry| entry.path().is_dir()))
    });
    found.unwrap_or(false)
}

/// Checks that no `files` route shows the programs of a host's folder, and that no host's folder shows the programs of a
/// route.
pub(crate) fn check_host_folders(
    text: &ConfigText<'_>,
    raw: &RawConfig,
    config: &Config,
    routes: &[Placed],
) -> Result<(), Offence> {
    let (Some(typed), Some(sites)) = (&raw.sites, &config.sites) else {
        return Ok(());
    };
    let Ok(base) = canonicalize(&sites.path) else {
        return Ok(());
    };
    for (to_blame, (route, _)) in routes.iter().enumerate() {
        let fail = |path: &Path, words: String| {
            let error = text.error_at(typed.span(), words);
            Err((to_blame, text.mark_owner(error, path, 403)))
        };
        if let Handler::Files(files) = &route.handler {
            let shown = resolved_folder(files);
            // The folder HOST itself, or a path in HOST/cgi-bin, or in HOST/public if programs are there.
            let mut below = shown.strip_prefix(&base).into_iter().flatten();
            let mut names = sites.cgi_names.iter();
            let hides = names.all(|name| files.is_source(name.as_str().as_bytes()));
            let holds = |name: &OsStr| name == PROGRAMS || name == PUBLIC && !hides;
            let within = below.next().is_some() && below.next().is_none_or(holds);
            if base.starts_with(&shown) || within {
                return fail(
                    &files.path,
                    format!(
                        "the files at {:?} ({}) would publish the sources of the hosts' programs: give that route another folder",
                        route.path,
                        shown.display()
                    ),
                );
            }
        }
        // Programs in HOST/public whose names `sites` knows are not shown there.
        let is_known = |name: &Glob| {
            let mut names = sites.cgi_names.iter();
            names.any(|known| known.matches_any_case(name.as_str().as_bytes()))
        };
        let hidden = route
            .programs()
            .is_some_and(|cgi| !cgi.names.is_empty() && cgi.names.iter().all(is_known));
        let programs = programs_root(route).filter(|_| !hidden);
        let programs = programs.and_then(|root| canonicalize(root.path()).ok());
        if let Some(path) = programs.filter(|path| is_public(&base, path)) {
            return fail(
                &path,
                format!(
                    "the programs of {:?} lie in {}, where anybody could read their sources: move them out of there",
                    route.path,
                    path.display()
                ),
            );
        }
    }
    Ok(())
}

/// Returns whether a host's folder shows a path: the path lies in `HOST/public`, and no name below begins with a dot.
fn is_public(base: &Path, path: &Path) -> bool {
    let Ok(below) = path.strip_prefix(base) else {
        return false;
    };
    let mut names = below.iter().skip(1);
    let hidden = |name: &std::ffi::OsStr| name.as_bytes().starts_with(b".");
    names.next().is_some_and(|name| name == "public") && !names.any(hidden)
}

/// Checks that no `files` route shows a file of passwords or of variables. Names that begin with a dot are never shown.
pub(crate) fn check_secrets(
    text: &ConfigText<'_>,
    routes: &[Placed],
    env_files: &[(PathBuf, Range<usize>, Range<usize>)],
    sites: Option<&Sites>,
) -> Result<(), Offence> {
    let sites = sites.and_then(|sites| canonicalize(&sites.path).ok());
    let passwords = routes
        .iter()
        .enumerate()
        .filter_map(|(place, (route, at))| {
            let passwords = route.steps.as_ref()?.passwords.as_ref()?;
            Some(("passwords", passwords.path(), at, place))
        });
    let variables = env_files.iter().filter_map(|(path, at, route)| {
        let place = routes
            .iter()
            .position(|(other, at)| at == route && !matches!(other.handler, Handler::Respond(_)))?;
        Some(("env_file", &**path, at, place))
    });
    for (key, path, at, place) in passwords.chain(variables) {
        let fail = |words: String| {
            let error = text.keyless_error(at.clone(), words);
            Err((place, text.mark_owner(error, path, 403)))
        };
        let Ok(file) = canonicalize(path) else {
            continue;
        };
        if sites.as_ref().is_some_and(|sites| is_public(sites, &file)) {
            let file = file.display();
            return fail(format!(
                "{key}: {file} lies in the folder of a host of `sites`, where everybody could read it: move it out of there"
            ));
        }
        for (files_route, _) in routes {
            let Handler::Files(files) = &files_route.handler else {
                continue;
            };
            let Ok(below) = file.strip_prefix(resolved_folder(files)) else {
                continue;
            };
            let mut names = below.iter();
            if !names.any(|name| name.as_bytes().starts_with(b".")) {
                let (file, path) = (file.display(), &files_route.path);
                return fail(format!(
                    "{key}: {file} lies in the folder of the files at {path:?}, where everybody could read it: move it out of there"
                ));
            }
        }
    }
    Ok(())
}

/// Returns the path of the folder that was opened, with links resolved.
fn resolved_folder(files: &Files) -> PathBuf {
    path_of_open(&files.fd)
        .or_else(|_| canonicalize(&files.path))
        .unwrap_or(files.path.clone())
}

/// Returns the URL at which the files route would show the programs.
fn exposing_url(route: &Route, below: &Path, root: &CgiRoot) -> Vec<u8> {
    let mut url = [route.path.as_bytes(), below.as_os_str().as_bytes()].concat();
    if matches!(root, CgiRoot::Folder { .. }) && !url.ends_with(b"/") {
        url.push(b'/');
    }
    url
}

/// Returns whether `url` leads to the files route on any host. A host that no route names is treated like a request without a
/// host.
fn is_disclosed(routes: &[Placed], files: &Route, url: &[u8]) -> bool {
    let hosts = routes.iter().filter_map(|(route, _)| route.host.as_ref());
    // A wildcard, taken as a name, stands for a host that fits only this wildcard.
    let hosts = hosts.flat_map(Hosts::names);
    hosts.chain([""]).any(|host| {
        let tried = routes.iter().map(|(route, _)| route);
        let winner = crate::route::find_index(tried, host, url).and_then(|(at, _)| routes.get(at));
        winner.is_some_and(|(route, _)| std::ptr::eq(route, files))
    })
}
