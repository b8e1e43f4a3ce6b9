//! The configuration as the server uses it.

use std::{
    collections::BTreeSet,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use galgo_handlers::steps::{errors::Errors, rewrite::Rewrites};
use galgo_io::tls::Clients;
use galgo_proto::forwarded::Trusted;
use galgo_spawn::{
    glob::Glob,
    identity::Identity,
    owners::{Remit, RunsAs},
    readable::explain_unreadable,
};

pub use galgo_front::front_settings::{Http, Listen, Speaks};

pub use crate::{
    certificates::certificate_settings::Automatic,
    route::{Handler, Route},
};
pub use galgo_handlers::{
    application_settings::{Application, Protocol, To, Workers},
    files::Files,
    guest_access::GuestAccess,
    program_settings::{BodyMode, Cgi, CgiOptions, StartMode},
    rate_limit::{RateLimit, RateSettings},
    respond::Respond,
    root::{CgiRoot, Folder},
    sendfile::Sendfile,
    template_settings::TemplateSettings,
};
pub use galgo_io::address::Address;
pub use galgo_service::{
    admission::AdmissionSettings,
    log::{LogFormat, LogSettings, LogTo},
    spool::SpoolSettings,
};

/// The settings of the server.
#[derive(Debug)]
pub struct Config {
    /// The files that the configuration file includes.
    pub included: Vec<PathBuf>,
    /// Files that are read with the configuration, its own file among them. The server reads them again while it runs. A
    /// pattern of `include` is listed up to its first part with a `*`.
    pub read: Vec<PathBuf>,
    /// Addresses to listen on, in order.
    pub listen: Vec<Listen>,
    /// Neither the configuration nor the command line names an address to listen on.
    pub listens_by_default: bool,
    /// Names of sockets that a service manager passes to listen on. Before it serves, the server puts their addresses into
    /// `listen`.
    pub listen_passed: Vec<PassedName>,
    /// The proxies whose statements about their clients are trusted.
    pub trusted: Trusted,
    /// Permission bits of the files of Unix sockets.
    pub socket_mode: u32,
    /// The group of the files of Unix sockets.
    pub socket_group: Option<u32>,
    /// Groups that the server and programs keep beside their primary group, if their user is a member.
    pub supplementary_groups: Vec<u32>,
    /// User to become after binding, if the server was started as root.
    pub identity: Option<Identity>,
    /// User that programs run as if their route names none; `None`: the server's user.
    pub runs_as: Option<RunsAs>,
    /// Programs run as the owner of their file only if the id of that user is at least this.
    pub min_uid: u32,
    /// Programs run as the owner of their file only if the id of the owner's primary group is at least this.
    pub min_gid: u32,
    /// Event loops, each in a thread of its own (`workers`).
    pub event_loops: usize,
    /// File mode creation mask of programs.
    pub umask: u32,
    /// PATH of programs.
    pub path: String,
    /// Certificates of `https://` listeners.
    pub tls: TlsConfig,
    /// The file that holds the server's process id.
    pub pid_file: Option<PathBuf>,
    /// Logs.
    pub log: LogSettings,
    /// Folder for the compiled code of modules; `None`: the usual cache folder of the server's user.
    pub cache: Option<PathBuf>,
    /// Folder and limits for bytes that wait until their reader takes them.
    pub spool: SpoolSettings,
    /// Whether developers see why a program failed.
    pub dev_errors: DevErrors,
    /// Time for running requests after SIGTERM.
    pub shutdown_grace: Duration,
    /// Limits of connections, and their timeouts.
    pub http: Http,
    /// Limits of programs that are kept loaded for warm starts, over all routes.
    pub templates: TemplateSettings,
    /// Limits of programs that run at once, over all routes.
    pub admission: AdmissionSettings,
    /// Options of programs that a route can override.
    pub options: CgiOptions,
    /// Limit of requests from one address, which a route can override.
    pub rate_limit: Option<RateSettings>,
    /// Programs that run files by their extension, the longest extension first.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
    /// Routes, in the order to try them: the longest path first; among equal paths, routes with a host first.
    pub routes: Vec<Arc<Route>>,
    /// Rules that rewrite paths; `None`: there is no such rule.
    pub rewrites: Option<Rewrites>,
    /// Error pages of routes that have none of their own.
    pub errors: Option<Errors>,
    /// The folder with a folder for each host.
    pub sites: Option<Sites>,
    /// Settings of `/~user/`, if it is on. `routes` already holds the routes that follow from them.
    pub userdir: Option<UserDir>,
    /// Warnings for the operator, one sentence each. They are shown at the start.
    pub warnings: Vec<String>,
}

impl Config {
    /// Returns the terms under which helpers start programs, each with its place: the path of a route, or `sites`.
    pub fn remits(&self) -> impl Iterator<Item = (&str, &Arc<Remit>)> {
        let routes = self.routes.iter();
        let of_routes = routes.flat_map(|r| r.remits().map(|remit| (&*r.path, remit)));
        let of_hosts = self.sites.iter();
        let of_hosts = of_hosts
            .flat_map(|sites| [&sites.remit, &sites.remit_among_files])
            .flatten();
        of_routes.chain(of_hosts.map(|remit| ("sites", remit)))
    }

    /// Returns the password files that routes name.
    pub fn password_files(&self) -> impl Iterator<Item = &Path> {
        let steps = self.routes.iter().filter_map(|route| route.steps.as_ref());
        steps.filter_map(|steps| Some(steps.passwords.as_ref()?.path()))
    }

    /// Returns a sentence for each password file that the server cannot read once it has become its `user`. Each request that
    /// needs such a file then gets 500.
    pub fn unreadable_passwords(&self) -> Vec<String> {
        let user = self.identity.iter();
        let of = |user| {
            let files: BTreeSet<_> = self.password_files().collect();
            files
                .into_iter()
                .filter_map(move |file| explain_unreadable(file, user))
        };
        user.flat_map(of).collect()
    }

    /// Returns the first place whose programs or workers the server starts without a helper.
    pub fn starts_here(&self) -> Option<&str> {
        let mut routes = self.routes.iter();
        let route = routes.find(|route| route.starts_here());
        let hosts = self.sites.as_ref().filter(|sites| sites.remit.is_none());
        let route = route.map(|route| &*route.path);
        route.or_else(|| hosts.map(|_| "sites"))
    }
}

/// The certificates of `https://` listeners.
#[derive(Debug, Clone, Default)]
pub struct TlsConfig {
    /// Certificates that could be read. Clients that name no host, or an unknown one, get the first.
    pub certificates: Vec<crate::certificates::certificate_settings::FromFiles>,
    /// Certificates that galgo requests from an authority (ACME).
    pub automatic: Option<Automatic>,
    /// Certificates that clients are asked for; `None`: clients are not asked.
    pub clients: Option<Clients>,
    /// Whether requests without TLS are redirected to an `https://` listener.
    pub redirect: bool,
    /// The Strict-Transport-Security field of responses over TLS; `None`: no such field.
    pub hsts: Option<String>,
    /// Why a key could not be read, if its permissions are to blame.
    pub unreadable: Option<String>,
}

/// A folder with a folder for each host. galgo keeps it open.
#[derive(Debug)]
pub struct Sites {
    /// The path of the folder.
    pub path: PathBuf,
    /// The open descriptor of the folder.
    pub fd: Folder,
    /// Terms under which helpers start the hosts' programs as another user; `None`: the server starts them as its own user.
    pub remit: Option<Arc<Remit>>,
    /// Patterns for the names of programs among a host's files.
    pub cgi_names: Vec<Glob>,
    /// The terms for these programs.
    pub remit_among_files: Option<Arc<Remit>>,
}

/// `/~user/…` from `~user/public_html`, `/~user/cgi-bin/…` from `~user/cgi-bin`.
#[derive(Debug, Clone)]
pub struct UserDir {
    /// Folder of files, relative to the home.
    pub files: Option<PathBuf>,
    /// Patterns for the names of programs among the files.
    pub cgi_names: Vec<Glob>,
    /// Folder of programs, relative to the home.
    pub cgi: Option<PathBuf>,
    /// The user of programs that only a helper can start, also of those whose folder comes later.
    pub runs_as: Option<RunsAs>,
    /// The users that have such a home; `(name, home)`.
    pub users: Vec<(String, PathBuf)>,
}

/// The value of `dev_errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevErrors {
    /// `true` or `false`, as it was typed.
    Is(bool),
    /// `auto`; `terminal` says whether standard output is a terminal.
    #[allow(missing_docs)]
    Auto { terminal: bool },
}

/// A route, and the place where it was typed.
pub(crate) type Placed = (Route, Range<usize>);

/// The sockets of one name (`fd:web`, `https://fd:web`): FileDescriptorName= of systemd.socket(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedName {
    /// The name of the sockets.
    pub name: String,
    /// The protocol that clients speak on the sockets.
    pub speaks: Speaks,
}

impl PassedName {
    /// The prefix of such a name in `listen`.
    pub(crate) const PREFIX: &str = "fd:";
}

impl fmt::Display for PassedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.speaks.prefix(), Self::PREFIX, self.name)
    }
}
