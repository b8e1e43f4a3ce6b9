//! `galgo check`: everything that would fail, said before it does.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    process::ExitCode,
};

use galgo_handlers::{modules::is_module, wasm};
use galgo_proto::{fcgi::Role, hosts::is_folder_name};
use galgo_spawn::{
    identity::{effective_uid, name_of},
    inspect,
    owners::Remit,
    sandbox::kernel,
    template::{TemplateKind, Unfit},
};

use super::{
    certificates::{self, SeenCertificate},
    identity,
    paint::Paint,
    screen::lines,
    site::SiteArgs,
};
use crate::{
    config::{
        Application, BodyMode, Cgi, CgiOptions, Config, Files, Handler, Protocol, Route, Sites,
        StartMode, To,
    },
    described::near,
    isolation,
    programs::{self, FileState, Seen, Severity, denied},
};

/// Looks at the configuration and at all programs.
pub(super) fn check(site: &SiteArgs) -> Result<ExitCode, String> {
    let out = io::stdout().lock();
    let mut report = CheckReport {
        paint: Paint::on(&out),
        out,
        counts: Counts::default(),
    };
    let done = match site.load() {
        Ok(config) => {
            // Root may read what the user that it becomes may not.
            let certificates = certificates::seen(&config);
            identity::assume(&config)?;
            let done = report.config(&config, &certificates);
            done.and_then(|()| report.summary())
        }
        Err(e) => e
            .lines()
            .try_for_each(|line| report.line(Severity::Fails, "configuration", line)),
    };
    // Who closes the pipe has read enough; the exit code still counts.
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
}

#[derive(Debug, Default)]
struct Counts {
    programs: usize,
    /// Those that the server's worker runs.
    modules: usize,
    fine: usize,
    warns: usize,
    fails: usize,
    routes: usize,
}

impl<W: Write> CheckReport<W> {
    fn config(&mut self, config: &Config, certificates: &[SeenCertificate]) -> io::Result<()> {
        for warning in &config.warnings {
            self.line(Severity::Warns, "configuration", warning)?;
        }
        for seen in certificates {
            self.line(seen.verdict, &seen.of, &seen.says)?;
        }
        let lacks_certificate = config.lacks_certificate();
        for why in config
            .unreadable_passwords()
            .iter()
            .chain(&lacks_certificate)
        {
            self.line(Severity::Fails, "configuration", why)?;
        }
        self.spool(config)?;
        for gap in isolation::gaps(config) {
            self.line(Severity::Warns, "this machine", &gap)?;
        }
        for route in &config.routes {
            self.route(config, route)?;
        }
        if let Some(sites) = &config.sites {
            self.sites(config, sites)?;
        }
        self.cache(config)
    }

    /// Whether the code of modules can be kept, if the server runs any.
    fn cache(&mut self, config: &Config) -> io::Result<()> {
        let cache = wasm::cache_folder(config.cache.as_deref(), config.identity.as_ref());
        match wasm::cache_doubt(&cache).filter(|_| self.counts.modules > 0) {
            Some(says) => self.line(Severity::Warns, &format!("cache {}", near(&cache)), &says),
            None => Ok(()),
        }
    }

    fn route(&mut self, config: &Config, route: &Route) -> io::Result<()> {
        self.counts.routes += 1;
        route.upstreams().try_for_each(|up| self.upstream(up))?;
        for cgi in route.programs().into_iter().chain(route.judge()) {
            self.programs(config, route, cgi)?;
        }
        match &route.handler {
            Handler::Files(files) => self.files(files),
            _ => Ok(()),
        }
    }

    /// The folders of hosts.
    fn sites(&mut self, config: &Config, sites: &Sites) -> io::Result<()> {
        let shown = near(&sites.path);
        let names = match sites.names() {
            Ok(names) => names,
            Err(e) => return self.line(Severity::Fails, &shown, &e.to_string()),
        };
        for name in names {
            let path = near(&sites.path.join(&name));
            if !is_folder_name(&name) {
                let says = "is not the name of a host (lower case letters, digits and hyphens): nobody can ask for it";
                self.line(Severity::Note, &path, says)?;
                continue;
            }
            match sites.routes(&name, config) {
                Ok(routes) if routes.is_empty() => {
                    let says = "has no public/ and no cgi-bin/: it is no host";
                    self.line(Severity::Note, &path, says)?;
                }
                Ok(routes) => routes.iter().try_for_each(|r| self.route(config, r))?,
                Err(words) => self.line(Severity::Fails, &name, &words)?,
            }
        }
        Ok(())
    }

    fn programs(&mut self, config: &Config, route: &Route, cgi: &Cgi) -> io::Result<()> {
        for seen in programs::all(config, route, cgi).map(Seen::examined) {
            let verdict = seen.verdict();
            let is_module = is_own_module(&seen) && cgi.remit.is_none();
            self.counts.modules += usize::from(is_module);
            self.counts.fine += usize::from(verdict == Severity::Fine);
            self.counts.programs += usize::from(verdict != Severity::Note);
            self.count(verdict);
            self.program(&seen, &kept(cgi, &seen))?;
        }
        Ok(())
    }

