//! Settings of applications: their addresses, and how requests are sent to them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use galgo_io::address::Address;
use galgo_proto::fcgi::Role;
use galgo_spawn::owners::Remit;

/// Connections to an address at once, unless the route says otherwise.
const RUNNING: usize = 64;
/// Time limit for making a connection, unless the route says otherwise.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

use crate::{program_settings::CgiOptions, root::CgiRoot, sendfile::Sendfile};

/// An application that keeps running, and gets requests over a socket.
#[derive(Debug, PartialEq)]
pub struct Application {
    /// The protocol to speak.
    pub protocol: Protocol,
    /// The role that requests name.
    pub role: Role,
    /// The address, or the workers.
    pub to: To,
    /// The scripts that the application runs: only existing scripts are passed on. `None`: every
    /// path is passed on.
    pub scripts: Option<CgiRoot>,
    /// Extensions of scripts in a folder. Other files are not scripts.
    pub endings: Vec<String>,
    /// Index scripts to try for a folder, in order.
    pub index: Vec<String>,
    /// DOCUMENT_ROOT and the base of PATH_TRANSLATED.
    pub document_root: Option<PathBuf>,
    /// Variables set in addition, in the order of their names.
    pub env: Vec<(String, String)>,
    /// Files that the application may hand over.
    pub sendfile: Sendfile,
    /// Options for sending requests, and for running workers.
    pub options: CgiOptions,
    /// Workers run as another user than the server; `None`: as the server's user.
    pub remit: Option<Arc<Remit>>,
    /// Requests at once. Each request has a connection of its own.
    pub running: usize,
    /// Time limit for making a connection.
    pub connect_timeout: Duration,
    /// Limit of the connections that are kept open between requests.
    pub keep: usize,
}

/// The protocol that an upstream speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Protocol {
    Fastcgi,
    Scgi,
}

/// The processes that answer the requests of an [`Application`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// An application that listens at this address.
    Address(Address),
    /// Processes that galgo starts.
    Workers(Workers),
}

/// Processes that galgo starts and replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workers {
    /// The program, absolute.
    pub run: PathBuf,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Number of workers.
    pub count: usize,
    /// Requests that a worker answers before it is replaced; `None`: no limit.
    pub max_requests: Option<usize>,
}

impl Application {
    /// Creates a responder with these options and otherwise default settings.
    pub fn new(protocol: Protocol, to: To, options: CgiOptions) -> Self {
        let running = match &to {
            To::Address(_) => options.max_running.unwrap_or(RUNNING),
            To::Workers(workers) => workers.count,
        };
        Self {
            protocol,
            role: Role::RESPONDER,
            to,
            scripts: None,
            endings: Vec::new(),
            index: Vec::new(),
            document_root: None,
            env: Vec::new(),
            sendfile: Sendfile::default(),
            options,
            remit: None,
            running,
            connect_timeout: CONNECT,
            keep: 0,
        }
    }
}

impl Protocol {
    /// Returns the key of routes with this protocol.
    pub fn config_key(self) -> &'static str {
        match self {
            Self::Fastcgi => "fastcgi",
            Self::Scgi => "scgi",
        }
    }
}
