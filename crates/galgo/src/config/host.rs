//! The routes to a folder of files and one of programs that a home or a host has: each may be there or not, and no link
//! leads out of the home, or of the host's folder.

use std::{
    fs,
    io::{self, ErrorKind},
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use galgo_handlers::root::open_below;
use galgo_proto::hosts::{Hosts, is_folder_name};

use super::checked::{Cgi, CgiRoot, Config, Files, Folder, Handler, RateLimit, Route, Sites};

/// The folders of a host: files, and programs.
const PUBLIC: &str = "public";
const PROGRAMS: &str = "cgi-bin";

/// A route to files.
pub(super) fn files(url: String, path: PathBuf, fd: Folder, config: &Config) -> Route {
    let files = Files {
        interpreters: config.interpreters.clone(),
        ..Files::new(path, fd)
    };
    route(url, Handler::Files(files), config)
}

/// A route to programs.
pub(super) fn programs(
    url: String,
    (path, fd): (PathBuf, Folder),
    document_root: PathBuf,
    config: &Config,
) -> Route {
    let cgi = Cgi {
        interpreters: config.interpreters.clone(),
        options: config.options.clone(),
        ..Cgi::new(CgiRoot::Folder { path, fd }, document_root)
    };
    route(url, Handler::Cgi(Arc::new(cgi)), config)
}

fn route(url: String, handler: Handler, config: &Config) -> Route {
    Route {
        rate_limit: config.rate_limit.map(RateLimit::new),
        ..Route::new(url, handler)
    }
}

impl Sites {
    /// The routes of a host, whose folder is opened now; the longest path first. None: it has no folder that is served.
    ///
    /// # Errors
    /// What is there is not served, in words.
    pub fn routes(&self, host: &str, config: &Config) -> Result<Vec<Arc<Route>>, String> {
        if !is_folder_name(host) {
            return Ok(Vec::new());
        }
        let path = self.path.join(host);
        let words = |path: &Path, e: io::Error| format!("{}: {}", path.display(), why(&e));
        // The folder of a host is its own: no link below it leads to another one's.
        let Some(own) = below(&self.fd, host).map_err(|e| words(&path, e))? else {
            return Ok(Vec::new());
        };
        let open = |name| {
            let path = path.join(name);
            let fd = below(&own, name).map_err(|e| words(&path, e))?;
            Ok::<_, String>(fd.map(|fd| (path, fd)))
        };
        let (public, programs) = (open(PUBLIC)?, open(PROGRAMS)?);
        if let (Some((_, public)), Some((_, programs))) = (&public, &programs)
            && overlap(public, programs)
        {
            return Err(format!(
                "{}: {PUBLIC} and {PROGRAMS} lie in each other, and sources of programs could be read: move them apart",
                path.display()
            ));
        }
        let folder = public.as_ref().or(programs.as_ref());
        let document_root = folder.map(|(path, _)| path.clone()).unwrap_or_default();
        let programs = programs.map(|programs| {
            self::programs(format!("/{PROGRAMS}/"), programs, document_root, config)
        });
        let files = public.map(|(path, fd)| files("/".into(), path, fd, config));
        let hosts = Hosts::new(vec![host.to_owned()]);
        let routes = programs.into_iter().chain(files).map(|route| {
            let host = hosts.clone();
            Arc::new(Route { host, ..route })
        });
        Ok(routes.collect())
    }

    /// The names in the folder, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| {
            let name = entry?.file_name();
            Ok(name.to_string_lossy().into_owned())
        });
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }
}

/// A folder below another one. `None`: it is not there, or no folder.
fn below(base: &Folder, name: &str) -> io::Result<Option<Folder>> {
    match open_below(base, Path::new(name)) {
        Ok(folder) => Ok(Some(folder)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::CrossesDevices => "a link leads out of the folder".into(),
        _ => error.to_string(),
    }
}

/// Whether one of two folders lies in the other.
fn overlap(a: &Folder, b: &Folder) -> bool {
    let path =
        |folder: &Folder| fs::read_link(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()));
    match (path(a), path(b)) {
        (Ok(a), Ok(b)) => a.starts_with(&b) || b.starts_with(&a),
        _ => true,
    }
}
