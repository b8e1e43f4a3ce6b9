//! Default values. `galgo.example.toml` shows the same values; a test compares them.

use std::{sync::Arc, thread, time::Duration};

use galgo_proto::forwarded::{ForwardedField, Trusted};

use super::checked::{
    Address, AdmissionSettings, CgiOptions, Config, DevErrors, Http, Listen, LogSettings, Speaks,
    SpoolSettings, TemplateSettings, TlsConfig,
};

/// Returns how many processors this process may use.
fn available_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl Default for Config {
    /// Returns a configuration without routes, and with the default of everything else.
    fn default() -> Self {
        let address = Address::Tcp(([127, 0, 0, 1], 8080).into());
        Self {
            included: Vec::new(),
            read: Vec::new(),
            listen: vec![Listen {
                address,
                speaks: Speaks::Http,
            }],
            listens_by_default: true,
            listen_passed: Vec::new(),
            trusted: Trusted {
                fields: vec![ForwardedField::For, ForwardedField::Proto],
                ..Trusted::default()
            },
            socket_mode: 0o660,
            socket_group: None,
            supplementary_groups: Vec::new(),
            identity: None,
            runs_as: None,
            min_uid: 1000,
            min_gid: 100,
            event_loops: available_cores(),
            umask: 0o022,
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            tls: TlsConfig::default(),
            pid_file: None,
            log: LogSettings::default(),
            cache: None,
            spool: SpoolSettings::default(),
            dev_errors: DevErrors::Is(false),
            shutdown_grace: Duration::from_secs(10),
            http: Http::default(),
            templates: TemplateSettings::default(),
            admission: AdmissionSettings::default(),
            rate_limit: None,
            options: CgiOptions::default(),
            interpreters: Arc::default(),
            routes: Vec::new(),
            rewrites: None,
            errors: None,
            sites: None,
            userdir: None,
            warnings: Vec::new(),
        }
    }
}
