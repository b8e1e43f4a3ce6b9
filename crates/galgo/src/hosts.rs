//! `sites`: the folders of hosts. Each is opened when a request asks for its host, and checked again after a while.
//!
//! Only these routes are unknown when the configuration is read. `config::host` makes them like the routes of `[userdir]`, and
//! requests find them by the same rules. At most 256 hosts are kept at once.
//!
//! If a helper starts their programs, one remit stands for all hosts, but starts nothing itself. Server and spawner derive each
//! host's remit from it by the host's name ([`Remit::derive_for_host`](galgo_spawn::owners::Remit::derive_for_host)). So the spawner need not
//! know which hosts there are.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use galgo_handlers::beneath;
use galgo_service::{admission::ConcurrencyLimit, lock::lock};
use tokio::time::Instant;

use crate::{
    config::{Config, Route, Sites},
    route::{self, Match},
};

/// Hosts that are kept at once, each with two descriptors. The host that was checked longest ago makes room, and is opened again
/// when needed.
pub const MOST: usize = 256;

/// Interval between checks of a host's folder.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The hosts of recent requests.
#[derive(Debug, Default)]
pub struct HostFolders(Mutex<HashMap<String, CachedHost>>);

#[derive(Debug, Clone)]
struct CachedHost {
    host: Arc<HostFolder>,
    looked: Instant,
}

/// The routes in the folder of one host.
#[derive(Debug)]
pub struct HostFolder {
    /// Sorted by path, the longest first.
    routes: Vec<Arc<Route>>,
    /// Permits for the programs of this host, if its routes have a limit.
    pub limit: Option<Arc<ConcurrencyLimit>>,
}

impl HostFolder {
    /// Wraps these routes, which are sorted by path, the longest first.
    pub fn new(routes: Vec<Arc<Route>>, config: &Config) -> Self {
        // Programs of other users count for their users, whatever hosts these have.
        let sites = config.sites.as_ref().and_then(|sites| sites.remit.as_ref());
        let most = config.options.max_running;
        let most = most.filter(|_| sites.is_none_or(|remit| !remit.runs_as_others()));
        Self {
            routes,
            limit: most.map(|most| Arc::new(ConcurrencyLimit::new(most))),
        }
    }

    /// Returns the route that answers, unless `other` names the path or the host more closely.
    pub fn find_route<'c, 'p>(
        &'c self,
        host: &str,
        path: &'p [u8],
        other: Option<&Match<'_, '_>>,
    ) -> Option<Match<'c, 'p>> {
        let own = route::find_route(&self.routes, host, path)?;
        let nearer = |other: &Match<'_, '_>| {
            let (length, own) = (other.route.path.len(), own.route.path.len());
            let named = other.route.host.is_some() || other.route.names.is_some();
            length > own || (length == own && named)
        };
        let limit = self.limit.as_ref();
        (!other.is_some_and(nearer)).then_some(Match { limit, ..own })
    }
}

impl HostFolders {
    /// Returns the folder of a host as it is now. Calls `changed` if the folder has changed since the last look.
    pub fn open_host(
        &self,
        sites: &Sites,
        host: &str,
        config: &Config,
        now: Instant,
        changed: impl FnOnce(),
    ) -> Result<Option<Arc<HostFolder>>, String> {
        let lock = || lock(&self.0);
        let known = lock().get(host).cloned();
        if let Some(known) = &known
            && now.saturating_duration_since(known.looked) < LOOK_EVERY
        {
            return Ok(Some(known.host.clone()));
        }
        // Opened without the lock, because a disk may be slow.
        let routes = sites.open_routes(host, config);
        let routes = routes.inspect_err(|_| {
            // If this thread must not wait for the folder's disk, another thread looks again, and the host stays.
            if !beneath::has_refused() {
                lock().remove(host);
            }
        })?;
        let next = match known {
            Some(known) if known.host.routes == routes => known.host,
            known => {
                if known.is_some() {
                    changed();
                }
                if routes.is_empty() {
                    lock().remove(host);
                    return Ok(None);
                }
                Arc::new(HostFolder::new(routes, config))
            }
        };
        let mut all = lock();
        if all.len() >= MOST && !all.contains_key(host) {
            let oldest = all.iter().min_by_key(|(_, known)| known.looked);
            let oldest = oldest.map(|(host, _)| host.clone());
            oldest.and_then(|host| all.remove(&host));
        }
        let known = CachedHost {
            host: next.clone(),
            looked: now,
        };
        all.insert(host.to_owned(), known);
        Ok(Some(next))
    }
}
