//! What one reading of the configuration made. Requests that began with it end with it, while others begin
//! with the next; with the last of them it is dropped, and with it the programs that only it asked for.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use galgo_proto::fcgi::Role;

use crate::{
    admission::{Admission, Gauge},
    config::{self, Config, Handler, Route},
    log::{ErrorLog, Logs},
    spool::Spool,
    upstream::{Crew, Upstream},
    wasm::Wasm,
};

/// A configuration, and what was opened and started for it.
#[derive(Debug)]
pub struct Site {
    /// The configuration.
    pub config: Config,
    /// Places for running programs.
    pub admission: Admission,
    /// Where bytes wait that nobody takes yet.
    pub spool: Arc<Spool>,
    /// WebAssembly programs.
    pub wasm: Arc<Wasm>,
    /// Programs whose documents have no type.
    pub untyped: Once,
    /// Places of routes with a limit of their own.
    route_places: Vec<(Arc<Route>, Arc<Gauge>)>,
    /// Programs that stay.
    upstreams: Vec<Asked>,
}

/// Programs of which something has been said.
#[derive(Debug, Default)]
pub struct Once(Mutex<BTreeSet<String>>);

impl Once {
    /// As many programs are remembered; of others nothing is said. A folder of links to itself has endless names.
    const MOST: usize = 1000;

    /// Whether nothing has been said of `script` yet.
    pub fn is_new(&self, script: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !said.contains(script) && said.len() < Self::MOST && said.insert(script.to_owned())
    }
}

/// A program that stays, and what it is asked for.
#[derive(Debug)]
struct Asked {
    /// The requests of this route,
    route: Arc<Route>,
    /// in this role.
    role: Role,
    /// Who is asked.
    upstream: Arc<Upstream>,
}

impl Asked {
    fn config(&self) -> Option<&config::Upstream> {
        self.route.upstreams().find(|up| up.role == self.role)
    }
}

impl Site {
    /// As configured. What is the same as in the site `before` goes on: who is known by a route that did
    /// not change is known by it still. Nobody is asked over a socket yet.
    pub fn new(mut config: Config, before: Option<&Self>, logs: &Logs) -> Self {
        if let Some(before) = before {
            keep_routes(&mut config, &before.config);
        }
        let places = |route: &Arc<Route>| match &route.handler {
            Handler::Cgi(cgi) => {
                let most = cgi.options.max_running?;
                let kept = before.and_then(|before| before.places(route)).cloned();
                let places = kept.unwrap_or_else(|| Arc::new(Gauge::new(most)));
                Some((route.clone(), places))
            }
            _ => None,
        };
        Self {
            untyped: Once::default(),
            route_places: config.routes.iter().filter_map(places).collect(),
            admission: match before {
                Some(before) => before.admission.next(&config.admission),
                None => Admission::new(&config.admission),
            },
            spool: Arc::new(Spool::new(
                &config.spool,
                before.map(|before| &*before.spool),
            )),
            wasm: Wasm::next(&config, logs, before.map(|before| &before.wasm)),
            upstreams: Vec::new(),
            config,
        }
    }

    /// Makes what asks programs that stay.
    ///
    /// # Errors
    /// The sockets of workers could not be made.
    pub fn with_upstreams(mut self, before: Option<&Self>) -> io::Result<Self> {
        let queue = &self.config.admission;
        let before = before.filter(|before| before.admission.waits_as(queue));
        for route in &self.config.routes {
            for up in route.upstreams() {
                let kept = before.and_then(|before| before.upstream(route, up.role));
                self.upstreams.push(Asked {
                    route: route.clone(),
                    role: up.role,
                    upstream: match kept {
                        Some(kept) => kept.clone(),
                        None => Arc::new(Upstream::new(up, queue)?),
                    },
                });
            }
        }
        Ok(self)
    }

    /// The workers that `before` has not started.
    pub fn crews(&self, before: Option<&Self>, log: &ErrorLog) -> Vec<Crew> {
        let new = |asked: &&Asked| before.is_none_or(|before| !before.asks(&asked.upstream));
        let new = self.upstreams.iter().filter(new);
        new.filter_map(|asked| Crew::of(&asked.upstream, asked.config()?, &self.config, log))
            .collect()
    }

    /// Whether it has workers of its own to start.
    pub fn has_workers(&self) -> bool {
        self.upstreams
            .iter()
            .any(|asked| asked.upstream.has_workers())
    }

    /// Another takes its place: what that one asks, too, begins anew, one worker after the other; the rest
    /// keeps no connection any longer.
    pub fn succeeded_by(&self, next: &Self) {
        for asked in &self.upstreams {
            match next.asks(&asked.upstream) {
                true => asked.upstream.renew(),
                false => asked.upstream.close(),
            }
        }
    }

    /// No more requests come: no connection is kept for one.
    pub fn close(&self) {
        self.upstreams.iter().for_each(|a| a.upstream.close());
        self.wasm.close();
    }

    fn asks(&self, upstream: &Arc<Upstream>) -> bool {
        self.upstreams
            .iter()
            .any(|asked| Arc::ptr_eq(&asked.upstream, upstream))
    }

    /// The places of a route, where it has a limit of its own.
    pub fn places(&self, route: &Arc<Route>) -> Option<&Arc<Gauge>> {
        self.route_places
            .iter()
            .find(|(r, _)| Arc::ptr_eq(r, route))
            .map(|(_, places)| places)
    }

    /// The program that stays and is asked for a route in this role.
    pub fn upstream(&self, route: &Arc<Route>, role: Role) -> Option<&Arc<Upstream>> {
        let is = |asked: &&Asked| Arc::ptr_eq(&asked.route, route) && asked.role == role;
        self.upstreams.iter().find(is).map(|asked| &asked.upstream)
    }
}

/// Puts routes of `before` in the place of equal ones.
fn keep_routes(config: &mut Config, before: &Config) {
    // Every program is started with these.
    if (&config.path, config.umask) != (&before.path, before.umask) {
        return;
    }
    for route in &mut config.routes {
        if let Some(same) = before.routes.iter().find(|old| *old == route) {
            *route = same.clone();
        }
    }
}
