//! The helper's side of templates.

use crate::{
    Child, Direct, Launch, Start,
    helper::{
        checked_program::{CheckedProgram, HelperTerms},
        warm::waiting_children::{PreforkedEvent, PreforkedStage, TemplateOrigin, WaitingProcess},
    },
    inspect,
    remote::{
        connection::{HelperEnd, IdleEnds},
        message::StartOrder,
        template_message::{PREFORK, TemplateOrder, TemplateReport, TemplateStop},
    },
    template::{
        FileWatch, LoadFailure, LoadedTemplate, NoTemplate, SearchPath, TemplateKind, UNHEARD,
        Uses, dates, local_template::OwnTemplate,
    },
};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
};
use std::{
    collections::HashMap,
    ffi::{CStr, CString, OsStr},
    mem,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Processes that a helper keeps loaded: templates, and their children that wait for a request.
#[derive(Default)]
pub(crate) struct HelperTemplates {
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
    load: TemplateLoad,
    has_stopped: bool,
}

/// The start of a template.
struct TemplateLoad {
    origin: Arc<TemplateOrigin>,
    /// Time of the order.
    began: Duration,
    since: Duration,
    /// The template was given no learned modules.
    plain: bool,
    /// The learned modules were checked for this template.
    knows: bool,
}

impl HelperTemplates {
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.children.is_empty()
    }

    /// Marks all templates as stale, because files that their sandbox lists were replaced. They and their waiting children end
    /// with the next [`turn`](Self::turn).
    pub(crate) fn retire(&mut self) {
        self.made.iter().for_each(|made| made.load.origin.retire());
        self.children.iter().for_each(WaitingProcess::retire);
    }

    /// Drops all templates. For templates that are still loading, the server asks again at once. Waiting children may still be
    /// given a request.
    pub(crate) fn let_go(&mut self) {
        for made in self.made.drain(..) {
            if !made.has_stopped {
                made.tell(&TemplateReport::Changed);
            }
        }
    }

    /// Adds the descriptors to poll, in the order in which [`turn`](Self::turn) takes the results.
    pub(crate) fn wait_for<'f>(&'f self, fds: &mut Vec<PollFd<'f>>) {
        let made = self.made.iter();
        let made = made.flat_map(|m| [m.template.as_fd(), m.socket.as_fd()]);
        let all = made.chain(self.children.iter().flat_map(WaitingProcess::fds));
        let all = all.chain(self.watch.as_ref().map(AsFd::as_fd));
        fds.extend(all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let mounts = self.watch.as_ref().and_then(|watch| watch.unheard.mounts());
        fds.extend(mounts.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::PRI)));
    }

    /// Handles events. `ready` says which descriptors are ready. Returns the children that have been given a request, each with
    /// its connection. Orders for new children may name connections of `idle`. `buffer` must hold the longest message.
    pub(crate) fn turn(
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
                Some(PreforkedEvent::Waits(child)) => self.children.push(child),
                Some(PreforkedEvent::Runs(child, socket)) => running.push((child, socket)),
                None => {}
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
        if made.load.origin.is_stale() {
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
        if made.has_stopped {
            // A stopped template says nothing more, so it has ended.
            return false;
        }
        let held = made.template.holds();
        let loaded = made.template.loaded();
        if made.template.holds() && !held {
            made.tell(&TemplateReport::Holds);
        }
        let kept = match loaded {
            Ok(None) => return true,
            Ok(Some(loaded)) => self.keep(made, loaded),
            Err(e) => Err(e),
        };
        kept.unwrap_or_else(|failure| {
            made.tell(&failure.into());
            false
        })
    }

    /// Keeps a template that has stopped. Returns whether it can be used.
    fn keep(
        &mut self,
        made: &mut HeldTemplate,
        loaded: LoadedTemplate,
    ) -> Result<bool, LoadFailure> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => none.insert(FileWatch::new()?),
        };
        let origin = &made.load.origin;
        watch.watch_template(&loaded, origin, file_path(&origin.path), made.load.began)?;
        TemplateReport::left_modules(&loaded.left)
            .iter()
            .for_each(|left| made.tell(left));
        let usable = loaded.obstacle.is_none();
        made.tell(&TemplateReport::Stopped(TemplateStop {
            memory: loaded.memory,
            knows: made.load.knows,
            obstacle: loaded.obstacle.unwrap_or_default(),
        }));
        if usable && made.load.plain {
            let known = KnownSearchPath {
                search: loaded.search,
                since: made.load.since,
            };
            self.known.insert(origin.path.clone(), known);
        }
        made.has_stopped = true;
        Ok(usable)
    }

    /// Handles the server's message, which asks for a child or gives a parked process its request, or the server's end.
    fn asked(&mut self, made: HeldTemplate, idle: &mut IdleEnds) {
        if made.has_stopped && made.template.uses == Uses::Once {
            let parked = PreforkedStage::Waits(made.template.itself());
            let parked = WaitingProcess::new(parked, made.socket, made.load.origin);
            // The server's message is still unread.
            return self.children.push(parked);
        }
        let mut buffer = [0; 16];
        let received = made.socket.receive(&mut buffer);
        match received {
            Err(Errno::AGAIN | Errno::INTR) => self.made.push(made),
            Ok((n, fds)) if made.has_stopped => {
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
                    let child = WaitingProcess::new(child, socket, made.load.origin.clone());
                    self.children.push(child);
                }
                self.made.push(made);
            }
            _ => {}
        }
    }

    /// Loads a program if the order is permitted.
    pub(crate) fn load(
        &mut self,
        terms: &HelperTerms<'_>,
        direct: &mut Direct,
        order: &TemplateOrder,
        stdio: [&OwnedFd; 3],
        socket: HelperEnd,
    ) {
        match self.start(terms, direct, order, stdio) {
            Err(failure) => drop(socket.send_report(&TemplateReport::from(failure).encode(), &[])),
            Ok((template, load)) => {
                let started = TemplateReport::Started(template.kind, template.child.pid());
                let named = terms.own_ids.then(|| template.child.as_fd());
                let fds: Vec<_> = named.into_iter().collect();
                socket.send_report(&started.encode(), &fds);
                self.made.push(HeldTemplate {
                    template,
                    socket,
                    load,
                    has_stopped: false,
                });
            }
        }
    }

    fn start(
        &self,
        terms: &HelperTerms<'_>,
        direct: &mut Direct,
        order: &TemplateOrder,
        stdio: [&OwnedFd; 3],
    ) -> Result<(OwnTemplate, TemplateLoad), LoadFailure> {
        let began = dates::file_time_now();
        let (program, kind, shared) = check_order(terms, order)?;
        let known = self.known.get(&program.path);
        let modules = known.map(|known| {
            let since = order.since.min(known.since);
            known.search.trusted_names(kind, &order.modules, since)
        });
        let modules = modules.unwrap_or_default();
        let load = TemplateLoad {
            origin: Arc::new(TemplateOrigin::new(&program, shared, order.uses)),
            began,
            since: began.min(order.since),
            plain: modules.is_empty(),
            knows: known.is_some() || order.modules.is_empty(),
        };
        let stdio = stdio.map(AsFd::as_fd);
        let run = |launch: Launch| {
            let more: Vec<_> = launch.more.iter().map(AsFd::as_fd).collect();
            direct.start_program(&Start {
                more: &more,
                ..launch.as_start(stdio)
            })
        };
        let launch = program.into_launch(terms);
        let template = OwnTemplate::start(launch, stdio, (kind, order.uses), &modules, run)?;
        Ok((template, load))
    }
}