    /// Whether bodies can wait in files; without any, output waits in its program.
    fn spool(&mut self, config: &Config) -> io::Result<()> {
        let Err(e) = crate::spool::probe(&config.spool) else {
            return Ok(());
        };
        let needed = config.routes.iter().any(|route| takes_bodies_in(route));
        let verdict = match needed {
            true => Severity::Fails,
            false => Severity::Warns,
        };
        let folder = crate::spool::folder(&config.spool);
        let folder = folder.display();
        let says =
            format!("no file can be made in {folder}: {e} (try: name another folder as `spool`)");
        self.line(verdict, "spool", &says)
    }

    /// Whether an application takes connections there.
    fn upstream(&mut self, up: &Application) -> io::Result<()> {
        let kind = match up.role {
            Role::AUTHORIZER => "authorizer",
            _ => up.protocol.name(),
        };
        let (verdict, name, says) = match &up.to {
            To::Workers(workers) => {
                let (run, remit) = (&*workers.run, up.remit.as_deref());
                let (verdict, says) = match denied(remit, owner(run), false, run) {
                    Some(why) => (Severity::Fails, why),
                    None => (Severity::Fine, started(remit, &up.options, run)),
                };
                (verdict, format!("{kind} {}", near(run)), says)
            }
            To::Address(address) => match galgo_handlers::upstream::probe(address) {
                Ok(()) => (Severity::Fine, format!("{kind} {address}"), String::new()),
                Err(words) => (Severity::Fails, kind.to_owned(), words),
            },
        };
        self.line(verdict, &name, &says)
    }

    /// A line for each finding; one, with what is said of a `fine` program, where there is none. The program is counted
    /// already, and once.
    fn program(&mut self, seen: &Seen, fine: &str) -> io::Result<()> {
        let path = near(&seen.path);
        match &seen.state {
            FileState::Other(mend) => {
                let says = "is not a program (no #! line, not executable): its URL answers 403";
                let says = match mend {
                    Some(mend) => format!("{says} (try: {mend})"),
                    None => says.into(),
                };
                self.print(Severity::Note, &path, &says)
            }
            FileState::Program(found) if !found.is_empty() => {
                found.iter().try_for_each(|finding| {
                    let verdict = match finding.fails {
                        true => Severity::Fails,
                        false => Severity::Warns,
                    };
                    self.print(verdict, &path, &finding.to_string())
                })
            }
            FileState::Program(_) | FileState::Module => self.print(Severity::Fine, &path, fine),
        }
    }

    /// What a `files` route would show to everybody and hardly should.
    fn files(&mut self, files: &Files) -> io::Result<()> {
        let mut all = Vec::new();
        programs::walk(&files.path, 8, &mut all);
        all.sort();
        for path in all {
            let below = path.strip_prefix(&files.path).unwrap_or(&path);
            if let Some(what) = doubtful(files, below) {
                let says = format!("is {what}, and everybody may read it (try: move it away)");
                self.line(Severity::Warns, &near(&path), &says)?;
            }
        }
        Ok(())
    }

    /// Counts a warning or a failure, and prints it.
    fn line(&mut self, verdict: Severity, path: &str, says: &str) -> io::Result<()> {
        self.count(verdict);
        self.print(verdict, path, says)
    }

    fn count(&mut self, verdict: Severity) {
        self.counts.warns += usize::from(verdict == Severity::Warns);
        self.counts.fails += usize::from(verdict == Severity::Fails);
    }

    fn print(&mut self, verdict: Severity, path: &str, says: &str) -> io::Result<()> {
        let mark = self.paint.mark(verdict);
        let (path, says) = (lines(path), lines(says));
        if says.is_empty() {
            return writeln!(self.out, "{mark}  {path}");
        }
        writeln!(self.out, "{mark}  {path}: {says}")
    }

