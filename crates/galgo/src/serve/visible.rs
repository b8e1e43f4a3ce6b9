//! The files that the server still sees if it starts no programs itself: one list, with the reason for each entry.
//!
//! Open files stay open. Programs that helpers start see all that their user, or their sandbox, allows.

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

/// Files of the system beyond what its libraries read. In /etc are users, groups and hosts, whose files tools replace when they
/// add an entry. In /proc and /sys the server watches its children and descriptors, and counts processors. /dev/tty tells whether
/// the terminal is still there.
const OF_SYSTEM: &[(&str, FileAccess)] = &[
    ("/etc", Read),
    ("/proc", Read),
    ("/sys/fs/cgroup", Read),
    ("/dev/tty", Change),
];

/// Files for the connection to a certificate authority. The resolver's configuration may be a link out of /etc. Variables may
/// name the certificates by which the authority's own certificate is trusted.
const RESOLVER: &str = "/etc/resolv.conf";
const TRUST: &[&str] = &["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Enters the domain, unless the server executes programs, which would inherit it. `None`: the server has not entered it, or this
/// kernel has no domains.
///
/// # Errors
/// A sentence for the operator.
pub(super) fn enter_domain(
    config: &Config,
    executes: bool,
) -> Result<Option<VisibleFiles>, String> {
    if executes {
        return Ok(None);
    }
    let entered = VisibleFiles::restrict_to(&list_visible(config));
    entered.map_err(|e| format!("cannot hide other files from the server: {e}"))
}

/// Returns the first path in a configuration that is hidden.
pub(super) fn hidden(visible: &VisibleFiles, config: &Config) -> Option<PathBuf> {
    let mut all = list_visible(config).into_iter();
    let (path, _) = all.find(|(path, access)| visible.denies_access(path, *access))?;
    Some(path)
}

fn list_visible(config: &Config) -> Vec<(PathBuf, FileAccess)> {
    let system = OF_SYSTEM.iter();
    let mut list: Vec<_> = system.map(|(path, may)| ((*path).into(), *may)).collect();
    let mut add = |may, paths: Vec<PathBuf>| list.extend(paths.into_iter().map(|path| (path, may)));
    // The configuration, passwords, certificates, keys, variables, constant answers. They are read again, and tools replace them
    // by new files of the same name.
    add(Read, config.read.iter().flat_map(folders).collect());
    // The files and folders of routes.
    add(Read, config.routes.iter().flat_map(|r| served(r)).collect());
    let sites = config
        .sites
        .iter()
        .filter_map(|sites| sites.fd.current_path());
    add(Read, sites.collect());
    // The home of a new account appears in the same folder as the other homes.
    let homes = config.userdir.iter().flat_map(|userdir| &userdir.users);
    add(Read, homes.flat_map(|(_, home)| folders(home)).collect());
    // Logs are opened again after they were renamed.
    let log = &config.log;
    let logs = log.access.iter().chain([&log.error]).chain(&log.own);
    let logs = logs.filter_map(|to| match to {
        LogTo::File(path) => Some(path),
        LogTo::Stdout | LogTo::Stderr => None,
    });
    add(Make, logs.flat_map(folders).collect());
    // The file is removed at the end.
    add(Make, config.pid_file.iter().flat_map(folders).collect());
    // A reload makes sockets there, and removes them with their locks.
    let sockets = config.listen.iter().filter_map(|l| match &l.address {
        Address::Unix(path) => Some(path),
        Address::Tcp(_) => None,
    });
    add(Make, sockets.flat_map(folders).collect());
    if let Some(automatic) = &config.tls.automatic {
        let stored = store::state_folder(automatic, config.identity.as_ref());
        add(Make, vec![stored]);
        add(Read, authority());
    }
    // Bodies that wait for their reader.
    let spool = spool::resolve_folder(&config.spool);
    add(spooling(&spool), vec![spool]);
    list
}

/// Returns the folder of a file, and the folder of the file that a link leads to: the file may be replaced.
fn folders(file: &PathBuf) -> Vec<PathBuf> {
    let above = |path: &Path| match path.parent() {
        Some(folder) if folder != Path::new("/") => folder.to_owned(),
        // For a file in `/` just the file itself, because its folder would show everything.
        _ => path.to_owned(),
    };
    let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
    let behind = resolve(&file).ok().map(|found| found.path);
    let both = behind.iter().chain([&file]);
    both.map(|path| above(path)).collect()
}

/// Returns the files, programs and scripts of a route: the server checks whether they exist, and their kind.
fn served(route: &Route) -> Vec<PathBuf> {
    let files = match &route.handler {
        Handler::Files(files) => files.fd.current_path(),
        _ => None,
    };
    let programs = route
        .programs()
        .into_iter()
        .chain(route.authorizer_program());
    let of_programs = programs.flat_map(|cgi| handler_folders(Some(&cgi.root), &cgi.sendfile));
    let upstreams = route.upstreams();
    let of_upstreams = upstreams.flat_map(|up| handler_folders(up.scripts.as_ref(), &up.sendfile));
    let programs = of_programs.chain(of_upstreams);
    files.into_iter().chain(programs).collect()
}

/// Returns a handler's folder, and the folders whose files it may hand over.
fn handler_folders(root: Option<&CgiRoot>, sendfile: &Sendfile) -> Vec<PathBuf> {
    let root = root.and_then(|root| match root {
        CgiRoot::Folder { fd, .. } => fd.current_path(),
        CgiRoot::Program { .. } => Some(root.folder().to_owned()),
    });
    let named = sendfile.paths.iter().map(|(_, files)| files);
    let handed = sendfile.folders.iter().chain(named);
    let handed = handed.filter_map(|files: &Files| files.fd.current_path());
    root.into_iter().chain(handed).collect()
}

/// Returns the files for the connection to a certificate authority.
fn authority() -> Vec<PathBuf> {
    let told = TRUST.iter().filter_map(std::env::var_os);
    let told = told.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>());
    let resolver = folders(&RESOLVER.into());
    resolver.into_iter().chain(told).collect()
}

/// Returns the access to the spool folder: files are made there only if they get names.
fn spooling(folder: &Path) -> FileAccess {
    if spool::needs_named_files(folder) {
        Make
    } else {
        Change
    }
}