/// Checks whether an order is permitted. Returns the program, its kind, and whether its template serves all files that its
/// interpreter runs.
fn check_order(
    terms: &HelperTerms<'_>,
    order: &TemplateOrder,
) -> Result<(CheckedProgram, TemplateKind, bool), LoadFailure> {
    let remit = terms.remit;
    let Some(env) = remit.template_environment() else {
        return Err(LoadFailure::not_now("programs of its route start cold"));
    };
    if terms.own_ids && !sees_itself() {
        let why =
            "runs in a sandbox without its own /proc, so galgo cannot examine a template there";
        return Err(LoadFailure::new(NoTemplate::Unfit, why));
    }
    let asked = StartOrder {
        program: order.program.clone(),
        ..StartOrder::default()
    };
    let program = CheckedProgram::from_order(&asked, remit, terms.uid);
    let mut program = program.map_err(LoadFailure::not_now)?;
    program.env = env;
    let interpreter = remit.interpreter(order.program.as_bytes());
    let kind = inspect::find_kind(file_path(&program.path), interpreter)?;
    let shared = interpreter.is_some_and(inspect::serves_all);
    if shared {
        // The shared template belongs to no script.
        program.args.truncate(1);
        program.dir = c"/".to_owned();
    }
    Ok((program, kind, shared))
}

/// Checks files that may change without an event, if the mounts have changed or [`UNHEARD`] has passed since the last check. Also
/// notices that the ruleset of programs has changed.
fn look_at_unheard(
    watch: &FileWatch<TemplateOrigin>,
    is_remounted: bool,
    looked: &mut Option<Instant>,
) {
    if is_remounted {
        watch.unheard.mounts_changed();
    } else if looked.is_some_and(|at| at.elapsed() < UNHEARD) || !watch.unheard.has_unheard() {
        return;
    }
    for origin in watch.unheard.due_programs() {
        if watch.unheard.has_changed(&origin) {
            origin.retire();
        }
    }
    *looked = Some(Instant::now());
}

fn file_path(file: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(file.to_bytes()))
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
