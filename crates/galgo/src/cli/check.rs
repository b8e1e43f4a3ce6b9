//! `galgo check`: reports everything that would fail.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use galgo_handlers::{modules::is_module, wasm};
use galgo_proto::{fcgi::Role, hosts::is_folder_name};
use galgo_spawn::{
    inspect,
    template::{TemplateKind, Unfit},
};

use super::{
    certificates::{self, SeenCertificate},
    exposed,
    url::UrlTracer,
};
use crate::{
    command::{identity, paint::Paint, screen::escape_lines, site_folder::SiteArgs},
    config::{
        Application, BodyMode, Cgi, CgiOptions, Config, Handler, Protocol, Route, Sites, StartMode,
        To,
    },
    described::shorten_path,
    isolation,
    programs::{self, FileState, Seen, Severity},
    reading::look_first,
    run::warm::WarmLoader,
    serve::owners::Spawning,
};

/// Checks the configuration and all programs.
pub(super) fn check_site(site: &SiteArgs) -> Result<ExitCode, String> {
    let first = site.clone();
    look_first(Arc::new(move || first.load_config()), &[]);
    let out = io::stdout().lock();
    let mut report = CheckReport {
        paint: Paint::for_stream(&out),
        out,
        counts: Counts::default(),
        loader: None,
        exposed: BTreeSet::new(),
    };
    let done = match site.load_config() {
        Ok(config) => {
            let loaded = starts_warm(&config)
                .then(|| site.load_config())
                .transpose()?;
            // Root may read certificates that the server's user may not.
            let certificates = certificates::describe_certificates(&config);
            let spawning = report.start_spawner(&config, site.config_file().as_deref());
            identity::assume_identity(&config)?;
            let tracer = UrlTracer::new(config)?;
            let loader = |config| WarmLoader::new(config, spawning.as_ref());
            report.loader = loaded.map(loader).transpose()?;
            let done = report.check_config(&tracer, &certificates);
            done.and_then(|()| report.print_summary())
        }
        Err(e) => e
            .lines()
            .try_for_each(|line| report.report_line(Severity::Fails, "configuration", line)),
    };
    // A reader that closes the pipe has read enough; the exit code still counts.
    let _ = done;
    Ok(match report.counts.fails {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

struct CheckReport<W> {
    out: W,
    paint: Paint,
    counts: Counts,
    /// Loads programs that start warm, if there are any.
    loader: Option<WarmLoader>,
    /// Findings about public files that were printed.
    exposed: BTreeSet<(PathBuf, String)>,
}

/// Returns whether any program starts warm.
fn starts_warm(config: &Config) -> bool {
    let is_warm = |options: &CgiOptions| options.start != StartMode::Cold;
    let mut programs = config.routes.iter().filter_map(|route| route.programs());
    programs.any(|cgi| is_warm(&cgi.options)) || config.sites.is_some() && is_warm(&config.options)
}

#[derive(Debug, Default)]
struct Counts {
    programs: usize,
    /// Programs that are modules in the server's own worker.
    modules: usize,
    fine: usize,
    warns: usize,
    fails: usize,
    routes: usize,
}

impl<W: Write> CheckReport<W> {
    /// Starts what starts programs as other users. A failure is a finding, because the server would not start either.
    fn start_spawner(&mut self, config: &Config, file: Option<&Path>) -> Option<Spawning> {
        let (verdict, why) = match Spawning::start_for_command(config, file) {
            // An operator without root's rights may check what a service starts as root.
            Ok(None) => (Severity::Warns, Spawning::missing_root(config)?),
            Ok(spawning) => return spawning,
            Err(why) => (Severity::Fails, why),
        };
        // As above: a reader that closes the pipe has read enough.
        let _ = self.report_line(verdict, "configuration", &why);
        None
    }

    fn check_config(
        &mut self,
        tracer: &UrlTracer,
        certificates: &[SeenCertificate],
    ) -> io::Result<()> {
        let config = tracer.config();
        for warning in &config.warnings {
            self.report_line(Severity::Warns, "configuration", warning)?;
        }
        for seen in certificates {
            self.report_line(seen.verdict, &seen.of, &seen.says)?;
        }
        let lacks_certificate = config.lacks_certificate();
        for why in config
            .unreadable_passwords()
            .iter()
            .chain(&lacks_certificate)
        {
            self.report_line(Severity::Fails, "configuration", why)?;
        }
        self.check_spool(config)?;
        for gap in isolation::find_gaps(config) {
            self.report_line(Severity::Warns, "this machine", &gap)?;
        }
        for route in &config.routes {
            self.check_route(tracer, route, None)?;
        }
        if let Some(sites) = &config.sites {
            self.check_sites(tracer, sites)?;
        }
        self.check_cache(config)
    }

    /// Checks that the compiled code of modules can be kept, if the server runs any module.
    fn check_cache(&mut self, config: &Config) -> io::Result<()> {
        let cache = wasm::cache_folder(config.cache.as_deref(), config.identity.as_ref());
        match wasm::cache_doubt(&cache).filter(|_| self.counts.modules > 0) {
            Some(says) => self.report_line(
                Severity::Warns,
                &format!("cache {}", shorten_path(&cache)),
                &says,
            ),
            None => Ok(()),
        }
    }

    fn check_route(
        &mut self,
        tracer: &UrlTracer,
        route: &Arc<Route>,
        host: Option<&str>,
    ) -> io::Result<()> {
        let config = tracer.config();
        self.counts.routes += 1;
        route
            .upstreams()
            .try_for_each(|up| self.check_upstream(config, up))?;
        for cgi in route
            .programs()
            .into_iter()
            .chain(route.authorizer_program())
        {
            self.check_programs(config, route, cgi)?;
        }
        self.check_exposed_files(tracer, route, host)
    }

    /// Checks the folders of hosts.
    fn check_sites(&mut self, tracer: &UrlTracer, sites: &Sites) -> io::Result<()> {
        let shown = shorten_path(&sites.path);
        let names = match sites.list_names() {
            Ok(names) => names,
            Err(e) => return self.report_line(Severity::Fails, &shown, &e.to_string()),
        };
        for name in names {
            let path = shorten_path(&sites.path.join(&name));
            if !is_folder_name(&name) {
                let says = "is not a host name (lower case letters, digits and hyphens): galgo does not serve it";
                self.report_line(Severity::Note, &path, says)?;
                continue;
            }
            match sites.open_routes(&name, tracer.config()) {
                Ok(routes) if routes.is_empty() => {
                    let says = "has neither public/ nor cgi-bin/: galgo does not serve it";
                    self.report_line(Severity::Note, &path, says)?;
                }
                Ok(routes) => {
                    let mut routes = routes.iter();
                    routes.try_for_each(|route| self.check_route(tracer, route, Some(&name)))?;
                }
                Err(words) => self.report_line(Severity::Fails, &name, &words)?,
            }
        }
        Ok(())
    }

    fn check_programs(
        &mut self,
        config: &Config,
        route: &Arc<Route>,
        cgi: &Arc<Cgi>,
    ) -> io::Result<()> {
        for seen in programs::examine_all(config, route, cgi).map(Seen::examined) {
            let mut verdict = seen.verdict();
            let is_module = is_own_module(&seen) && cgi.remit.is_none();
            let loads = verdict == Severity::Fine
                && route.programs().is_some_and(|own| Arc::ptr_eq(own, cgi));
            let loader = self.loader.as_ref();
            let loader = loader.filter(|loader| loads && loader.can_load(cgi));
            let load = || {
                let (why, is_to_blame) = loader?.obstacle(route, cgi, &seen.url)?;
                if is_to_blame {
                    verdict = Severity::Warns;
                }
                Some(why)
            };
            let kept = describe_lifecycle(cgi, &seen, load);
            self.counts.modules += usize::from(is_module);
            self.counts.fine += usize::from(verdict == Severity::Fine);
            self.counts.programs += usize::from(verdict != Severity::Note);
            self.count_verdict(verdict);
            self.report_program(&seen, verdict, &kept)?;
        }
        Ok(())
    }

    /// Checks that bodies can wait in files. Without such files, output waits in its program.
    fn check_spool(&mut self, config: &Config) -> io::Result<()> {
        let Err(e) = galgo_service::spool::probe_folder(&config.spool) else {
            return Ok(());
        };
        let needed = config.routes.iter().any(|route| takes_bodies_in(route));
        let verdict = if needed {
            Severity::Fails
        } else {
            Severity::Warns
        };
        let folder = galgo_service::spool::resolve_folder(&config.spool);
        let folder = folder.display();
        let says =
            format!("cannot create a file in {folder}: {e} (try: set another folder as `spool`)");
        self.report_line(verdict, "spool", &says)
    }

    /// Checks that an application can be started, or takes connections at its address.
    fn check_upstream(&mut self, config: &Config, up: &Application) -> io::Result<()> {
        let kind = match up.role {
            Role::AUTHORIZER => "authorizer",
            _ => up.protocol.config_key(),
        };
        let (verdict, name, says) = match &up.to {
            To::Workers(workers) => {
                let (run, remit) = (&*workers.run, up.remit.as_deref());
                let (verdict, says) = match programs::worker_fault(config, up, run) {
                    Some(why) => (Severity::Fails, why),
                    None => (
                        Severity::Fine,
                        isolation::describe_start(remit, &up.options, run),
                    ),
                };
                (verdict, format!("{kind} {}", shorten_path(run)), says)
            }
            To::Address(address) => match galgo_handlers::upstream::check_reachable(address) {
                Ok(()) => (Severity::Fine, format!("{kind} {address}"), String::new()),
                Err(words) => (Severity::Fails, kind.to_owned(), words),
            },
        };
        self.report_line(verdict, &name, &says)
    }

    /// Prints a line for each finding, or a single line with `verdict` and `fine` if there is none. The program itself is counted already,
    /// and only once.
    fn report_program(&mut self, seen: &Seen, verdict: Severity, fine: &str) -> io::Result<()> {
        let path = shorten_path(&seen.path);
        match &seen.state {
            FileState::Other(mend) => {
                let says = "is not a program (no #! line, not executable): its URL answers 403";
                let says = match mend {
                    Some(mend) => format!("{says} (try: {mend})"),
                    None => says.into(),
                };
                self.print_line(Severity::Note, &path, &says)
            }
            FileState::Program(found) if !found.is_empty() => {
                found.iter().try_for_each(|finding| {
                    let verdict = if finding.fails {
                        Severity::Fails
                    } else {
                        Severity::Warns
                    };
                    self.print_line(verdict, &path, &finding.to_string())
                })
            }
            FileState::Program(_) | FileState::Module => self.print_line(verdict, &path, fine),
        }
    }

    /// Prints findings about files that every client may read but hardly should.
    fn check_exposed_files(
        &mut self,
        tracer: &UrlTracer,
        route: &Route,
        host: Option<&str>,
    ) -> io::Result<()> {
        for one in exposed::find_exposed_files(tracer, route, host) {
            // Two routes may have the same folder.
            if !self.exposed.insert((one.path.clone(), one.says.clone())) {
                continue;
            }
            self.report_line(one.severity, &shorten_path(&one.path), &one.says)?;
        }
        Ok(())
    }

    /// Counts a warning or a failure, and prints it.
    fn report_line(&mut self, verdict: Severity, path: &str, says: &str) -> io::Result<()> {
        self.count_verdict(verdict);
        self.print_line(verdict, path, says)
    }

    fn count_verdict(&mut self, verdict: Severity) {
        self.counts.warns += usize::from(verdict == Severity::Warns);
        self.counts.fails += usize::from(verdict == Severity::Fails);
    }

    fn print_line(&mut self, verdict: Severity, path: &str, says: &str) -> io::Result<()> {
        let mark = self.paint.verdict_mark(verdict);
        let (path, says) = (escape_lines(path), escape_lines(says));
        if says.is_empty() {
            return writeln!(self.out, "{mark}  {path}");
        }
        writeln!(self.out, "{mark}  {path}: {says}")
    }

    fn print_summary(&mut self) -> io::Result<()> {
        let all = &self.counts;
        let n = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        writeln!(
            self.out,
            "{}, {}: {} ok, {}, {} would fail",
            n(all.routes, "route"),
            n(all.programs, "program"),
            all.fine,
            n(all.warns, "warning"),
            all.fails,
        )
    }
}

/// Returns whether request bodies of a route wait in files.
fn takes_bodies_in(route: &Route) -> bool {
    match &route.handler {
        Handler::Upstream(up) => up.options.body == BodyMode::File || up.protocol == Protocol::Scgi,
        _ => {
            let programs = route.programs();
            programs.is_some_and(|cgi| cgi.options.body == BodyMode::File)
        }
    }
}

/// Returns whether a program is a module that no interpreter runs.
fn is_own_module(seen: &Seen) -> bool {
    seen.interpreter.is_none() && is_module(seen.path.as_os_str().as_bytes())
}

/// Describes how a program without findings is started and kept.
fn describe_lifecycle(cgi: &Cgi, seen: &Seen, load: impl FnOnce() -> Option<String>) -> String {
    if is_own_module(seen) {
        return kept_module(cgi, &seen.path);
    }
    let started = isolation::describe_start(cgi.remit.as_deref(), &cgi.options, &seen.path);
    warmth(cgi, seen, load) + &started
}

/// Describes how a module without findings is run; empty if the server's own worker runs it like any other module.
fn kept_module(cgi: &Cgi, module: &Path) -> String {
    let mut says = Vec::new();
    if let Some(remit) = &cgi.remit {
        says.push(format!(
            "runs as {}, in a worker of this user and route; sandbox = {:?}{}",
            isolation::describe_user(remit.user_for_owner(isolation::file_owner(module))),
            cgi.options.sandbox_name(),
            isolation::describe_enforcement(&cgi.options)
        ));
    }
    if cgi.upgrade {
        says.push(
            "`upgrade` has no effect, because the program is a WebAssembly module".to_owned(),
        );
    }
    if says.is_empty() {
        String::new()
    } else {
        format!("is a module; {}", says.join("; "))
    }
}

/// Describes how a program of a route with `start = "warm"` starts; empty on other routes. `load` tries to load the program if
/// its kind allows that, and returns why it stays cold.
fn warmth(cgi: &Cgi, seen: &Seen, load: impl FnOnce() -> Option<String>) -> String {
    if cgi.options.start == StartMode::Cold {
        return String::new();
    }
    let kind = inspect::find_kind(&seen.path, seen.interpreter.as_deref());
    let obstacle = kind.as_ref().ok().and_then(|_| load());
    if let Some(why) = obstacle {
        return format!("starts cold, because {why}; ");
    }
    match kind {
        Ok(kind) if kind.can_park() => "starts warm, or parked if it cannot be forked; ".into(),
        Ok(TemplateKind::Php) => match inspect::shares_memory(&seen.path) {
            Some(says) => format!("starts warm; {says}; "),
            None => "starts warm; ".into(),
        },
        Ok(_) => "starts warm; ".into(),
        Err(Unfit { why, .. }) => format!("starts cold, because it {why}; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts() {
        let mut report = CheckReport {
            out: Vec::new(),
            paint: Paint::without_colour(),
            loader: None,
            exposed: BTreeSet::new(),
            counts: Counts {
                programs: 1,
                routes: 2,
                fine: 1,
                ..Counts::default()
            },
        };
        report.print_summary().unwrap();
        assert_eq!(
            report.out,
            b"2 routes, 1 program: 1 ok, 0 warnings, 0 would fail\n"
        );
    }
}
