//! Applications: where they are, and how they are asked.

use std::{path::PathBuf, sync::Arc, time::Duration};

use galgo_io::address::Address;
use galgo_proto::fcgi::Role;
use galgo_spawn::owners::Remit;

/// Connections to an address at once, where the route does not say.
const RUNNING: usize = 64;
/// How long a connection may take to be made, where the route does not say.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

use crate::{program_settings::CgiOptions, root::CgiRoot, sendfile::Sendfile};

/// Programs that stay, and are asked over a socket.
#[derive(Debug, PartialEq)]
pub struct Application {
    /// What is spoken.
    pub protocol: Protocol,
    /// What it is asked to be.
    pub role: Role,
    /// Where it is.
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
    pub sendfile: Sendfile,
    /// How it is asked, and for workers how they are run.
    pub options: CgiOptions,
    /// Workers run as another user than the server; `None`: as the server does.
    pub remit: Option<Arc<Remit>>,
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

/// What answers the requests of an [`Application`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// An application that listens there.
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

impl Application {
    /// A responder with these options and nothing of its own.
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
    /// The key of its routes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fastcgi => "fastcgi",
            Self::Scgi => "scgi",
        }
    }
}
