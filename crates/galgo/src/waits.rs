//! Lookups that threads do for an event loop, because a file system may hang
//! ([`galgo_handlers::blocking`]).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use galgo_handlers::{blocking, files::Files, steps::tries::Tried};
use galgo_proto::h1::Head;
use galgo_service::fault::Fault;
use tokio::time::Instant;

use crate::{
    config::Sites,
    hosts::HostFolder,
    route::{Handler, Match},
    site::Site,
};

/// Decides, in a thread, the paths to try for a request if the file system may hang.
pub(crate) async fn tried_by_thread(
    head: &Head,
    found: &Match<'_, '_>,
    files: &Files,
) -> Result<Tried, Fault> {
    let (route, head, rest) = (found.route.clone(), head.clone(), found.rest.to_vec());
    let tried = blocking::run_in_folder(&files.fd, move || {
        let tries = route.steps.as_ref()?.tries.as_ref()?;
        let Handler::Files(files) = &route.handler else {
            return None;
        };
        let place = (files, route.among_files.as_deref());
        tries.decide(place, &head, &route.path, &rest).ok()
    });
    Ok(tried.await?.unwrap_or(Tried::AsItIs))
}

/// Returns the folder of a host as it is now.
pub(crate) fn host_folder(
    site: &Site,
    sites: &Sites,
    host: &str,
    now: Instant,
) -> Result<Option<Arc<HostFolder>>, String> {
    let gone = || site.starters.warm.forget_gone();
    site.hosts.open_host(sites, host, &site.config, now, gone)
}

/// Like `host_folder`, for a host whose file system may hang. Each host has its own threads.
pub(crate) async fn host_by_thread(
    site: &Arc<Site>,
    sites: &Sites,
    host: &str,
    now: Instant,
) -> Result<Result<Option<Arc<HostFolder>>, String>, Fault> {
    let mut hasher = DefaultHasher::new();
    host.hash(&mut hasher);
    // Smaller numbers are ids of users.
    let owner = hasher.finish() | 1 << 63;
    let (own, name) = (site.clone(), host.to_owned());
    let looks = blocking::run_for_owner(owner, move || {
        let sites = own.config.sites.as_ref()?;
        Some(host_folder(&own, sites, &name, now))
    });
    looks.await.flatten().ok_or_else(|| {
        let path = sites.path.join(host);
        Fault::Stalled(format!(
            "{}: its file system does not answer",
            path.display()
        ))
    })
}
