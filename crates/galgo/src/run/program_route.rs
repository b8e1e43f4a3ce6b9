//! Finds the route that serves a program.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use galgo_spawn::words;

use crate::config::{Cgi, CgiRoot, Config, Handler, Route};

/// A program's place on a site.
#[derive(Debug)]
pub(super) struct ProgramPlace {
    pub(super) config: Config,
    /// The configuration's file, if it has one.
    pub(super) file: Option<PathBuf>,
    pub(super) route: Owner,
}

/// A route, its programs, and the decoded path that names one program.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) route: Arc<Route>,
    pub(super) cgi: Arc<Cgi>,
    pub(super) url: Vec<u8>,
}

impl ProgramPlace {
    /// Finds a program's place. It is in the named configuration, else on the nearest site above the program, else on a site
    /// that has only this program.
    pub(super) fn locate(program: &Path, config: Option<&Path>) -> Result<Self, String> {
        let file = resolve_existing(program)?;
        if let Some(named) = config {
            let config = Config::load(named).map_err(|e| e.to_string())?;
            let route = owning_route(&config, &file).ok_or_else(|| {
                let (named, file) = (words::escape_path(named), words::escape_path(&file));
                format!("no `cgi` route of {named} holds {file}: add one, or omit --config")
            })?;
            let file = Some(named.to_owned());
            return Ok(Self {
                config,
                file,
                route,
            });
        }
        for (folder, child) in file.ancestors().skip(1).zip(file.ancestors()) {
            let own = folder.join("galgo.toml");
            let by_name = child != file && child.file_name().is_some_and(|n| n == "cgi-bin");
            let config = match own.is_file() {
                true => Config::load(&own),
                false if by_name => Config::from_convention(folder),
                false => continue,
            };
            let config = config.map_err(|e| e.to_string())?;
            if let Some(route) = owning_route(&config, &file) {
                let file = Some(own).filter(|own| own.is_file());
                return Ok(Self {
                    config,
                    file,
                    route,
                });
            }
        }
        build_lone_site(&file)
    }
}

/// Returns the absolute path of the program's file. Links are not resolved, because argv[0] is the program as named.
fn resolve_existing(program: &Path) -> Result<PathBuf, String> {
    let (shown, argument) = (words::escape_path(program), words::shell_argument(program));
    let file = std::path::absolute(program).map_err(|e| format!("{shown}: {e}"))?;
    match file.metadata() {
        Ok(m) if m.is_dir() => Err(format!(
            "{shown} is a folder: name a program, or serve the folder (galgo serve {argument})"
        )),
        Ok(_) => Ok(file),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let there = Path::new("cgi-bin").join(program);
            let hint = if there.is_file() {
                format!("; did you mean {}?", words::escape_path(&there))
            } else {
                String::new()
            };
            Err(format!("{shown} does not exist{hint}"))
        }
        Err(e) => Err(format!("{shown}: {e}")),
    }
}

/// Returns the route that answers with this program. Of several, the route with the innermost folder wins.
fn owning_route(config: &Config, file: &Path) -> Option<Owner> {
    let owns = |route: &Arc<Route>| {
        let cgi = route.programs()?.clone();
        let below = path_below_root(&cgi.root, file)?;
        let below = below.as_os_str().as_bytes();
        if !route.answers_name(below) {
            return None;
        }
        let url = [route.path.as_bytes(), below].concat();
        let depth = cgi.root.path().components().count();
        let route = route.clone();
        Some((depth, Owner { route, cgi, url }))
    };
    let of_host = host_routes(config, file);
    let owners = config.routes.iter().chain(&of_host).filter_map(owns);
    // If the folders are equal, the route that is tried first wins.
    owners
        .reduce(|a, b| if b.0 > a.0 { b } else { a })
        .map(|(_, owner)| owner)
}

/// Returns the routes of the host whose folder of `sites` holds the file.
fn host_routes(config: &Config, file: &Path) -> Vec<Arc<Route>> {
    let host = config.sites.as_ref().and_then(|sites| {
        let base = sites.path.canonicalize().ok()?;
        let file = file.parent()?.canonicalize().ok()?;
        let host = file.strip_prefix(base).ok()?.iter().next()?.to_str()?;
        sites.open_routes(host, config).ok()
    });
    host.unwrap_or_default()
}

/// Returns the program's path below a folder of programs, with the links on both ways resolved. The path is empty if the route
/// has only this program.
fn path_below_root(root: &CgiRoot, file: &Path) -> Option<PathBuf> {
    let resolved = |file: &Path| Some(file.parent()?.canonicalize().ok()?.join(file.file_name()?));
    let real = resolved(file)?;
    match root {
        CgiRoot::Folder { path, .. } => {
            let folder = path.canonicalize().ok()?;
            real.strip_prefix(folder).ok().map(Path::to_owned)
        }
        CgiRoot::Program { path, .. } => (real == resolved(path)?).then(PathBuf::new),
    }
}

/// Makes a site with nothing but this program, at `/cgi-bin/NAME`.
fn build_lone_site(file: &Path) -> Result<ProgramPlace, String> {
    let shown = words::escape_path(file);
    let root = CgiRoot::open(file).map_err(|e| format!("{shown} {e}"))?;
    let folder = root.folder().to_owned();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let path = format!("/cgi-bin/{name}");
    let url = path.clone().into_bytes();
    let cgi = Arc::new(Cgi::new(root, folder));
    let route = Arc::new(Route::new(path, Handler::Cgi(cgi.clone())));
    let config = Config {
        routes: vec![route.clone()],
        ..Config::default()
    };
    let route = Owner { route, cgi, url };
    Ok(ProgramPlace {
        config,
        file: None,
        route,
    })
}
