//! `galgo check --url`: which steps a request goes through, one line each, without a server. No program is run and no
//! application is asked.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use galgo_handlers::{
    files::{self, FileAnswer},
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
use galgo_spawn::words;

use super::{
    asked::{UrlArgs, request},
    check,
    found::describe,
    identity, programs,
    screen::lines,
    site::SiteArgs,
};
use crate::{
    body::Response,
    config::{Application, Cgi, Config, Files, Handler, Route},
    fault::Fault,
    handle::{at_index, index_of},
    hosts::HostFolder,
    link::Link,
    log::LogTo,
    route::{self, Match},
};

/// As many changes of the path are followed as the server follows.
const CHANGES: usize = 10;

/// Says what would answer.
pub(super) fn check(site: &SiteArgs, args: &UrlArgs, url: &str) -> Result<ExitCode, String> {
    let config = site.load()?;
    identity::assume(&config)?;
    let (head, link) = request(&config, args, url)?;
    let mut walk = UrlTrace {
        out: io::stdout().lock(),
        config: &config,
        link,
        answered: None,
    };
    // Who closes the pipe has read enough.
    let _ = walk.request(head);
    Ok(ExitCode::SUCCESS)
}

/// What a path has come to.
enum PathOutcome {
    Done,
    Again(Target),
}

struct UrlTrace<'c, W> {
    out: W,
    config: &'c Config,
    link: Link,
    /// The status of what galgo answers itself.
    answered: Option<u16>,
}

impl<'c, W: Write> UrlTrace<'c, W> {
    fn request(&mut self, mut head: Head) -> io::Result<()> {
        if self.config.tls.redirect && !self.link.https {
            return self.line(
                "redirect_to_https",
                "308 to the same path of the `https://` listener",
            );
        }
        match self
            .config
            .rewrites
            .as_ref()
            .and_then(|rules| rules.answer(&self.link, &head))
        {
            Some(Rewritten::Response(response)) => return self.response("rewrite", &response),
            Some(Rewritten::Target(target)) => {
                self.line("rewrite", &shown(&target))?;
                head.target = target;
            }
            None => {}
        }
        for _ in 0..CHANGES {
            match self.path(&head)? {
                PathOutcome::Done => return Ok(()),
                PathOutcome::Again(target) => {
                    self.line("then", &shown(&target))?;
                    head.target = target;
                }
            }
        }
        self.line("answer", "502: the paths lead to each other")
    }

    fn path(&mut self, head: &Head) -> io::Result<PathOutcome> {
        let config = self.config;
        let path = head.target.path();
        let configured = route::find(&config.routes, &head.host, path);
        let own = match &config.sites {
            Some(sites) => sites.routes(&head.host, config),
            None => Ok(Vec::new()),
        };
        let own = match own {
            Ok(routes) => HostFolder::new(routes, config),
            Err(words) => {
                self.line("sites", &words)?;
                return self.done("403");
            }
        };
        let of_host = own.find(&head.host, path, configured.as_ref());
        let Some(found) = of_host.or(configured) else {
            self.line("route", "none answers")?;
            let outcome = self.done("404")?;
            self.behind(None)?;
            return Ok(outcome);
        };
        let route = found.route;
        self.line("route", &format!("{route}: {}", describe(config, route)))?;
        if let Some(log) = &route.log {
            let to = match log.to() {
                None => "none".to_owned(),
                Some(LogTo::Stdout) => "standard output".to_owned(),
                Some(LogTo::Stderr) => "standard error".to_owned(),
                Some(LogTo::File(path)) => words::path(path),
            };
            self.line("access_log", &to)?;
        }
        let outcome = self.behind_route(head, &found)?;
        if let PathOutcome::Done = outcome {
            self.behind(route.steps.as_deref())?;
        }
        Ok(outcome)
    }

    fn behind_route(&mut self, head: &Head, found: &Match<'_, '_>) -> io::Result<PathOutcome> {
        let route = found.route;
        if route.rate_limit.is_some() {
            self.line("rate_limit", "beyond it 429")?;
        }
        let steps = route.steps.as_deref();
        if let Some(response) = steps.and_then(|s| s.early(&self.link, head, found.rest)) {
            // A browser that asks for another origin, or a redirect.
            let step = if response.status == 204 {
                "cors"
            } else {
                "redirect"
            };
            self.response(step, &response)?;
            return Ok(PathOutcome::Done);
        }
        if let Some(steps) = steps
            && self.admission(steps, head)?
        {
            return Ok(PathOutcome::Done);
        }
        if route.authorizer.is_some() {
            let program = route.judge().map(|cgi| words::path(cgi.root.path()));
            let who = program.unwrap_or_else(|| "its application".to_owned());
            let says = format!("{who} is asked; what follows is for those whom it allows");
            self.line("authorizer", &says)?;
        }
        if let Some(steps) = steps {
            self.variables(steps, head)?;
        }
        if found.slash_missing {
            self.response("answer", &files::to_slash(head))?;
            return Ok(PathOutcome::Done);
        }
        if let (Some(steps), Handler::Files(files)) = (steps, &route.handler)
            && let Some(tries) = &steps.tries
        {
            match tries.decide(files, head, &route.path, found.rest) {
                Tried::AsItIs => {}
                Tried::Status(status) => {
                    self.line("try", "none of its paths is there")?;
                    return self.done(&status.to_string());
                }
                Tried::Again(target) => {
                    self.line("try", "its path answers")?;
                    return Ok(PathOutcome::Again(*target));
                }
            }
        }
        let changed = steps.and_then(|steps| steps.request(head));
        if changed.is_some() {
            self.line("request_headers", "are changed")?;
        }
        self.handler(changed.as_ref().unwrap_or(head), route, found.rest)
    }

