//! A configuration as the server uses it.

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
    identity::Identity,
    owners::{Remit, RunsAs},
    readable::unreadable,
};

pub use galgo_front::settings::{Http, Listen, Speaks};

pub use crate::{
    certificates::settings::Automatic,
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

/// Everything the server was told.
#[derive(Debug)]
pub struct Config {
    /// The files that its file includes.
    pub included: Vec<PathBuf>,
    /// Files that are read with it, its own among them, and again while the server runs. Of a pattern of `include` the first part with
    /// a `*`.
    pub read: Vec<PathBuf>,
    /// Where to listen, in order.
    pub listen: Vec<Listen>,
    /// Neither the configuration nor the command line says where to listen.
    pub listens_by_default: bool,
    /// Sockets of a service manager to listen on, by their names. Before it serves, the server puts their addresses into `listen`.
    pub listen_passed: Vec<PassedName>,
    /// The proxies whose word about a client counts.
    pub trusted: Trusted,
    /// Permission bits of the files of Unix sockets.
    pub socket_mode: u32,
    /// The group that the files of Unix sockets are given to.
    pub socket_group: Option<u32>,
    /// Groups that the server and programs keep beside their own one, if their user is a member.
    pub supplementary_groups: Vec<u32>,
    /// Whom to become after binding, when started as root.
    pub identity: Option<Identity>,
    /// Whom programs run as where their route does not say; `None`: as the server does.
    pub runs_as: Option<RunsAs>,
    /// The lowest id of a user that programs run as because their file belongs to it.
    pub min_uid: u32,
    /// The lowest id of such a user's own group.
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
    /// Where the compiled code of modules is kept; `None`: where the system's user keeps such things.
    pub cache: Option<PathBuf>,
    /// Where bytes wait that their reader does not take yet, and how many may.
    pub spool: SpoolSettings,
    /// Show the cause of a failed program to developers.
    pub dev_errors: DevErrors,
    /// How long requests may go on after SIGTERM.
    pub shutdown_grace: Duration,
    /// Connection limits and clocks.
    pub http: Http,
    /// Programs kept loaded for warm starts, over all routes.
    pub templates: TemplateSettings,
    /// Programs running at once, over all routes.
    pub admission: AdmissionSettings,
    /// How programs are run where a route does not say otherwise.
    pub options: CgiOptions,
    /// How often an address may ask a route that does not say otherwise.
    pub rate_limit: Option<RateSettings>,
    /// Programs that run files by their ending, the longest ending first.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
    /// Routes, in the order to try them: the longest path first; of equal paths those with a host first.
    pub routes: Vec<Arc<Route>>,
    /// Paths that stand for others; `None`: there is no such rule.
    pub rewrites: Option<Rewrites>,
    /// Pages of errors where a route has none of its own.
    pub errors: Option<Errors>,
    /// The folder with a folder for each host.
    pub sites: Option<Sites>,
    /// `/~user/`, where it is on. Its routes stand among `routes` already.
    pub userdir: Option<UserDir>,
    /// What the operator should know, one sentence each: shown at the start.
    pub warnings: Vec<String>,
}

impl Config {
    /// What helpers start, each with its place: the path of a route, or `sites`.
    pub fn remits(&self) -> impl Iterator<Item = (&str, &Arc<Remit>)> {
        let routes = self.routes.iter();
        let of_routes = routes.flat_map(|r| r.remits().map(|remit| (&*r.path, remit)));
        let of_hosts = self.sites.iter().filter_map(|sites| sites.remit.as_ref());
        of_routes.chain(of_hosts.map(|remit| ("sites", remit)))
    }

    /// The files of passwords that routes name.
    pub fn password_files(&self) -> impl Iterator<Item = &Path> {
        let steps = self.routes.iter().filter_map(|route| route.steps.as_ref());
        steps.filter_map(|steps| Some(steps.passwords.as_ref()?.path()))
    }

    /// A sentence for each file of passwords that the server cannot read once it is its `user`: each request that needs one then
    /// gets 500.
    pub fn unreadable_passwords(&self) -> Vec<String> {
        let user = self.identity.iter();
        let of = |user| {
            let files: BTreeSet<_> = self.password_files().collect();
            files
                .into_iter()
                .filter_map(move |file| unreadable(file, user))
        };
        user.flat_map(of).collect()
    }

    /// The first place whose programs or workers the server itself starts.
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
    /// Those that could be read; the first is shown to clients that name no host, or an unknown one.
    pub certificates: Vec<crate::certificates::settings::FromFiles>,
    /// Those that come by themselves.
    pub automatic: Option<Automatic>,
    /// The certificates that clients are asked for; `None`: none.
    pub clients: Option<Clients>,
    /// Requests that came without TLS are sent to an `https://` listener.
    pub redirect: bool,
    /// Strict-Transport-Security of responses in TLS; `None`: they have none.
    pub hsts: Option<String>,
    /// Why a key could not be read, where its permissions are to blame.
    pub unreadable: Option<String>,
}

/// A folder with a folder for each host, which is held open.
#[derive(Debug)]
pub struct Sites {
    /// Its path.
    pub path: PathBuf,
    /// Its descriptor.
    pub fd: Folder,
    /// Programs of hosts run as another user than the server; `None`: as the server does.
    pub remit: Option<Arc<Remit>>,
}

/// `/~user/…` from `~user/public_html`, `/~user/cgi-bin/…` from `~user/cgi-bin`.
#[derive(Debug, Clone)]
pub struct UserDir {
    /// Folder of files, relative to the home.
    pub files: Option<PathBuf>,
    /// Folder of programs, relative to the home.
    pub cgi: Option<PathBuf>,
    /// The users that have one; `(name, home)`.
    pub users: Vec<(String, PathBuf)>,
}

/// `dev_errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevErrors {
    /// As told.
    Is(bool),
    /// `dev_errors`; with `auto`, `terminal` says whether standard output is one.
    #[allow(missing_docs)]
    Auto { terminal: bool },
}

/// A route, and where it was typed.
pub(super) type Placed = (Route, Range<usize>);

/// All sockets of a name (`fd:web`, `https://fd:web`): FileDescriptorName= of systemd.socket(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedName {
    /// The name.
    pub name: String,
    /// What is spoken there.
    pub speaks: Speaks,
}

impl PassedName {
    /// What stands before a name in `listen`.
    pub(super) const PREFIX: &str = "fd:";
}

impl fmt::Display for PassedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.speaks.prefix(), Self::PREFIX, self.name)
    }
}
