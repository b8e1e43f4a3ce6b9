//! `galgo check --url`: prints the steps that a request goes through, a line for each, without a server. It runs no program
//! and asks no application.

use std::{
    ffi::OsStr,
    fmt::Display,
    io::{self, Write},
    ops::ControlFlow,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use galgo_handlers::{
    files::{self, FileAnswer, Waits},
    script::{self, AmongFiles, FoundProgram, UpstreamPath},
    steps::{
        Steps,
        access::{Access, AccessDecision},
        redirect,
        rewrite::Rewritten,
        tries::Tried,
        variables,
    },
};
use galgo_proto::{h1::Head, status::reason, target::Target};
use galgo_service::{body::Response, fault::Fault, link::Link, log::LogTo};
use galgo_spawn::words;

use super::{
    asked::{UrlArgs, request},
    identity,
    screen::lines,
    site::SiteArgs,
};
use crate::{
    config::{Application, Cgi, Config, Files, Handler, Route, To},
    described::describe,
    handle::{at_index, index_of},
    hosts::HostFolder,
    isolation, programs,
    route::{self, Match},
};

/// Limit of the changes of the path that are followed, the same as in the server.
const CHANGES: usize = 10;

/// Prints the steps that would answer the URL.
pub(super) fn check(site: &SiteArgs, args: &UrlArgs, url: &str) -> Result<ExitCode, String> {
    let config = site.load()?;
    identity::assume(&config)?;
    let (head, link) = request(&config, args, url)?;
    let mut trace = UrlTrace::new(&config, link);
    trace.request(head);
    // A reader that closes the pipe has read enough.
    let _ = io::stdout().write_all(trace.said.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The steps of one request.
pub(super) struct UrlTrace<'c> {
    said: String,
    config: &'c Config,
    link: Link,
    /// The status, if galgo answers by itself.
    answered: Option<u16>,
    /// Whether `try` chose the current path.
    found: bool,
    /// Whether a password or an authorizer may keep the client out.
    is_guarded: bool,
    /// Whether a program or an application answers.
    runs: bool,
}

impl<'c> UrlTrace<'c> {
    pub(super) fn new(config: &'c Config, link: Link) -> Self {
        Self {
            said: String::new(),
            config,
            link,
            answered: None,
            found: false,
            is_guarded: false,
            runs: false,
        }
    }

    /// Returns whether every client gets a file, or the answer of a program that starts.
    pub(super) fn is_public(&self) -> bool {
        !self.is_guarded && (self.runs || self.answered == Some(200))
    }

    /// Whether everybody gets the file itself, and not what a program makes of it.
    pub(super) fn is_sent(&self) -> bool {
        self.is_public() && !self.runs
    }
}

/// Each step returns the path to ask for instead, if there is one.
impl UrlTrace<'_> {
    pub(super) fn request(&mut self, mut head: Head) {
        if self.config.tls.redirect && !self.link.https {
            let says = "308 to the same path of the `https://` listener";
            return self.line("redirect_to_https", says);
        }
        let rules = self.config.rewrites.as_ref();
        match rules.and_then(|rules| rules.answer(&self.link, &head)) {
            Some(Rewritten::Response(response)) => return self.response("rewrite", &response),
            Some(Rewritten::Target(target)) => {
                self.line("rewrite", shown(&target));
                head.target = target;
            }
            None => {}
        }
        for _ in 0..CHANGES {
            let Some(target) = self.path(&head) else {
                return;
            };
            self.line("then", shown(&target));
            head.target = target;
        }
        self.line("answer", "502: the paths lead to each other");
    }

    fn path(&mut self, head: &Head) -> Option<Target> {
        let config = self.config;
        let path = head.target.path();
        let configured = route::find(&config.routes, &head.host, path);
        let sites = config.sites.as_ref();
        let own = sites.map_or(Ok(Vec::new()), |sites| sites.routes(&head.host, config));
        let own = match own {
            Ok(routes) => HostFolder::new(routes, config),
            Err(words) => {
                self.line("sites", words);
                return self.done(403);
            }
        };
        let of_host = own.find(&head.host, path, configured.as_ref());
        let Some(found) = of_host.or(configured) else {
            self.line("route", "none answers");
            self.done(404);
            self.behind(None);
            return None;
        };
        let route = found.route;
        self.line("route", format!("{route}: {}", describe(config, route)));
        if let Some(log) = &route.log {
            let to = match log.to() {
                None => "none".to_owned(),
                Some(LogTo::Stdout) => "standard output".to_owned(),
                Some(LogTo::Stderr) => "standard error".to_owned(),
                Some(LogTo::File(path)) => words::path(path),
            };
            self.line("access_log", to);
        }
        let instead = self.behind_route(head, &found);
        if instead.is_none() {
            self.behind(route.steps.as_deref());
        }
        instead
    }

    fn behind_route(&mut self, head: &Head, found: &Match<'_, '_>) -> Option<Target> {
        let route = found.route;
        let is_found = std::mem::take(&mut self.found);
        if route.rate_limit.is_some() {
            self.line("rate_limit", "beyond it 429");
        }
        let steps = route.steps.as_deref();
        if let Some(response) = steps.and_then(|s| s.early(&self.link, head, found.rest)) {
            // An early response answers a browser that asks about another origin, or redirects.
            let step = match response.status {
                204 => "cors",
                _ => "redirect",
            };
            self.response(step, &response);
            return None;
        }
        if steps.is_some_and(|steps| self.admission(steps, head)) {
            return None;
        }
        if route.authorizer.is_some() {
            self.is_guarded = true;
            let program = route.judge().map(|cgi| words::path(cgi.root.path()));
            let who = program.unwrap_or_else(|| "its application".to_owned());
            let says = format!("{who} is asked; what follows is for those whom it allows");
            self.line("authorizer", says);
        }
        if let Some(steps) = steps {
            self.variables(steps, head);
        }
        if found.slash_missing {
            self.response("answer", &files::to_slash(head));
            return None;
        }
        if !is_found && let ControlFlow::Break(instead) = self.tries(head, found) {
            return instead;
        }
        let changed = steps.and_then(|steps| steps.request(head));
        if changed.is_some() {
            self.line("request_headers", "are changed");
        }
        self.handler(changed.as_ref().unwrap_or(head), route, found.rest)
    }

    /// Prints what the route's `try` finds. Breaks with the path that is asked for instead, if there is one. Continues if the
    /// route tries nothing.
    fn tries(&mut self, head: &Head, found: &Match<'_, '_>) -> ControlFlow<Option<Target>> {
        let route = found.route;
        let tries = route.steps.as_deref().and_then(|s| s.tries.as_ref());
        let (Some(tries), Handler::Files(files)) = (tries, &route.handler) else {
            return ControlFlow::Continue(());
        };
        let place = (files, route.among_files.as_deref());
        let (target, is_found) = match tries.decide(place, head, &route.path, found.rest) {
            // `Waits` is for event loops: this thread may wait for a file system.
            Err(Waits) | Ok(Tried::AsItIs) => return ControlFlow::Continue(()),
            Ok(Tried::Status(status)) => {
                self.line("try", "none of its paths is there");
                return ControlFlow::Break(self.done(status));
            }
            Ok(Tried::Found(target)) => (target, true),
            Ok(Tried::Again(target)) => (target, false),
        };
        self.line("try", "its path answers");
        self.found = is_found;
        ControlFlow::Break(Some(*target))
    }

    /// Prints which variables rules set.
    fn variables(&mut self, steps: &Steps, head: &Head) {
        let rules = &steps.variables;
        let given = variables::given(rules, &self.link, head);
        let pairs = given.iter().map(|(name, value)| format!("{name}={value}"));
        let says = match (rules.len(), given.is_empty()) {
            (0, _) => return,
            (1, true) => "its rule does not hold".to_owned(),
            (n, true) => format!("none of its {n} rules holds"),
            (_, false) => pairs.collect::<Vec<_>>().join(", "),
        };
        self.line("env_rules", says);
    }

    /// Prints the checks of access; returns whether they end the request.
    fn admission(&mut self, steps: &Steps, head: &Head) -> bool {
        let verdict = match &steps.access {
            Some(access) => self.access(access, head),
            None => AccessDecision::Allowed,
        };
        match (verdict, &steps.passwords) {
            (AccessDecision::Denied(response) | AccessDecision::OtherMethod(response), _) => {
                self.response("answer", &response);
                return true;
            }
            (AccessDecision::Allowed | AccessDecision::NeedsPassword, Some(passwords)) => {
                let file = words::path(passwords.path());
                let says = format!("a user of {file} must show one, else 401");
                self.line("passwords", says);
                self.is_guarded = true;
            }
            (AccessDecision::Trusted, Some(_)) => self.line("passwords", "not asked for"),
            (_, None) => {}
        }
        false
    }

    fn access(&mut self, access: &Access, head: &Head) -> AccessDecision {
        let verdict = access.judge(&self.link, &head.method);
        let (method, from) = (head.method.as_str(), self.link.remote.clone());
        let says = match &verdict {
            AccessDecision::Allowed | AccessDecision::Trusted => format!("{from} may ask"),
            AccessDecision::NeedsPassword => format!("{from} may ask with a password"),
            AccessDecision::OtherMethod(_) => format!("not by {method}"),
            AccessDecision::Denied(_) => format!("{from} may not ask"),
        };
        self.line("access", says);
        verdict
    }

    fn handler(&mut self, head: &Head, route: &Arc<Route>, rest: &[u8]) -> Option<Target> {
        let path = head.target.url_path();
        match &route.handler {
            Handler::Cgi(cgi) => match script::program(cgi, &route.path, path) {
                Ok(found) => self.program(cgi, &found),
                Err(refusal) => self.refused(refusal),
            },
            Handler::Upstream(up) => self.application(up, head, route),
            Handler::Respond(_) if route.steps.as_ref().is_some_and(|s| s.redirect.is_some()) => {
                self.done(404)
            }
            Handler::Respond(respond) => self.done(respond.status),
            Handler::Files(files) => {
                if let Some(cgi) = &route.among_files {
                    match script::among_files(cgi, &files.index, &route.path, path) {
                        Ok(AmongFiles::File) => {}
                        Ok(AmongFiles::Program(found)) => return self.program(cgi, &found),
                        Ok(AmongFiles::Index(path)) => {
                            return self.again(redirect::at(&head.target, path, None));
                        }
                        Err(refusal) => return self.refused(refusal),
                    }
                }
                self.file(files, head, route, rest)
            }
        }
    }

    fn again(&mut self, target: Option<Target>) -> Option<Target> {
        target.or_else(|| self.done(404))
    }

    fn program(&mut self, cgi: &Cgi, found: &FoundProgram<'_>) -> Option<Target> {
        let [name, info] = [found.script_name, found.path_info].map(words::escape);
        let file = words::escape(found.script_filename.as_bytes());
        let says = format!("{file}, SCRIPT_NAME {name}, PATH_INFO {info}");
        self.line("program", says);
        let path = Path::new(OsStr::from_bytes(found.script_filename.as_bytes()));
        let remit = cgi.remit.as_deref();
        if let Some(denied) = programs::denied(remit, found.owner, found.module, path) {
            self.line("user", denied);
            return self.done(403);
        }
        if !found.module {
            self.line("user", isolation::started(remit, &cgi.options, path));
        }
        let findings = programs::findings(self.config, cgi, found, path);
        for finding in &findings {
            let step = if finding.fails { "fails" } else { "warns" };
            self.line(step, finding);
        }
        if findings.iter().any(|finding| finding.fails) {
            return self.done(502);
        }
        self.runs = true;
        if let Some(cache) = &cgi.cache {
            let most = cache.most();
            self.line(
                "cache",
                format!("its answer may be another one's, at most {most:?} old"),
            );
        }
        if cgi.upgrade && !found.module {
            self.line("upgrade", "it may answer 101, and has the connection then");
        }
        None
    }

    /// Prints why there is no program, or why it is not run.
    fn refused(&mut self, refusal: Fault) -> Option<Target> {
        match refusal {
            Fault::NotFound => {
                self.line("program", "none is there");
                self.done(404)
            }
            Fault::Refused(why) => {
                self.line("program", why);
                self.done(403)
            }
            other => self.done(other.status()),
        }
    }

    fn application(&mut self, up: &Application, head: &Head, route: &Arc<Route>) -> Option<Target> {
        if let To::Workers(workers) = &up.to
            && let Some(why) = programs::worker_fault(self.config, up, &workers.run)
        {
            self.line("fails", format!("{}: {why}", words::path(&workers.run)));
            return self.done(502);
        }
        match script::script(up, &route.path, head.target.url_path()) {
            Ok(UpstreamPath::Folder) => self.response("answer", &files::to_slash(head)),
            Ok(UpstreamPath::Script(found)) => {
                if let Some(index) = index_of(&found, head.target.path())
                    && self.leads_on(head, route, index)
                {
                    return self.again(at_index(head, index));
                }
                let name = words::escape(&found.script_name);
                let info = words::escape(found.path_info);
                self.line(
                    "application",
                    format!("SCRIPT_NAME {name}, PATH_INFO {info}"),
                );
                self.runs = true;
            }
            Err(refusal) => return self.refused(refusal),
        }
        None
    }

    /// Returns whether another route answers for an index of the folder.
    fn leads_on(&self, head: &Head, own: &Arc<Route>, index: &str) -> bool {
        let file = (head.target.path(), index);
        route::leads_on(&self.config.routes, &head.host, own, file)
    }

    fn file(
        &mut self,
        files: &Files,
        head: &Head,
        route: &Arc<Route>,
        rest: &[u8],
    ) -> Option<Target> {
        let elsewhere = |name: &str| self.leads_on(head, route, name);
        match files::answer(files, head, rest, elsewhere) {
            FileAnswer::Now(response, cause) => {
                if let Some(cause) = cause {
                    self.line("file", cause);
                }
                self.response("answer", &response);
            }
            FileAnswer::Elsewhere(name) => return self.again(at_index(head, name)),
            // `Waits` is for event loops: this thread may wait for a file system.
            FileAnswer::List(_) | FileAnswer::Waits => {
                self.answered = Some(200);
                self.line("answer", "200 a list of the folder");
            }
        }
        None
    }

    /// Prints the steps that change the response.
    fn behind(&mut self, steps: Option<&Steps>) {
        let own = steps.and_then(|steps| steps.errors.as_ref());
        if let Some(pages) = own.or(self.config.errors.as_ref()) {
            match self.answered.map(|status| pages.of(status)) {
                None => self.line("errors", "have pages, if it fails"),
                Some(Some(path)) => self.line("errors", format!("the page is {path}")),
                Some(None) => {}
            }
        }
        if let Some(steps) = steps {
            self.response_steps(steps);
        }
        if let Some(hsts) = &self.config.tls.hsts
            && self.link.https
        {
            self.line("hsts", format!("Strict-Transport-Security: {hsts}"));
        }
    }

    fn response_steps(&mut self, steps: &Steps) {
        if let Some(headers) = &steps.headers {
            if !headers.rules.is_empty() {
                self.line("fields", "are changed");
            }
            if !headers.expires.is_empty() {
                self.line("expires", "Cache-Control, if it has none");
            }
        }
        if steps.cors.is_some() {
            self.line("cors", "other origins may read it");
        }
        if steps.compress.is_some() {
            let says = "if the client takes a coding, and the type shrinks";
            self.line("compress", says);
        }
    }

    fn response(&mut self, step: &str, response: &Response) {
        let status = response.status;
        self.answered = Some(status);
        let mut says = format!("{status} {}", reason(status));
        for name in ["location", "allow", "content-type"] {
            if let Some(value) = response.fields.first(name) {
                says.push_str(&format!(", {name}: {}", words::escape(value)));
            }
        }
        self.line(step, says);
    }

    fn done(&mut self, status: u16) -> Option<Target> {
        self.answered = Some(status);
        self.line("answer", format!("{status} {}", reason(status)));
        None
    }

    fn line(&mut self, step: &str, says: impl Display) {
        self.said += &format!("{step:<18} {}\n", lines(says));
    }
}

fn shown(target: &Target) -> String {
    let query = match target.query() {
        "" => String::new(),
        query => format!("?{query}"),
    };
    format!("{}{query}", words::escape(target.path()))
}
