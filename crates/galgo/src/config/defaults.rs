//! What holds where nothing is typed. `galgo.example.toml` shows the same values; a test compares.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use galgo_proto::forwarded::{Field, Trusted};
use galgo_spawn::Limits;

use super::{
    Address, Admission, BodyMode, Cgi, CgiOptions, CgiRoot, Config, DevErrors, Handover, Http,
    Listen, Log, Sight, Speaks, Spool, StartMode, Templates,
};

/// Processors this process may use.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl Default for Config {
    /// No routes, and the defaults of everything else.
    fn default() -> Self {
        let address = Address::Tcp(([127, 0, 0, 1], 8080).into());
        Self {
            listen: vec![Listen {
                address,
                speaks: Speaks::Http,
            }],
            trusted: Trusted {
                fields: vec![Field::For, Field::Proto],
                ..Trusted::default()
            },
            socket_mode: 0o660,
            socket_group: None,
            identity: None,
            workers: cores(),
            umask: 0o022,
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            log: Log::default(),
            cache: None,
            spool: Spool::default(),
            dev_errors: DevErrors::Is(false),
            shutdown_grace: Duration::from_secs(10),
            http: Http::default(),
            templates: Templates::default(),
            admission: Admission::default(),
            options: CgiOptions::default(),
            interpreters: Arc::default(),
            routes: Vec::new(),
            userdir: None,
            warnings: Vec::new(),
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self {
            count: 64,
            memory: 1 << 30,
            idle: Duration::from_secs(600),
            wait: false,
        }
    }
}

impl Default for CgiOptions {
    fn default() -> Self {
        Self {
            start: StartMode::Cold,
            pass_authorization: false,
            body: BodyMode::Stream,
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
            max_running: None,
        }
    }
}

impl Cgi {
    /// Programs with default options, no variables of their own and no interpreters.
    pub fn new(root: CgiRoot, document_root: PathBuf) -> Self {
        Self {
            root,
            document_root,
            env: Vec::new(),
            load_env: Vec::new(),
            interpreters: Arc::default(),
            handover: Handover::default(),
            options: CgiOptions::default(),
            sight: Sight::default(),
        }
    }
}
