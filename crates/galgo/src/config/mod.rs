//! The configuration, checked: paths absolute, defaults applied, folders opened.
//! `raw` is what was typed; nothing outside this module sees it.
//!
//! | room | holds |
//! |---|---|
//! | `raw`, `units` | keys and values as they are typed |
//! | `error` | errors with file, line, column, key and mend |
//! | `check`, `routes`, `handlers`, `upstream`, `fields`, `userdir` | from typed to checked |
//! | `cover` | no program's source is served as a file |
//! | `folder`, `identity` | what the file system and the system's accounts say |
//! | `desk` | who is shown why a program has failed |
//! | `front` | whose word about a client counts, files that programs hand over |
//! | `defaults`, `source` | defaults, where a configuration comes from |

mod check;
mod cover;
mod defaults;
mod desk;
mod error;
mod fields;
mod folder;
mod front;
mod handlers;
mod identity;
mod raw;
mod routes;
mod source;
#[cfg(test)]
mod tests;
mod units;
mod upstream;
mod userdir;

use std::{path::PathBuf, sync::Arc, time::Duration};

pub use desk::DevErrors;
pub use error::ConfigError;
pub use folder::Folder;
pub use identity::{Identity, identity};

use galgo_proto::{fcgi::Role, forwarded::Trusted};
use galgo_spawn::Limits;

pub use galgo_front::settings::{Http, Listen, Speaks};

pub use crate::{
    address::Address,
    admission::Settings as Admission,
    log::{LogFormat, LogTo, Settings as Log},
    spool::Settings as Spool,
};

/// Everything the server was told.
#[derive(Debug)]
pub struct Config {
    /// Where to listen, in order.
    pub listen: Vec<Listen>,
    /// The proxies whose word about a client counts.
    pub trusted: Trusted,
    /// Permission bits of the files of Unix sockets.
    pub socket_mode: u32,
    /// The group that the files of Unix sockets are given to.
    pub socket_group: Option<u32>,
    /// Whom to become after binding, when started as root.
    pub identity: Option<Identity>,
    /// Threads, each with an event loop of its own.
    pub workers: usize,
    /// File mode creation mask of programs.
    pub umask: u32,
    /// PATH of programs.
    pub path: String,
    /// Logs.
    pub log: Log,
    /// Where the compiled code of modules is kept; `None`: where the system's user keeps such things.
    pub cache: Option<PathBuf>,
    /// Where bytes wait that nobody takes yet, and how many may.
    pub spool: Spool,
    /// Show the cause of a failed program to developers.
    pub dev_errors: DevErrors,
    /// How long requests may go on after SIGTERM.
    pub shutdown_grace: Duration,
    /// Connection limits and clocks.
    pub http: Http,
    /// Programs kept loaded for warm starts, over all routes.
    pub templates: Templates,
    /// Programs running at once, over all routes.
    pub admission: Admission,
    /// How programs are run where a route does not say otherwise.
    pub options: CgiOptions,
    /// Programs that run files by their ending, the longest ending first.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
    /// Routes, in the order to try them: the longest path first; of equal paths those with a host first.
    pub routes: Vec<Arc<Route>>,
    /// `/~user/`, where it is on. Its routes stand among `routes` already.
    pub userdir: Option<UserDir>,
    /// What the operator should know, one sentence each: shown at the start.
    pub warnings: Vec<String>,
}

/// Programs kept loaded for warm starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Templates {
    /// Templates at once; each program has two.
    pub count: usize,
    /// Bytes of memory they may hold together; a template that is loaded may go beyond it.
    pub memory: u64,
    /// A program that is not asked for is let go of after this.
    pub idle: Duration,
    /// Requests wait for a template that is being loaded: for who wants to meet it, not for servers.
    pub wait: bool,
}

/// A route: what answers under a path.
#[derive(Debug, PartialEq)]
pub struct Route {
    /// Host it is limited to, lower case, no port.
    pub host: Option<String>,
    /// Path it answers: a prefix where it ends in `/`, otherwise this path and what is below it (`/path/…`).
    pub path: String,
    /// Who is asked first whether the request may be answered; `None`: nobody.
    pub authorizer: Option<Upstream>,
    /// What answers.
    pub handler: Handler,
}

impl Route {
    /// The applications that it asks.
    pub fn upstreams(&self) -> impl Iterator<Item = &Upstream> {
        let handler = match &self.handler {
            Handler::Upstream(up) => Some(up),
            Handler::Cgi(_) | Handler::Files(_) | Handler::Respond(_) => None,
        };
        self.authorizer.iter().chain(handler)
    }
}

/// The kinds of handlers; wasm will be another.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Handler {
    Cgi(Cgi),
    Upstream(Upstream),
    Files(Files),
    Respond(Respond),
}

/// Programs.
#[derive(Debug, PartialEq)]
pub struct Cgi {
    /// Where they are.
    pub root: CgiRoot,
    /// DOCUMENT_ROOT and the base of PATH_TRANSLATED: the folder of the `/` files route of the same
    /// host, else the program folder.
    pub document_root: PathBuf,
    /// Variables set in addition, in the order of their names.
    pub env: Vec<(String, String)>,
    /// Variables of a request that programs find while they are loaded for warm starts, when there is none yet.
    pub load_env: Vec<(String, String)>,
    /// Programs that run files by their ending: (".php", "/usr/bin/php-cgi").
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
    /// Files that programs may hand over.
    pub handover: Handover,
    /// How programs are run.
    pub options: CgiOptions,
    /// What WebAssembly programs see of this machine.
    pub sight: Sight,
}

