//! `galgo check --url`: has the dispatcher of the server answer a request, and prints the trace of its steps. No program runs,
//! and no application is asked.

use std::{
    io::{self, Write},
    process::ExitCode,
    rc::Rc,
};

use galgo_proto::h1::Head;
use galgo_service::{client::Whole, link::Link, service::Service};

use super::asked::{UrlArgs, request};
use crate::{
    command::{identity, screen::escape_lines, site_folder::SiteArgs},
    config::Config,
    run::caller::BlockingCaller,
    trace::Trace,
};

/// Prints the steps that would answer the URL.
pub(super) fn check(site: &SiteArgs, args: &UrlArgs, url: &str) -> Result<ExitCode, String> {
    let config = site.load_config()?;
    identity::assume_identity(&config)?;
    let (head, link) = request(&config, args, url)?;
    let trace = UrlTracer::new(config)?.trace_request(head, &link);
    let line = |(step, says)| format!("{step:<18} {}\n", escape_lines(says));
    let text: String = trace.into_lines().into_iter().map(line).collect();
    // A reader that closes the pipe has read enough.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Traces requests to a site without a server.
pub(super) struct UrlTracer(BlockingCaller);

impl UrlTracer {
    /// Prepares requests to the site of this configuration.
    pub(super) fn new(config: Config) -> Result<Self, String> {
        BlockingCaller::new(config).map(Self)
    }

    /// Returns the configuration of the site.
    pub(super) fn config(&self) -> &Config {
        &self.0.caller.dispatch.site.config
    }

    /// Follows a request through the steps.
    pub(super) fn trace_request(&self, head: Head, link: &Link) -> Trace {
        let caller = &self.0.caller;
        let dispatch = caller.dispatch.to_trace();
        let mut client = Whole::new(Vec::new());
        let mut request = caller.request(Rc::new(head), link, &mut client);
        // The steps are of interest, and not the response.
        let _ = self.0.wait_for(dispatch.call(&mut request));
        *dispatch.trace.unwrap_or_default()
    }
}
