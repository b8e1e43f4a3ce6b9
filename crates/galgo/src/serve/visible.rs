//! What the server still sees of the file system where it starts nothing itself: one list, and why each is there.
//!
//! What it has open, it keeps. What helpers start sees what its user may, or its sandbox.

use std::path::{Path, PathBuf};

use galgo_handlers::{files::Files, root::CgiRoot, sendfile::Sendfile};
use galgo_service::spool;
use galgo_spawn::{
    sandbox::{
        FileAccess::{self, Change, Make, Read},
        VisibleFiles,
    },
    trusted_path::resolve,
};

use crate::{
    certificates::store,
    config::{Address, Config, Handler, LogTo, Route},
};

/// Beside what the system's libraries read: users, groups and hosts, whose files are replaced by others when one is added; where the
/// server looks at its children and descriptors; how many processors it has; and whether its terminal is there.
const OF_SYSTEM: &[(&str, FileAccess)] = &[
    ("/etc", Read),
    ("/proc", Read),
    ("/sys/fs/cgroup", Read),
    ("/dev/tty", Change),
];

/// What an authority of certificates is found by: its address, which may be told elsewhere than in /etc, and whom its own certificate
/// is signed by.
const RESOLVER: &str = "/etc/resolv.conf";
const TRUST: &[&str] = &["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Enters the domain, unless the server executes programs: they would inherit it. `None`: it has not, or this kernel has none.
///
/// # Errors
/// In words.
pub(super) fn enter(config: &Config, executes: bool) -> Result<Option<VisibleFiles>, String> {
    if executes {
        return Ok(None);
    }
    let entered = VisibleFiles::enter(&list(config));
    entered.map_err(|e| format!("cannot give up the sight of other files: {e}"))
}

/// The first thing that a configuration names and that is hidden.
pub(super) fn hidden(visible: &VisibleFiles, config: &Config) -> Option<PathBuf> {
    let mut all = list(config).into_iter();
    let (path, _) = all.find(|(path, access)| visible.hides(path, *access))?;
    Some(path)
}

fn list(config: &Config) -> Vec<(PathBuf, FileAccess)> {
    let system = OF_SYSTEM.iter();
    let mut list: Vec<_> = system.map(|(path, may)| ((*path).into(), *may)).collect();
    let mut add = |may, paths: Vec<PathBuf>| list.extend(paths.into_iter().map(|path| (path, may)));
    // The configuration, passwords, certificates, keys, variables, constant answers: read again, and replaced by others of their name.
    add(Read, config.read.iter().flat_map(folders).collect());
    // What is served.
    add(Read, config.routes.iter().flat_map(|r| served(r)).collect());
    let sites = config.sites.iter().filter_map(|sites| sites.fd.path());
    add(Read, sites.collect());
    // Another account has its home beside the others.
    let homes = config.userdir.iter().flat_map(|userdir| &userdir.users);
    add(Read, homes.flat_map(|(_, home)| folders(home)).collect());
    // Logs are opened again after they were given other names.
    let log = &config.log;
    let logs = log.access.iter().chain([&log.error]).chain(&log.own);
    let logs = logs.filter_map(|to| match to {
        LogTo::File(path) => Some(path),
        LogTo::Stdout | LogTo::Stderr => None,
    });
    add(Make, logs.flat_map(folders).collect());
    // Removed at the end.
    add(Make, config.pid_file.iter().flat_map(folders).collect());
    // Sockets of a reload are made there, and removed with their locks.
    let sockets = config.listen.iter().filter_map(|l| match &l.address {
        Address::Unix(path) => Some(path),
        Address::Tcp(_) => None,
    });
    add(Make, sockets.flat_map(folders).collect());
    if let Some(automatic) = &config.tls.automatic {
        let stored = store::folder(automatic, config.identity.as_ref());
        add(Make, vec![stored]);
        add(Read, authority());
    }
    // Bodies that wait.
    let spool = spool::folder(&config.spool);
    add(spooling(&spool), vec![spool]);
    list
}

/// The folders in which a file is, and is reached by a link: another one may come in its place.
fn folders(file: &PathBuf) -> Vec<PathBuf> {
    let above = |path: &Path| match path.parent() {
        Some(folder) if folder != Path::new("/") => folder.to_owned(),
        // All that there is would be seen for one file.
        _ => path.to_owned(),
    };
    let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
    let behind = resolve(&file).ok().map(|found| found.path);
    let both = behind.iter().chain([&file]);
    both.map(|path| above(path)).collect()
}

/// What a route shows: files, programs and scripts, of which the server finds out whether they are there and what kind they are.
fn served(route: &Route) -> Vec<PathBuf> {
    let files = match &route.handler {
        Handler::Files(files) => files.fd.path(),
        _ => None,
    };
    let programs = route.programs().into_iter().chain(route.judge());
    let of_programs = programs.flat_map(|cgi| of(Some(&cgi.root), &cgi.sendfile));
    let upstreams = route.upstreams();
    let of_upstreams = upstreams.flat_map(|up| of(up.scripts.as_ref(), &up.sendfile));
    let programs = of_programs.chain(of_upstreams);
    files.into_iter().chain(programs).collect()
}

/// Of what answers: its folder, and those whose files it may hand over.
fn of(root: Option<&CgiRoot>, sendfile: &Sendfile) -> Vec<PathBuf> {
    let root = root.and_then(|root| match root {
        CgiRoot::Folder { fd, .. } => fd.path(),
        CgiRoot::Program { .. } => Some(root.folder().to_owned()),
    });
    let named = sendfile.paths.iter().map(|(_, files)| files);
    let handed = sendfile.folders.iter().chain(named);
    let handed = handed.filter_map(|files: &Files| files.fd.path());
    root.into_iter().chain(handed).collect()
}

/// What is read to speak with an authority.
fn authority() -> Vec<PathBuf> {
    let told = TRUST.iter().filter_map(std::env::var_os);
    let told = told.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let resolver = folders(&RESOLVER.into());
    resolver.into_iter().chain(told).collect()
}

/// Where no file gets a name, none need be made.
fn spooling(folder: &Path) -> FileAccess {
    if spool::takes_names(folder) {
        Make
    } else {
        Change
    }
}