/// What WebAssembly programs of a route see of this machine: nothing, unless it is named here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// Folders: their path in the program, their path here, whether they may be written to.
    pub folders: Vec<(String, PathBuf, bool)>,
    /// Other machines, over TCP and UDP.
    pub network: bool,
}

/// The folders out of which programs may have files sent in place of a body of their own.
#[derive(Debug, Default, PartialEq)]
pub struct Handover {
    /// For `X-Sendfile`, which names a file by its path.
    pub folders: Vec<Files>,
    /// For `X-Accel-Redirect`, which names it by a path of its own: (`/protected/`, folder), the longest first.
    pub paths: Vec<(String, Files)>,
}

/// A folder of programs, or one program.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)]
pub enum CgiRoot {
    /// The folder and its descriptor (O_PATH), for openat2 with RESOLVE_BENEATH.
    Folder {
        path: PathBuf,
        fd: Folder,
    },
    Program {
        path: PathBuf,
    },
}

/// How programs of a route are run. Everything here may be set per route and under `[defaults]`.
#[derive(Debug, Clone, PartialEq)]
pub struct CgiOptions {
    /// Start a program anew for each request, or fork it when it has been loaded.
    pub start: StartMode,
    /// Pass the Authorization field to the program.
    pub pass_authorization: bool,
    /// Hand the body over as a pipe or as a file.
    pub body: BodyMode,
    /// Let the program finish when the client has gone.
    pub run_to_completion: bool,
    /// Words of a query without `=` become arguments (RFC 3875, 4.4).
    pub query_args: bool,
    /// Drop field values that begin with `() {`.
    pub drop_shellshock: bool,
    /// Until the response head is whole.
    pub first_byte_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// For the whole request.
    pub total_timeout: Duration,
    /// Between TERM and KILL.
    pub kill_grace: Duration,
    /// Bytes of a request body: 413 beyond.
    pub max_body: u64,
    /// Bytes of the response head.
    pub max_reply_head: usize,
    /// Bytes of standard error that go to the log, per request.
    pub max_stderr: usize,
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// Programs of this route at once; `None`: only the server's limit.
    pub max_running: Option<usize>,
}

/// `start = "cold" | "warm"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StartMode {
    Cold,
    Warm,
}

/// `body = "stream" | "file"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BodyMode {
    Stream,
    File,
}

/// Programs that stay, and are asked over a socket.
#[derive(Debug, PartialEq)]
pub struct Upstream {
    /// What is spoken.
    pub protocol: Protocol,
    /// What it is asked to be.
    pub role: Role,
    /// To whom.
    pub to: To,
    /// The scripts that it runs: only one that exists is asked for. `None`: every path is passed on.
    pub scripts: Option<CgiRoot>,
    /// What the names of scripts in a folder end in; others are none.
    pub endings: Vec<String>,
    /// Scripts tried for a folder of them, in order.
    pub index: Vec<String>,
    /// DOCUMENT_ROOT and the base of PATH_TRANSLATED.
    pub document_root: Option<PathBuf>,
    /// Variables set in addition, in the order of their names.
    pub env: Vec<(String, String)>,
    /// Files that it may hand over.
    pub handover: Handover,
    /// How it is asked, and for workers how they are run.
    pub options: CgiOptions,
    /// Requests at once: each has a connection of its own.
    pub running: usize,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// Connections kept open between requests, at most.
    pub keep: usize,
}

/// What an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Protocol {
    Fastcgi,
    Scgi,
}

/// Who answers the requests of an [`Upstream`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// Somebody who listens there.
    Address(Address),
    /// Processes that galgo starts.
    Workers(Workers),
}

/// Processes that galgo starts and replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workers {
    /// The program, absolute.
    pub run: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// How many there are.
    pub count: usize,
    /// Requests that one answers before it is replaced; `None`: it is not.
    pub max_requests: Option<usize>,
}

/// Static files.
#[derive(Debug, PartialEq)]
pub struct Files {
    /// The folder, absolute.
    pub path: PathBuf,
    /// Its descriptor (O_PATH), for openat2 with RESOLVE_BENEATH.
    pub fd: Folder,
    /// Names tried for a folder, in order.
    pub index: Vec<String>,
    /// List folders without an index.
    pub listing: bool,
    /// Send `name.br`, `name.zst`, `name.gz` beside a file where the client takes it.
    pub precompressed: bool,
    /// Media types by ending, without the dot, that come before the built-in table.
    pub types: Vec<(String, String)>,
    /// Media type of anything else.
    pub default_type: String,
    /// Fields added to every response (`Cache-Control`).
    pub headers: Vec<(String, String)>,
    /// Files with one of these endings are programs, and are refused: their source would be shown.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
}

/// A constant answer from memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Respond {
    /// Status.
    pub status: u16,
    /// Content-Type; `None` where there is no body.
    pub content_type: Option<String>,
    /// Fields added.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Arc<[u8]>,
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