    /// Which variables rules set.
    fn variables(&mut self, steps: &Steps, head: &Head) -> io::Result<()> {
        let rules = &steps.variables;
        let given = variables::given(rules, &self.link, head);
        let pairs = given.iter().map(|(name, value)| format!("{name}={value}"));
        let says = match (rules.len(), given.is_empty()) {
            (0, _) => return Ok(()),
            (1, true) => "its rule does not hold".to_owned(),
            (n, true) => format!("none of its {n} rules holds"),
            (_, false) => pairs.collect::<Vec<_>>().join(", "),
        };
        self.line("env_rules", &says)
    }

    /// Whether access ends the request here.
    fn admission(&mut self, steps: &Steps, head: &Head) -> io::Result<bool> {
        let verdict = match &steps.access {
            Some(access) => self.access(access, head)?,
            None => AccessDecision::Allowed,
        };
        match (verdict, &steps.passwords) {
            (AccessDecision::Denied(response) | AccessDecision::OtherMethod(response), _) => {
                self.response("answer", &response)?;
                return Ok(true);
            }
            (AccessDecision::Allowed | AccessDecision::NeedsPassword, Some(passwords)) => {
                let file = words::path(passwords.path());
                let says = format!("a user of {file} must show one, else 401");
                self.line("passwords", &says)?;
            }
            (AccessDecision::Trusted, Some(_)) => self.line("passwords", "not asked for")?,
            (_, None) => {}
        }
        Ok(false)
    }

    fn access(&mut self, access: &Access, head: &Head) -> io::Result<AccessDecision> {
        let verdict = access.judge(&self.link, &head.method);
        let (method, from) = (head.method.as_str(), self.link.remote.clone());
        let says = match &verdict {
            AccessDecision::Allowed | AccessDecision::Trusted => format!("{from} may ask"),
            AccessDecision::NeedsPassword => format!("{from} may ask with a password"),
            AccessDecision::OtherMethod(_) => format!("not by {method}"),
            AccessDecision::Denied(_) => format!("{from} may not ask"),
        };
        self.line("access", &says)?;
        Ok(verdict)
    }

    fn handler(&mut self, head: &Head, route: &Arc<Route>, rest: &[u8]) -> io::Result<PathOutcome> {
        match &route.handler {
            Handler::Cgi(cgi) => self.program(
                cgi,
                script::program(cgi, &route.path, head.target.url_path()),
            ),
            Handler::Upstream(up) => self.application(up, head, route),
            Handler::Respond(_) if route.steps.as_ref().is_some_and(|s| s.redirect.is_some()) => {
                self.done("404")
            }
            Handler::Respond(respond) => self.done(&respond.status.to_string()),
            Handler::Files(files) => {
                if let Some(cgi) = &route.among_files {
                    let path = head.target.url_path();
                    match script::among_files(cgi, &files.index, &route.path, path) {
                        Ok(AmongFiles::File) => {}
                        Ok(AmongFiles::Program(found)) => return self.program(cgi, Ok(found)),
                        Ok(AmongFiles::Index(path)) => {
                            return self.again(redirect::at(&head.target, path, None));
                        }
                        Err(refusal) => return self.refused(&refusal),
                    }
                }
                self.file(files, head, route, rest)
            }
        }
    }

    fn again(&mut self, target: Option<Target>) -> io::Result<PathOutcome> {
        match target {
            Some(target) => Ok(PathOutcome::Again(target)),
            None => self.done("404"),
        }
    }

