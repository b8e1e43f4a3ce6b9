//! The trace of one request: a line for each step, for `galgo check --url`.
//!
//! [`Dispatch`](crate::handle::Dispatch) answers a traced request like any other, with two differences. The trace stands in
//! for programs and applications, so that none of them runs. And the client is let in: no rate limit, password or authorizer
//! keeps it out.

use std::{
    cell::{Cell, RefCell},
    ffi::OsStr,
    fmt::Display,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use galgo_handlers::{
    script::{FoundProgram, UpstreamScript},
    steps::{Steps, access::AccessDecision, errors::Errors, variables},
};
use galgo_proto::{h1::Head, status::reason, target::Target};
use galgo_service::{body::Response, fault::Fault, link::Link, log::LogTo};
use galgo_spawn::words;

use crate::{
    config::{Application, Cgi, Config, Route, To},
    described::describe,
    isolation, programs,
};

/// The steps of one request.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// Step and text of each line.
    lines: RefCell<Vec<(&'static str, String)>>,
    /// The step that a fault ends, if the fault is not explained yet.
    current: Cell<Option<&'static str>>,
    /// Whether a password or an authorizer may keep the client out.
    is_guarded: Cell<bool>,
    /// Whether a program or an application answers.
    runs: Cell<bool>,
    /// Whether a step has noted its own response.
    is_answered: Cell<bool>,
    /// Whether every client gets a file, or the answer of a program that starts.
    is_public: Cell<bool>,
}

impl Trace {
    /// Returns step and text of each line.
    pub(crate) fn into_lines(self) -> Vec<(&'static str, String)> {
        self.lines.into_inner()
    }

    /// Returns whether every client gets a file, or the answer of a program that starts.
    pub(crate) fn is_public(&self) -> bool {
        self.is_public.get()
    }

    /// Returns whether every client gets the file itself, and not the output of a program.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_public() && !self.runs.get()
    }

    /// Adds a line.
    pub(crate) fn note(&self, step: &'static str, says: impl Display) {
        self.lines.borrow_mut().push((step, says.to_string()));
    }

    /// Begins a step that has a line only if a fault ends it.
    pub(crate) fn begin(&self, step: &'static str) {
        self.current.set(Some(step));
    }

    /// Notes the fault that ends the current step.
    pub(crate) fn note_fault(&self, fault: &Fault) {
        match (self.current.take(), fault) {
            (None, _) => {}
            (Some(step), Fault::NotFound) => self.note(step, "not found"),
            (Some(step), fault) => self.note(step, fault),
        }
    }

    /// Notes a new target of the request.
    pub(crate) fn note_target(&self, step: &'static str, target: &Target) {
        let query = match target.query() {
            "" => String::new(),
            query => format!("?{query}"),
        };
        self.note(step, format!("{}{query}", words::escape(target.path())));
        self.begin(step);
    }

    /// Notes the response with which this step answers the request.
    pub(crate) fn note_response(&self, step: &'static str, response: &Response) {
        self.is_answered.set(true);
        let status = response.status;
        let mut says = format!("{status} {}", reason(status));
        for name in ["location", "allow", "content-type"] {
            // The type of an error is that of galgo's own page.
            let is_shown = name != "content-type" || status < 400;
            if let Some(value) = response.fields.first_value(name).filter(|_| is_shown) {
                says.push_str(&format!(", {name}: {}", words::escape(value)));
            }
        }
        self.note(step, says);
    }

    /// Notes the route that the request enters.
    #[cold]
    pub(crate) fn note_route(&self, config: &Config, route: &Route) {
        self.current.set(None);
        self.note("route", format!("{route}: {}", describe(config, route)));
        if let Some(log) = &route.log {
            let to = match log.log_target() {
                None => "none".to_owned(),
                Some(LogTo::Stdout) => "standard output".to_owned(),
                Some(LogTo::Stderr) => "standard error".to_owned(),
                Some(LogTo::File(path)) => words::escape_path(path),
            };
            self.note("access_log", to);
        }
        if route.rate_limit.is_some() {
            self.note("rate_limit", "429 above the limit");
        }
    }

    /// Notes a response that every client gets: to a browser that asks about another origin, or a redirect.
    pub(crate) fn note_early(&self, response: &Response) {
        let step = match response.status {
            204 => "cors",
            _ => "redirect",
        };
        self.note_response(step, response);
    }

    /// Notes the checks of access. Returns the decision about a client that shows the password which the route asks for.
    pub(crate) fn note_access(
        &self,
        steps: &Steps,
        decision: AccessDecision,
        (link, head): (&Link, &Head),
    ) -> AccessDecision {
        let (method, from) = (head.method.as_str(), &link.remote);
        let says = match &decision {
            AccessDecision::Allowed | AccessDecision::Trusted => format!("{from} is allowed"),
            AccessDecision::NeedsPassword => format!("{from} is allowed with a password"),
            AccessDecision::OtherMethod(_) => format!("{method} is not allowed"),
            AccessDecision::Denied(_) => format!("{from} is denied"),
        };
        if steps.access.is_some() {
            self.note("access", says);
        }
        match (&decision, &steps.passwords) {
            (AccessDecision::Allowed | AccessDecision::NeedsPassword, Some(passwords)) => {
                let file = words::escape_path(passwords.path());
                self.note(
                    "passwords",
                    format!("401 without the password of a user of {file}"),
                );
                self.is_guarded.set(true);
                AccessDecision::Trusted
            }
            (AccessDecision::Trusted, Some(_)) => {
                self.note("passwords", "not asked for");
                decision
            }
            _ => decision,
        }
    }

    /// Notes the authorizer of a route.
    pub(crate) fn note_authorizer(&self, route: &Route) {
        self.is_guarded.set(true);
        let program = route
            .authorizer_program()
            .map(|cgi| words::escape_path(cgi.root.path()));
        let who = program.unwrap_or_else(|| "its application".to_owned());
        let says = format!("{who} decides; the next lines apply if it allows the request");
        self.note("authorizer", says);
    }

    /// Notes which variables rules set.
    pub(crate) fn note_variables(&self, steps: &Steps, link: &Link, head: &Head) {
        let rules = &steps.variables;
        let given = variables::matching_variables(rules, link, head);
        let pairs = given.iter().map(|(name, value)| format!("{name}={value}"));
        let says = match (rules.len(), given.is_empty()) {
            (0, _) => return,
            (1, true) => "its rule does not match".to_owned(),
            (n, true) => format!("none of its {n} rules matches"),
            (_, false) => pairs.collect::<Vec<_>>().join(", "),
        };
        self.note("env_rules", says);
    }

    /// Answers in place of a program.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn answer_for_program(
        &self,
        config: &Config,
        cgi: &Cgi,
        found: &FoundProgram<'_>,
    ) -> Result<Response, Fault> {
        self.current.set(None);
        let [name, info] = [found.script_name, found.path_info].map(words::escape);
        let file = words::escape(found.script_filename.as_bytes());
        let says = format!("{file}, SCRIPT_NAME {name}, PATH_INFO {info}");
        self.note("program", says);
        let path = Path::new(OsStr::from_bytes(found.script_filename.as_bytes()));
        let remit = cgi.remit.as_deref();
        if let Some(denied) = programs::denied(remit, found.owner, found.module, path) {
            self.begin("user");
            return Err(Fault::Refused(denied));
        }
        if !found.module {
            self.note("user", isolation::describe_start(remit, &cgi.options, path));
        }
        let findings = programs::findings(config, cgi, found, path);
        for finding in &findings {
            let step = if finding.fails { "fails" } else { "warns" };
            self.note(step, finding);
        }
        if let Some(finding) = findings.iter().find(|finding| finding.fails) {
            return Err(Fault::Script(finding.to_string()));
        }
        if let Some(cache) = &cgi.cache {
            let most = cache.max_lifetime();
            self.note(
                "cache",
                format!("the answer may come from the cache, at most {most:?} old"),
            );
        }
        if cgi.upgrade && !found.module {
            self.note(
                "upgrade",
                "after a 101 response, the program has the connection",
            );
        }
        Ok(self.answer_later())
    }

    /// Answers in place of an application.
    ///
    /// # Errors
    /// Its workers cannot be started.
    pub(crate) fn answer_for_application(
        &self,
        config: &Config,
        up: &Application,
        script: &UpstreamScript<'_>,
    ) -> Result<Response, Fault> {
        let name = words::escape(&script.script_name);
        let info = words::escape(script.path_info);
        self.note(
            "application",
            format!("SCRIPT_NAME {name}, PATH_INFO {info}"),
        );
        if let To::Workers(workers) = &up.to
            && let Some(why) = programs::worker_fault(config, up, &workers.run)
        {
            self.begin("fails");
            let run = words::escape_path(&workers.run);
            return Err(Fault::Script(format!("{run}: {why}")));
        }
        Ok(self.answer_later())
    }

    /// Returns a response in place of the response that only a running program knows.
    fn answer_later(&self) -> Response {
        self.runs.set(true);
        Response::new(200)
    }

    /// Notes the response, unless a program makes it, and the steps that change it. `pages`: the error pages that apply.
    pub(crate) fn note_end(
        &self,
        (config, link): (&Config, &Link),
        response: &Response,
        steps: Option<&Steps>,
        pages: Option<&Errors>,
    ) {
        let is_answer = self.runs.get() || response.status == 200;
        self.is_public.set(is_answer && !self.is_guarded.get());
        if !self.runs.get() && !self.is_answered.get() {
            self.note_response("answer", response);
        }
        match pages.map(|pages| pages.replacement_page(response)) {
            Some(_) if self.runs.get() => self.note("errors", "replace the page of a failure"),
            Some(Some(path)) => self.note("errors", format!("the page is {path}")),
            Some(None) | None => {}
        }
        if let Some(steps) = steps {
            self.note_response_steps(steps);
        }
        if let Some(hsts) = config.tls.hsts.as_ref().filter(|_| link.https) {
            self.note("hsts", format!("Strict-Transport-Security: {hsts}"));
        }
    }

    fn note_response_steps(&self, steps: &Steps) {
        if let Some(headers) = &steps.headers {
            if !headers.rules.is_empty() {
                self.note("fields", "are changed");
            }
            if !headers.expires.is_empty() {
                self.note("expires", "Cache-Control, if it has none");
            }
        }
        if steps.cors.is_some() {
            self.note("cors", "other origins may read it");
        }
        if steps.compress.is_some() {
            let says = "if the client accepts an encoding and the type is compressible";
            self.note("compress", says);
        }
    }
}
