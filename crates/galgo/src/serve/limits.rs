//! Limits of this machine and of this user.

use std::sync::Arc;

use galgo_front::accept::{CROWD, IN_A_ROW};
use galgo_service::link::is_loopback;
use galgo_spawn::{
    owners::{self, Remit, RunsAs},
    resource_limit,
};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{
    config::{Address, Config, Listen, Route, StartMode},
    hosts,
};

/// Refuses to serve other machines as root: that needs a user to become.
pub(super) fn allowed(config: &Config) -> Result<(), String> {
    if !galgo_spawn::identity::is_root() || config.identity.is_some() {
        return Ok(());
    }
    let is_open = |l: &&Listen| matches!(&l.address, Address::Tcp(at) if !is_loopback(at.ip()));
    match config.listen.iter().find(is_open) {
        Some(listen) => Err(format!(
            "refusing to listen on {listen} as root: programs would run as root for everybody. \
             Name the user to run as: `user = \"www-data\"` in the configuration, or --user www-data"
        )),
        None => Ok(()),
    }
}

/// Upper limit of descriptors: more would be useless.
const DESCRIPTORS: u64 = 1 << 20;
/// The usual default limit of systems.
const FEW_DESCRIPTORS: u64 = 1024;

/// Raises the soft limit of descriptors to the hard one; programs get theirs from `open_files`.
pub(super) fn raise_descriptors() -> u64 {
    let Some(now) = resource_limit(Resource::Nofile) else {
        return FEW_DESCRIPTORS;
    };
    let most = now.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    let wanted = Rlimit {
        current: Some(most),
        maximum: now.maximum,
    };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => most,
        Err(_) => now.current.unwrap_or(DESCRIPTORS),
    }
}

/// Returns a number of connections such that every accepted connection finds the descriptors that its request may need. Each
/// connection needs a socket, and every second one an open file. Reserved before that are the pipes of running programs, the
/// files of waiting requests, templates, and connections to instances of modules.
pub(super) fn max_connections(config: &Config, descriptors: u64) -> Result<usize, String> {
    const PER_PROGRAM: usize = 10;
    const PER_LOOP: usize = 28 + IN_A_ROW + galgo_handlers::files::OPEN;
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    let reserved = 64
        + CROWD
        + config.event_loops * (PER_LOOP + 3 * config.listen.len())
        + config.admission.running * PER_PROGRAM
        + config.admission.queue
        + templates(config)
        + modules(config)
        + helpers(config)
        + config.log.own.len()
        + config.sites.iter().map(|_| 2 * hosts::MOST).sum::<usize>()
        + config.routes.iter().map(|r| of_upstream(r)).sum::<usize>();
    let possible = descriptors.saturating_sub(reserved) * 2 / 3;
    let wanted = config.http.max_connections;
    if possible == 0 || wanted > possible {
        let (connections, least) = match wanted {
            0 | 1 => ("one connection".to_owned(), 1),
            wanted => (format!("{wanted} connections"), wanted),
        };
        return Err(format!(
            "{descriptors} descriptors are too few: {connections} and {} programs need {}. Raise the limit \
             (ulimit -n, LimitNOFILE=), or lower max_connections, max_running, queue or max_templates",
            config.admission.running,
            reserved + (least * 3).div_ceil(2)
        ));
    }
    Ok(if wanted == 0 { possible } else { wanted })
}

/// Returns the descriptors of templates, the programs that are kept loaded. Each needs its process, its control socket, and both
/// of its next child; and its standard streams while it is being loaded.
fn templates(config: &Config) -> usize {
    const PER_TEMPLATE: usize = 6;
    let warm = |route: &Route| {
        let programs = route.programs();
        programs.is_some_and(|cgi| cgi.options.start == StartMode::Warm)
    };
    let of_hosts = config.sites.is_some() && config.options.start == StartMode::Warm;
    if of_hosts || config.routes.iter().any(|route| warm(route)) {
        config.templates.count * PER_TEMPLATE
    } else {
        0
    }
}

/// Returns the descriptors of connections to helpers, including idle ones.
fn helpers(config: &Config) -> usize {
    let of_owners = |remit: &Remit| matches!(remit.runs_as(), RunsAs::Owner { .. });
    let many = config.sites.is_some() || config.remits().any(|(_, remit)| of_owners(remit));
    owners::reserved_descriptors(config.remits().count(), many)
}

/// Returns the descriptors of modules, if there can be programs.
fn modules(config: &Config) -> usize {
    let programs = |route: &Arc<Route>| route.programs().is_some();
    if config.sites.is_some() || config.routes.iter().any(programs) {
        galgo_handlers::wasm::descriptors(config.admission.running)
    } else {
        0
    }
}

/// Returns the descriptors that a route to an upstream may need: connections (twice if a body waits for room), kept connections,
/// files of bodies, and sockets and pipes of workers.
fn of_upstream(route: &Route) -> usize {
    route.upstreams().map(|up| 6 * up.running + up.keep).sum()
}