    fn program(
        &mut self,
        cgi: &Cgi,
        found: Result<FoundProgram<'_>, Fault>,
    ) -> io::Result<PathOutcome> {
        let found = match found {
            Ok(found) => found,
            Err(refusal) => return self.refused(&refusal),
        };
        let [name, info] = [found.script_name, found.path_info].map(words::escape);
        let file = words::escape(found.script_filename.as_bytes());
        self.line(
            "program",
            &format!("{file}, SCRIPT_NAME {name}, PATH_INFO {info}"),
        )?;
        let path = Path::new(OsStr::from_bytes(found.script_filename.as_bytes()));
        if let Some(denied) = programs::denied(cgi, &found, path) {
            self.line("user", &denied.says)?;
            return self.done("403");
        }
        if !found.module {
            let remit = cgi.remit.as_deref();
            self.line("user", &check::started(remit, &cgi.options, path))?;
        }
        if let Some(cache) = &cgi.cache {
            let says = format!(
                "its answer may be another one's, at most {:?} old",
                cache.most()
            );
            self.line("cache", &says)?;
        }
        if cgi.upgrade && !found.module {
            self.line("upgrade", "it may answer 101, and has the connection then")?;
        }
        Ok(PathOutcome::Done)
    }

    /// There is no program, or it is not to be run.
    fn refused(&mut self, refusal: &Fault) -> io::Result<PathOutcome> {
        match refusal {
            Fault::NotFound => {
                self.line("program", "none is there")?;
                self.done("404")
            }
            Fault::Refused(why) => {
                self.line("program", why)?;
                self.done("403")
            }
            other => self.done(&other.status().to_string()),
        }
    }

    fn application(
        &mut self,
        up: &Application,
        head: &Head,
        route: &Arc<Route>,
    ) -> io::Result<PathOutcome> {
        match script::script(up, &route.path, head.target.url_path()) {
            Ok(UpstreamPath::Folder) => {
                self.response("answer", &files::to_slash(head))?;
                Ok(PathOutcome::Done)
            }
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
                    &format!("SCRIPT_NAME {name}, PATH_INFO {info}"),
                )?;
                Ok(PathOutcome::Done)
            }
            Err(refusal) => self.refused(&refusal),
        }
    }

    /// Whether another route answers for an index of the folder that is asked for.
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
    ) -> io::Result<PathOutcome> {
        let elsewhere = |name: &str| self.leads_on(head, route, name);
        match files::answer(files, head, rest, elsewhere) {
            FileAnswer::Now(response, cause) => {
                if let Some(cause) = cause {
                    self.line("file", cause)?;
                }
                self.response("answer", &response)?;
            }
            FileAnswer::Elsewhere(name) => return self.again(at_index(head, name)),
            FileAnswer::List(_) => self.line("answer", "200 a list of the folder")?,
        }
        Ok(PathOutcome::Done)
    }

    /// What is done to the response.
    fn behind(&mut self, steps: Option<&Steps>) -> io::Result<()> {
        let own = steps.and_then(|steps| steps.errors.as_ref());
        if let Some(pages) = own.or(self.config.errors.as_ref()) {
            match self.answered.map(|status| pages.of(status)) {
                None => self.line("errors", "have pages, if it fails")?,
                Some(Some(path)) => self.line("errors", &format!("the page is {path}"))?,
                Some(None) => {}
            }
        }
        if let Some(steps) = steps {
            self.response_steps(steps)?;
        }
        match &self.config.tls.hsts {
            Some(hsts) if self.link.https => {
                let says = format!("Strict-Transport-Security: {hsts}");
                self.line("hsts", &says)
            }
            _ => Ok(()),
        }
    }

    fn response_steps(&mut self, steps: &Steps) -> io::Result<()> {
        if let Some(headers) = &steps.headers {
            if !headers.rules.is_empty() {
                self.line("fields", "are changed")?;
            }
            if !headers.expires.is_empty() {
                self.line("expires", "Cache-Control, if it has none")?;
            }
        }
        if steps.cors.is_some() {
            self.line("cors", "other origins may read it")?;
        }
        if steps.compress.is_some() {
            self.line(
                "compress",
                "if the client takes a coding, and the type shrinks",
            )?;
        }
        Ok(())
    }

    fn response(&mut self, step: &str, response: &Response) -> io::Result<()> {
        let status = response.status;
        self.answered = Some(status);
        let mut says = format!("{status} {}", reason(status));
        for name in ["location", "allow", "content-type"] {
            if let Some(value) = response.fields.first(name) {
                says.push_str(&format!(", {name}: {}", words::escape(value)));
            }
        }
        self.line(step, &says)
    }

    fn done(&mut self, status: &str) -> io::Result<PathOutcome> {
        self.answered = status.parse().ok();
        let says = self.answered.map_or("", reason);
        self.line("answer", &format!("{status} {says}"))?;
        Ok(PathOutcome::Done)
    }

    fn line(&mut self, step: &str, says: &str) -> io::Result<()> {
        writeln!(self.out, "{step:<18} {}", lines(says))
    }
}

fn shown(target: &Target) -> String {
    let query = match target.query() {
        "" => String::new(),
        query => format!("?{query}"),
    };
    format!("{}{query}", words::escape(target.path()))
}