    fn summary(&mut self) -> io::Result<()> {
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

/// Whether request bodies of a route wait in files.
fn takes_bodies_in(route: &Route) -> bool {
    match &route.handler {
        Handler::Upstream(up) => up.options.body == BodyMode::File || up.protocol == Protocol::Scgi,
        _ => {
            let programs = route.programs();
            programs.is_some_and(|cgi| cgi.options.body == BodyMode::File)
        }
    }
}

/// Whether it is a module that no interpreter runs.
fn is_own_module(seen: &Seen) -> bool {
    seen.interpreter.is_none() && is_module(seen.path.as_os_str().as_bytes())
}

/// How a fine program is started and kept.
fn kept(cgi: &Cgi, seen: &Seen) -> String {
    if is_own_module(seen) {
        return kept_module(cgi, &seen.path);
    }
    let started = started(cgi.remit.as_deref(), &cgi.options, &seen.path);
    warmth(cgi, seen) + &started
}

/// The same of a module; nothing of one that the server's worker runs as any other.
fn kept_module(cgi: &Cgi, module: &Path) -> String {
    let mut says = Vec::new();
    if let Some(remit) = &cgi.remit {
        says.push(format!(
            "runs as {}, in a worker of this user and route; sandbox = {:?}{}",
            user(remit.user(owner(module))),
            cgi.options.sandbox_name(),
            isolation::held(&cgi.options)
        ));
    }
    if cgi.upgrade {
        says.push("`upgrade` is for processes: no connection is given to it".to_owned());
    }
    match says.is_empty() {
        true => String::new(),
        false => format!("is a module; {}", says.join("; ")),
    }
}

/// Whom a program runs as, and what keeps it.
pub(super) fn started(remit: Option<&Remit>, options: &CgiOptions, program: &Path) -> String {
    let uid = remit.map_or_else(effective_uid, |remit| remit.user(owner(program)));
    let ends = match (remit, options.limits.may_stay) {
        (_, true) => "goes on",
        (None, false) => "is ended by the server",
        (Some(_), false) if options.strict.is_some() && kernel().namespaces => {
            "is ended by its helper, and by the kernel where that ends"
        }
        (Some(_), false) => "is ended by its helper",
    };
    format!(
        "runs as {}, sandbox = {:?}{}; what it leaves running {ends}{}",
        user(uid),
        options.sandbox_name(),
        isolation::held(options),
        isolation::limits(&options.limits, remit.is_some())
    )
}

/// Names a user that programs run as. `galgo check` has become the server's user, so it knows whether that is the same: such a
/// program can read what the server can.
fn user(uid: u32) -> String {
    let name = name_of(uid);
    match uid == effective_uid() {
        true => format!("{name}, the server's own user"),
        false => name.to_string(),
    }
}

fn owner(program: &Path) -> u32 {
    program.metadata().map_or(0, |m| m.uid())
}

/// Whether a program of a route with `start = "warm"` can be; nothing on another.
fn warmth(cgi: &Cgi, seen: &Seen) -> String {
    if cgi.options.start == StartMode::Cold {
        return String::new();
    }
    let kind = match &seen.interpreter {
        Some(interpreter) => inspect::kind_by_interpreter(interpreter),
        None => inspect::kind(&seen.path),
    };
    match kind {
        Ok(kind) if kind.parks() => "starts warm; parked, if it cannot be forked; ".into(),
        Ok(TemplateKind::Php) => match inspect::shares_memory(&seen.path) {
            Some(says) => format!("starts warm; {says}; "),
            None => "starts warm; ".into(),
        },
        Ok(_) => "starts warm; ".into(),
        Err(Unfit { why, .. }) => format!("starts cold, for it {why}; "),
    }
}

/// What a file is that is rarely meant for the public, by its name below the folder of files.
fn doubtful(files: &Files, path: &Path) -> Option<&'static str> {
    const ENDINGS: [(&[&str], &str); 3] = [
        (
            &["php", "cgi", "pl", "py", "rb", "sh", "tcl", "lua", "phtml"],
            "the source of a program",
        ),
        (
            &[
                "pem", "key", "p12", "pfx", "kdbx", "env", "htpasswd", "pgpass",
            ],
            "named like a secret",
        ),
        (
            &[
                "sqlite", "sqlite3", "db", "sql", "bak", "orig", "swp", "old",
            ],
            "named like a database or a backup",
        ),
    ];
    let name = path.file_name()?.to_str()?;
    // Dotfiles are refused, and so is what an interpreter is named for.
    let is_dotfile = |part: &OsStr| part.as_bytes().starts_with(b".");
    if path.iter().any(is_dotfile) || files.is_source(name.as_bytes()) {
        return None;
    }
    if name == "galgo.toml" {
        return Some("the configuration");
    }
    if name.starts_with("id_") && !name.contains('.') {
        return Some("named like a private key");
    }
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    let mut all = ENDINGS.iter();
    let (_, what) = all.find(|(endings, _)| endings.contains(&ending.as_str()))?;
    Some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_rarely_public() {
        let files = Files::open(Path::new("/")).unwrap();
        let table = [
            ("index.html", None),
            ("app.js", None),
            ("key.html", None),
            ("galgo.toml", Some("the configuration")),
            ("index.php", Some("the source of a program")),
            ("tls/server.KEY", Some("named like a secret")),
            ("id_ed25519", Some("named like a private key")),
            ("id_ed25519.pub", None),
            ("book.sqlite3", Some("named like a database or a backup")),
            (".git/a.sh", None),
        ];
        for (path, want) in table {
            assert_eq!(doubtful(&files, Path::new(path)), want, "{path}");
        }
    }

    #[test]
    fn the_summary_counts() {
        let mut report = CheckReport {
            out: Vec::new(),
            paint: Paint::plain(),
            counts: Counts {
                programs: 1,
                routes: 2,
                fine: 1,
                ..Counts::default()
            },
        };
        report.summary().unwrap();
        assert_eq!(
            report.out,
            b"2 routes, 1 program: 1 ok, 0 warnings, 0 would fail\n"
        );
    }
}
