//! Settings of programs, and of how they are run.

use std::{ffi::CString, path::PathBuf, sync::Arc, time::Duration};

use galgo_proto::h1::BodyLen;
use galgo_spawn::glob::Glob;
use galgo_spawn::{
    EnvBlock, Launch, Limits, Priority, Sandbox, owners::Remit, sandbox::Confinement,
};

use crate::{cache::AnswerCache, guest_access::GuestAccess, root::CgiRoot, sendfile::Sendfile};

/// A route's programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Cgi {
    /// The folder of programs, or the program.
    pub root: CgiRoot,
    /// Only files with these names are programs; empty: all.
    pub names: Vec<Glob>,
    /// DOCUMENT_ROOT and the base of PATH_TRANSLATED: the folder of the `/` files route of the same
    /// host, else the program folder.
    pub document_root: PathBuf,
    /// Variables set in addition, in the order of their names.
    pub env: Vec<(String, String)>,
    /// Variables of a request that programs find while they are loaded for warm starts, when there is no request yet.
    pub load_env: Vec<(String, String)>,
    /// Interpreters of files by extension: (".php", "/usr/bin/php-cgi").
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
    /// Files that programs may hand over.
    pub sendfile: Sendfile,
    /// Options for running programs.
    pub options: CgiOptions,
    /// The parts of this machine that WebAssembly programs can see.
    pub guest_access: GuestAccess,
    /// Programs may get the connection if the client asks for another protocol on it.
    pub upgrade: bool,
    /// Answers that are kept for a moment, and shared; `None`: each request has its own.
    pub cache: Option<Arc<AnswerCache>>,
    /// Programs run as another user than the server; `None`: as the server's user.
    pub remit: Option<Arc<Remit>>,
    /// Running programs count for their user, over all routes, and not for this route.
    pub counts_for_user: bool,
}

impl Cgi {
    /// Creates settings with default options, no variables of their own and no interpreters.
    pub fn new(root: CgiRoot, document_root: PathBuf) -> Self {
        Self {
            root,
            names: Vec::new(),
            document_root,
            env: Vec::new(),
            load_env: Vec::new(),
            interpreters: Arc::default(),
            sendfile: Sendfile::default(),
            options: CgiOptions::default(),
            guest_access: GuestAccess::default(),
            upgrade: false,
            cache: None,
            remit: None,
            counts_for_user: false,
        }
    }

    /// Returns whether programs run as another user than the server.
    pub fn runs_as_others(&self) -> bool {
        self.remit.as_ref().is_some_and(|r| r.runs_as_others())
    }

    /// Sets the terms under which a helper starts the programs. `limited`: the route has a `max_running` of its own.
    pub fn set_remit(&mut self, remit: Option<Arc<Remit>>, limited: bool) {
        self.remit = remit;
        if self.runs_as_others() && !limited {
            // What `[defaults]` says is the limit of each user.
            self.options.max_running = None;
            self.counts_for_user = true;
        }
    }

    /// Returns whether a file of this name is a program, if the file exists.
    pub fn is_program(&self, name: &[u8]) -> bool {
        self.names.is_empty() || self.names.iter().any(|glob| glob.matches_name(name))
    }
}

/// Options for running the programs of a route. Every field may be set per route and under `[defaults]`.
#[derive(Debug, Clone, PartialEq)]
pub struct CgiOptions {
    /// Start a program anew for each request, or fork it once it has been loaded.
    pub start: StartMode,
    /// Pass the Authorization field to the program.
    pub pass_authorization: bool,
    /// Hand the body over as a pipe or as a file.
    pub body: BodyMode,
    /// Hand over a body without a length as it arrives. Otherwise it is received whole first, so that it has a length.
    pub stream_body: bool,
    /// Let the program finish when the client has gone.
    pub run_to_completion: bool,
    /// Words of a query without `=` become arguments (RFC 3875, 4.4).
    pub query_args: bool,
    /// Drop field values that begin with `() {`.
    pub drop_shellshock: bool,
    /// Time limit until the response head is whole.
    pub first_byte_timeout: Duration,
    /// Time limit without a byte in either direction.
    pub idle_timeout: Duration,
    /// Time limit of the whole request.
    pub total_timeout: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// Limit of a request body in bytes: 413 beyond.
    pub max_body: u64,
    /// Limit of the response head in bytes.
    pub max_reply_head: usize,
    /// Limit of the standard error that goes to the log, in bytes per request.
    pub max_stderr: usize,
    /// Resource limits.
    pub limits: Limits,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// `sandbox`: restrictions on programs.
    pub sandbox: Sandbox,
    /// Permissions that `sandbox = "strict"`, or a table in its place, leaves to programs. `sandbox` is then the standard one.
    pub strict: Option<Arc<Confinement>>,
    /// Programs of this route at once; `None`: only the server's limit.
    pub max_running: Option<usize>,
}

impl Default for CgiOptions {
    fn default() -> Self {
        Self {
            start: StartMode::Cold,
            pass_authorization: false,
            body: BodyMode::Stream,
            stream_body: false,
            run_to_completion: false,
            query_args: false,
            drop_shellshock: true,
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            total_timeout: Duration::from_secs(3600),
            kill_grace: Duration::from_secs(2),
            max_body: 1 << 30,
            max_reply_head: 64 << 10,
            max_stderr: 1 << 20,
            limits: Limits {
                open_files: Some(1024),
                ..Limits::default()
            },
            no_new_privs: true,
            sandbox: Sandbox::Standard,
            strict: None,
            max_running: None,
        }
    }
}

impl CgiOptions {
    /// Returns the usual start of a program with these options: its `args`, argv[0] first, its environment, and its working
    /// directory.
    pub(crate) fn make_launch(&self, args: Vec<CString>, env: EnvBlock, dir: CString) -> Launch {
        Launch {
            path: None,
            args,
            env,
            dir,
            limits: self.limits,
            no_new_privs: self.no_new_privs,
            sandbox: self.sandbox,
            more: Vec::new(),
            knocks: false,
            priority: Priority::Normal,
        }
    }

    /// Returns whether a body with this framing is received whole before the program is started. Most programs read by
    /// CONTENT_LENGTH (RFC 3875, 4.1.2) and take a body without a length for an empty body.
    pub(crate) fn receives_first(&self, body: BodyLen) -> bool {
        match body {
            BodyLen::None => false,
            BodyLen::Length(_) => self.body == BodyMode::File,
            BodyLen::Chunked => self.body == BodyMode::File || !self.stream_body,
        }
    }

    /// Returns `sandbox` as it is written in a configuration.
    pub fn sandbox_name(&self) -> &'static str {
        match self.strict {
            Some(_) => "strict",
            None => self.sandbox.config_name(),
        }
    }
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
