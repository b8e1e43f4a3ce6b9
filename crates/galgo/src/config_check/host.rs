//! Routes to the folders of a home or of a host: a folder of files and a folder of programs. Each folder may be missing. No
//! link leads out of the home, or of the host's folder.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use galgo_handlers::{
    root::{self, open_below},
    wasm::module_terms_of_host,
};
use galgo_proto::hosts::{Hosts, is_folder_name};
use galgo_spawn::{
    glob::Glob,
    owners::{PROGRAMS, PUBLIC, Remit},
    words,
};
use toml::Spanned;

use crate::{
    config::{Cgi, CgiRoot, Config, Files, Folder, Handler, RateLimit, Route, Sites},
    config_text::{
        config_error::{Checked, ConfigText},
        folder::path_of_open,
        raw::{RawConfig, RawSites, RawSitesTable},
    },
};

/// Returns a route to files, and to the programs among them whose names fit `names`.
pub(crate) fn build_files_route(
    url: String,
    (path, fd): (PathBuf, Folder),
    names: &[Glob],
    remit: Option<Arc<Remit>>,
    config: &Config,
) -> Route {
    let plain = Files::new(path.clone(), fd.clone());
    let indexes = names
        .iter()
        .filter_map(|name| name.as_str().strip_prefix('*'));
    let indexes = indexes.map(|ending| format!("index{ending}"));
    let files = Files {
        interpreters: config.interpreters.clone(),
        cgi_names: names.to_vec(),
        index: indexes.chain(plain.index.clone()).collect(),
        ..plain
    };
    let programs = || {
        let mut cgi = below_folder((path.clone(), fd), path, config);
        cgi.names = names.to_vec();
        cgi.set_remit(remit, false);
        Arc::new(cgi)
    };
    Route {
        among_files: (!names.is_empty()).then(programs),
        ..build_route(url, Handler::Files(files), config)
    }
}

/// Returns a route to programs.
pub(crate) fn build_programs_route(
    url: String,
    (path, fd): (PathBuf, Folder),
    document_root: PathBuf,
    remit: Option<Arc<Remit>>,
    config: &Config,
) -> Route {
    let mut cgi = below_folder((path, fd), document_root, config);
    cgi.set_remit(remit, false);
    build_route(url, Handler::Cgi(Arc::new(cgi)), config)
}

fn below_folder((path, fd): (PathBuf, Folder), document_root: PathBuf, config: &Config) -> Cgi {
    Cgi {
        interpreters: config.interpreters.clone(),
        options: config.options.clone(),
        ..Cgi::new(CgiRoot::Folder { path, fd }, document_root)
    }
}

fn build_route(url: String, handler: Handler, config: &Config) -> Route {
    Route {
        rate_limit: config.rate_limit.map(RateLimit::new),
        ..Route::new(url, handler)
    }
}

impl ConfigText<'_> {
    /// Checks `sites`, the folder with a folder for each host.
    pub(crate) fn check_sites(&self, raw: &RawConfig, config: &Config) -> Checked<Option<Sites>> {
        let Some(typed) = &raw.sites else {
            return Ok(None);
        };
        let at = || typed.span();
        let table = match typed.get_ref() {
            RawSites::Text(path) => &RawSitesTable {
                path: Some(Spanned::new(at(), path.clone())),
                ..RawSitesTable::default()
            },
            RawSites::Table(table) => table,
        };
        let Some(typed) = &table.path else {
            let message = "has no `path`: name the folder of the hosts, as in path = \"/srv/www\"";
            return Err(self.error_at(at(), message));
        };
        let path = self.resolve_path(typed)?;
        let fd = root::open_folder(&path).map_err(|e| self.open_error(typed, &path, &e))?;
        let cgi_names = self.check_cgi_names(&table.cgi_names)?;
        // One remit serves the programs of all hosts, and one those among files, so that a new host needs no reload.
        let remit = |names: Vec<Glob>| {
            let all = Cgi {
                names,
                ..below_folder((path.clone(), fd.clone()), PathBuf::new(), config)
            };
            let remit = self.build_remit(&table.user, &None, &all, config, false)?;
            Ok(remit.map(|remit| Arc::new(remit.for_hosts_folder())))
        };
        Ok(Some(Sites {
            remit: remit(Vec::new())?,
            remit_among_files: match cgi_names[..] {
                [] => None,
                _ => remit(cgi_names.clone())?,
            },
            cgi_names,
            fd: fd.clone(),
            path: path.clone(),
        }))
    }
}

