//! The helper's side of templates.

use super::{
    super::program::{CheckedProgram, HelperTerms},
    waiting::{PreforkedEvent, PreforkedStage, TemplateOrigin, WaitingProcess},
};
use crate::{
    Child, Direct, Launch, Start, StartError, inspect,
    remote::{
        connection::{HelperEnd, IdleEnds},
        message::StartOrder,
        template_message::{NoTemplate, PREFORK, TemplateOrder, TemplateReport, TemplateStop},
    },
    template::{
        FileWatch, LoadedTemplate, SearchPath, TemplateKind, Unfit, Unwatched, Uses, dates,
        own::{OwnTemplate, TemplateStart},
    },
};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
};
use std::{
    collections::HashMap,
    ffi::{CString, OsStr},
    mem,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Interval for checking files that may change without an event.
const UNHEARD: Duration = Duration::from_secs(1);

/// Processes that a helper keeps loaded: templates, and their children that wait for a request.
#[derive(Default)]
pub(in super::super) struct HelperTemplates {
    made: Vec<HeldTemplate>,
    children: Vec<WaitingProcess>,
    /// `None` while there is nothing to watch.
    watch: Option<FileWatch<TemplateOrigin>>,
    /// Time of the last check of files that may change without an event.
    looked: Option<Instant>,
    /// Module search paths of programs, by program file, as reported by templates that were given no learned modules.
    known: HashMap<CString, KnownSearchPath>,
}

struct KnownSearchPath {
    search: SearchPath,
    /// Modules that changed at this time or later do not count: a request may have changed them.
    since: Duration,
}

/// A template that is loading or has stopped, and its connection.
struct HeldTemplate {
    template: OwnTemplate,
    socket: HelperEnd,
    origin: Arc<TemplateOrigin>,
    /// Time of its start.
    began: Duration,
    since: Duration,
    /// The template was given no learned modules.
    plain: bool,
    /// The learned modules were checked for this template.
    knows: bool,
    told: TemplateProgress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TemplateProgress {
    Started,
    Holds,
    Stopped,
}

/// A template to load: its kind, its program and its modules.
struct Wanted {
    kind: TemplateKind,
    origin: TemplateOrigin,
    modules: Vec<u8>,
    knows: bool,
}

type TemplateRefusal = (NoTemplate, String);

impl HelperTemplates {
    pub(in super::super) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.children.is_empty()
    }

    /// Marks all templates as stale, because files that their sandbox lists were replaced. They and their waiting children end
    /// with the next [`turn`](Self::turn).
    pub(in super::super) fn retire(&mut self) {
        self.made.iter().for_each(|made| made.origin.retire());
        self.children.iter().for_each(WaitingProcess::retire);
    }

    /// Drops all templates. For templates that are still loading, the server asks again at once. Waiting children may still be
    /// given a request.
    pub(in super::super) fn let_go(&mut self) {
        for made in self.made.drain(..) {
            if made.told != TemplateProgress::Stopped {
                made.tell(&TemplateReport::Changed);
            }
        }
    }

    /// Adds the descriptors to poll, in the order in which [`turn`](Self::turn) takes the results.
    pub(in super::super) fn wait_for<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        let made = self.made.iter();
        let made = made.flat_map(|m| [m.template.as_fd(), m.socket.as_fd()]);
        let all = made.chain(self.children.iter().flat_map(WaitingProcess::fds));
        let all = all.chain(self.watch.as_ref().map(AsFd::as_fd));
        fds.extend(all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let mounts = self.watch.as_ref().and_then(FileWatch::mounts);
        fds.extend(mounts.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::PRI)));
    }

    /// Handles events. `ready` says which descriptors are ready. Returns the children that have been given a request, each with
    /// its connection. Orders for new children may name connections of `idle`. `buffer` must hold the longest message.
    pub(in super::super) fn turn(
        &mut self,
        terms: &HelperTerms<'_>,
        ready: &mut impl Iterator<Item = bool>,
        idle: &mut IdleEnds,
        buffer: &mut [u8],
    ) -> Vec<(Child, HelperEnd)> {
        let mut both = || [(); 2].map(|()| ready.next().unwrap_or(false));
        let made = mem::take(&mut self.made);
        let made: Vec<_> = made.into_iter().map(|m| (m, both())).collect();
        let children = mem::take(&mut self.children);
        let children: Vec<_> = children.into_iter().map(|c| (c, both())).collect();
        // Do this before reading any message: a request that came after a change must not meet a template made before it.
        if let Some(watch) = &self.watch {
            watch.for_each_changed(TemplateOrigin::retire);
            let is_remounted = ready.nth(1).unwrap_or(false);
            look_at_unheard(watch, is_remounted, &mut self.looked);
        }
        // Handle templates first. If a child is gone, the server then already knows why.
        for (made, ready) in made {
            self.made_turn(made, ready, idle);
        }
        let mut running = Vec::new();
        for (child, ready) in children {
            match child.turn(ready, terms, buffer) {
                PreforkedEvent::Waits(child) => self.children.push(child),
                PreforkedEvent::Runs(child, socket) => running.push((child, socket)),
                PreforkedEvent::Over => {}
            }
        }
        if self.is_empty() {
            self.watch = None;
        }
        running
    }

    fn made_turn(
        &mut self,
        mut made: HeldTemplate,
        [template, server]: [bool; 2],
        idle: &mut IdleEnds,
    ) {
        if made.origin.is_stale() {
            return made.tell(&TemplateReport::Changed);
        }
        if template && !self.moved(&mut made) {
            return;
        }
        if server {
            self.asked(made, idle)
        } else {
            self.made.push(made)
        }
    }

    /// Handles reports of the template. Returns whether it can still be used.
    fn moved(&mut self, made: &mut HeldTemplate) -> bool {
        if made.told == TemplateProgress::Stopped {
            // A stopped template says nothing more, so it has ended.
            return false;
        }
        let loaded = made.template.loaded();
        if made.told == TemplateProgress::Started && made.template.holds() {
            made.told = TemplateProgress::Holds;
            made.tell(&TemplateReport::Holds);
        }
        let kept = match loaded {
            Ok(None) => return true,
            Ok(Some(loaded)) => self.keep(made, loaded),
            Err(e) if e.raw_os_error().is_some() => Err((NoTemplate::NotNow, e.to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err((NoTemplate::Ended, String::new()))
            }
            Err(e) => Err((NoTemplate::Ended, e.to_string())),
        };
        if let Err((why, words)) = &kept {
            made.tell(&TemplateReport::None(*why, words.clone()));
        }
        kept.unwrap_or(false)
    }

    /// Keeps a template that has stopped. Returns whether it can be used.
    fn keep(
        &mut self,
        made: &mut HeldTemplate,
        loaded: LoadedTemplate,
    ) -> Result<bool, TemplateRefusal> {
        let own = Path::new(OsStr::from_bytes(made.origin.path.as_bytes()));
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => none.insert(
                FileWatch::new()
                    .map_err(|e| (NoTemplate::NotNow, Unwatched::Unable(e).to_string()))?,
            ),
        };
        let kept = watch.watch_template(&loaded, &made.origin, own, made.began);
        kept.map_err(|e| match e {
            Unwatched::Unable(_) => (NoTemplate::NotNow, e.to_string()),
            Unwatched::Changed(_) => (NoTemplate::Changed, e.to_string()),
        })?;
        TemplateReport::left_modules(&loaded.left)
            .iter()
            .for_each(|left| made.tell(left));
        let usable = loaded.obstacle.is_none();
        made.tell(&TemplateReport::Stopped(TemplateStop {
            memory: loaded.memory,
            knows: made.knows,
            obstacle: loaded.obstacle.unwrap_or_default(),
        }));
        if usable && made.plain {
            let known = KnownSearchPath {
                search: loaded.search,
                since: made.since,
            };
            self.known.insert(made.origin.path.clone(), known);
        }
        made.told = TemplateProgress::Stopped;
        Ok(usable)
    }

    /// Handles the server's message, which asks for a child or gives a parked process its request, or the server's end.
    fn asked(&mut self, made: HeldTemplate, idle: &mut IdleEnds) {
        if made.told == TemplateProgress::Stopped && made.origin.uses == Uses::Once {
            let HeldTemplate {
                template,
                socket,
                origin,
                ..
            } = made;
            let parked = PreforkedStage::Waits(template.itself());
            let parked = WaitingProcess::new(parked, socket, origin);
            // The server's message is still unread.
            return self.children.push(parked);
        }
        let mut buffer = [0; 16];
        let received = made.socket.receive(&mut buffer);
        match received {
            Err(Errno::AGAIN | Errno::INTR) => self.made.push(made),
            Ok((n, fds)) if made.told == TemplateProgress::Stopped => {
                let named = buffer.get(..n).and_then(|m| idle.take_named(m, fds));
                let Some((socket, PREFORK, [])) = named else {
                    return;
                };
                if made.template.is_worn() {
                    return made.tell(&TemplateReport::Changed);
                }
                // If the template gives no child, the connection is closed.
                if let Ok(child) = made.template.prefork() {
                    let child = PreforkedStage::Coming(child);
                    let child = WaitingProcess::new(child, socket, made.origin.clone());
                    self.children.push(child);
                }
                self.made.push(made);
            }
            _ => {}
        }
    }

    /// Loads a program if the order is permitted.
    pub(in super::super) fn load(
        &mut self,
        terms: &HelperTerms<'_>,
        direct: &mut Direct,
        order: &TemplateOrder,
        stdio: [&OwnedFd; 3],
        socket: HelperEnd,
    ) {
        let began = dates::file_time_now();
        match self.started(terms, direct, order, stdio) {
            Err((why, words)) => {
                socket.send_report(&TemplateReport::None(why, words).encode(), &[]);
            }
            Ok((template, wanted)) => {
                let started = TemplateReport::Started(wanted.kind, template.child.pid());
                let named = terms.own_ids.then(|| template.child.as_fd());
                let fds: Vec<_> = named.into_iter().collect();
                socket.send_report(&started.encode(), &fds);
                self.made.push(HeldTemplate {
                    template,
                    socket,
                    origin: Arc::new(wanted.origin),
                    began,
                    since: began.min(order.since),
                    plain: wanted.modules.is_empty(),
                    knows: wanted.knows,
                    told: TemplateProgress::Started,
                });
            }
        }
    }

    fn started(
        &self,
        terms: &HelperTerms<'_>,
        direct: &mut Direct,
        order: &TemplateOrder,
        stdio: [&OwnedFd; 3],
    ) -> Result<(OwnTemplate, Wanted), TemplateRefusal> {
        let not_now = |e: StartError| (NoTemplate::NotNow, e.to_string());
        let (mut launch, wanted) = self.wanted(terms, order)?;
        let stdio = stdio.map(AsFd::as_fd);
        let modules = &wanted.modules;
        let start = TemplateStart::new(&mut launch, wanted.kind, order.uses, modules, stdio);
        let start = start.map_err(not_now)?;
        let more: Vec<_> = launch.more.iter().map(AsFd::as_fd).collect();
        let child = direct.start_program(&Start {
            more: &more,
            ..launch.as_start(stdio)
        });
        let child = child.map_err(not_now)?;
        let strict = terms.remit.terms.strict.is_some();
        Ok((start.started(child, strict), wanted))
    }

    /// Returns the template to load, if the order is permitted.
    fn wanted(
        &self,
        terms: &HelperTerms<'_>,
        order: &TemplateOrder,
    ) -> Result<(Launch, Wanted), TemplateRefusal> {
        let remit = terms.remit;
        let not_now = |words| (NoTemplate::NotNow, words);
        let Some(env) = remit.template_environment() else {
            return Err(not_now("programs of its route start cold".to_owned()));
        };
        if terms.own_ids && !sees_itself() {
            let why = "runs in a sandbox without a /proc of its own, in which a template cannot be looked at";
            return Err((NoTemplate::Unfit, why.into()));
        }
        let asked = StartOrder {
            program: order.program.clone(),
            ..StartOrder::default()
        };
        let program = CheckedProgram::from_order(&asked, remit, terms.uid);
        let mut program = program.map_err(|why| not_now(why.to_string()))?;
        program.env = env;
        let interpreter = remit.interpreter(order.program.as_bytes());
        let kind = match interpreter {
            None => inspect::detect_kind(Path::new(OsStr::from_bytes(program.path.as_bytes()))),
            Some(interpreter) => inspect::kind_by_interpreter(interpreter),
        };
        let kind = kind.map_err(|Unfit { why, passes }| {
            if passes {
                (NoTemplate::NotNow, format!("it {why}"))
            } else {
                (NoTemplate::Unfit, why)
            }
        })?;
        let shared = interpreter.is_some_and(|path| inspect::serves_all(path));
        if shared {
            // The shared template belongs to no script.
            program.args.truncate(1);
            program.dir = c"/".to_owned();
        }
        let (modules, knows) = match self.known.get(&program.path) {
            _ if order.modules.is_empty() => (Vec::new(), true),
            None => (Vec::new(), false),
            Some(known) => {
                let since = order.since.min(known.since);
                (
                    known.search.trusted_names(kind, &order.modules, since),
                    true,
                )
            }
        };
        let wanted = Wanted {
            kind,
            origin: TemplateOrigin::new(&program, shared, order.uses),
            modules,
            knows,
        };
        Ok((program.into_launch(terms), wanted))
    }
}

/// Checks files that may change without an event, if the mounts have changed or [`UNHEARD`] has passed since the last check.
fn look_at_unheard(
    watch: &FileWatch<TemplateOrigin>,
    is_remounted: bool,
    looked: &mut Option<Instant>,
) {
    if is_remounted {
        watch.mounts_changed();
    } else if !watch.has_unheard() || looked.is_some_and(|at| at.elapsed() < UNHEARD) {
        return;
    }
    watch.look_at_unheard(TemplateOrigin::retire);
    *looked = Some(Instant::now());
}

/// Whether /proc belongs to this process's own PID namespace.
fn sees_itself() -> bool {
    let own = rustix::process::getpid().as_raw_pid().to_string();
    std::fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == own.as_str())
}

impl HeldTemplate {
    /// Sends a report. A server that does not hear it, or has no room for it, drops the template.
    fn tell(&self, report: &TemplateReport) {
        self.socket.send_report(&report.encode(), &[]);
    }
}