impl Sites {
    /// Opens the folder of a host and returns its routes, the longest path first. Returns no routes if the host has no folder
    /// that is served.
    ///
    /// # Errors
    /// A sentence about a folder that is there but is not served.
    pub fn open_routes(&self, host: &str, config: &Config) -> Result<Vec<Arc<Route>>, String> {
        if !is_folder_name(host) {
            return Ok(Vec::new());
        }
        let path = self.path.join(host);
        // Each host has its folder to itself: no link below leads to the folder of another host.
        let Some(own) =
            open_if_present(&self.fd, host).map_err(|e| unopened(&self.path, host, &e))?
        else {
            return Ok(Vec::new());
        };
        let open = |name| {
            let fd = open_if_present(&own, name).map_err(|e| unopened(&path, name, &e))?;
            Ok::<_, String>(fd.map(|fd| (path.join(name), fd)))
        };
        let (public, programs) = (open(PUBLIC)?, open(PROGRAMS)?);
        if let (Some((_, public)), Some((_, programs))) = (&public, &programs)
            && overlap(public, programs)
        {
            return Err(format!(
                "{}: one of {PUBLIC} and {PROGRAMS} contains the other, and anybody could read sources of programs: move them apart",
                path.display()
            ));
        }
        let folder = public.as_ref().or(programs.as_ref());
        let document_root = folder.map(|(path, _)| path.clone()).unwrap_or_default();
        let of_host = |all: &Option<Arc<Remit>>| remit_of(all.as_ref()?, host).map(Arc::new);
        let url = format!("/{PROGRAMS}/");
        let programs = programs
            .map(|at| build_programs_route(url, at, document_root, of_host(&self.remit), config));
        let among_files = of_host(&self.remit_among_files);
        let files = public
            .map(|at| build_files_route("/".into(), at, &self.cgi_names, among_files, config));
        let hosts = Hosts::new(vec![host.to_owned()]);
        let routes = programs.into_iter().chain(files).map(|route| {
            let host = hosts.clone();
            Arc::new(Route { host, ..route })
        });
        Ok(routes.collect())
    }

    /// Returns the names in the folder, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list_names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?.map(|entry| {
            let name = entry?.file_name();
            Ok(name.to_string_lossy().into_owned())
        });
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }
}

/// Derives the remit of one host from the remit for the folders of all hosts. `None`: `host` is not the name of a host.
pub(crate) fn remit_of(sites: &Remit, host: &str) -> Option<Remit> {
    sites.derive_for_host(host, module_terms_of_host)
}

/// Opens a folder below another folder. `None`: there is nothing of that name, or no folder.
fn open_if_present(base: &Folder, name: &str) -> io::Result<Option<Folder>> {
    match open_below(base, Path::new(name)) {
        Ok(folder) => Ok(Some(folder)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Says why a folder below another folder was not opened, and names the fix.
fn unopened(base: &Path, name: &str, error: &io::Error) -> String {
    let path = base.join(name);
    match error.kind() {
        ErrorKind::CrossesDevices => format!(
            "{}: a symbolic link leads out of its folder: put a folder there",
            path.display()
        ),
        ErrorKind::PermissionDenied => format!(
            "{}: the server's user cannot enter this folder: chmod a+x {}",
            base.display(),
            words::shell_argument(base)
        ),
        _ => format!("{}: {error}", path.display()),
    }
}

/// Returns whether either folder lies in the other.
fn overlap(a: &Folder, b: &Folder) -> bool {
    match (path_of_open(a), path_of_open(b)) {
        (Ok(a), Ok(b)) => a.starts_with(&b) || b.starts_with(&a),
        _ => true,
    }
}
