//! A template that this process has started itself.

use crate::{
    Child, FileId, Launch, Sandbox, StartError,
    claims::{MarkKind, ProcessMark},
    leftover::WatchedTemplate,
    own_child::set_limits,
    standard_ruleset::count_renewals,
    template::{
        eligible,
        names::module_name,
        preforked::{BirthMark, OwnPreforked},
        reports::{LoadedTemplate, Reports},
        shim,
    },
    template_failure::{LoadFailure, NoTemplate},
    template_kind::{TemplateKind, Uses},
};
use rustix::fs::fstat;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    send, sendmsg, socketpair, sockopt::set_socket_passcred,
};
use std::{
    collections::HashSet,
    io::{self, IoSlice},
    mem::{self, MaybeUninit},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

/// The longest list of learned modules that a template gets, bytes; children load the rest.
const MODULES_MAX: usize = 96 << 10;

/// Children are born with the same mark for this long, if a child is on its way at each moment.
const BIRTHS: Duration = Duration::from_secs(1);

/// A program, loaded and stopped, or on its way there. Dropping it kills the program; its children live on.
#[derive(Debug)]
pub(crate) struct OwnTemplate {
    /// Dropped before `child`.
    _watched: Option<WatchedTemplate>,
    pub(crate) child: Child,
    pub(crate) kind: TemplateKind,
    pub(crate) uses: Uses,
    looked: u8,
    /// The standard streams that the program was given.
    streams: [FileId; 3],
    /// The kind of its children's marks.
    of_children: Option<MarkKind>,
    /// The mark of the template while children are on their way; `None`: leftover processes of children may outlive them.
    births: Option<Mutex<Weak<BirthMark>>>,
    /// RLIMIT_CPU, seconds.
    cpu: Option<u64>,
    /// The CPU time after which the template makes no more children, because it would end before long.
    worn: Option<Duration>,
    control: OwnedFd,
    reports: Reports,
}

/// The byte that tells a template that it has been examined; see `shim/template.c`.
mod looked {
    pub(super) const NOTHING: u8 = b'@';
    /// The template's children are in their own domains.
    pub(super) const APART: u8 = 1;
}

impl OwnTemplate {
    /// Extends `launch` to the start of a template, and has `run` start it: see [`Template::start`](super::Template::start).
    pub(crate) fn start(
        mut launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
        (kind, uses): (TemplateKind, Uses),
        modules: &[u8],
        run: impl FnOnce(Launch) -> Result<Child, StartError>,
    ) -> Result<Self, StartError> {
        let streams = streams(stdio).map_err(StartError::descriptors)?;
        let (control, theirs) = pair().map_err(StartError::descriptors)?;
        let files = shim::shim_files(kind).map_err(StartError::descriptors)?;
        kind.add_env(uses, &mut launch.env);
        // The template's children have marks of their own.
        let of_children = launch.limits.mark_kind();
        launch.limits.may_stay &= launch.limits.is_worker;
        launch.limits.is_worker = true;
        let apart = launch.sandbox == Sandbox::Standard;
        let mut named = HashSet::new();
        let names = kind.module_names(modules).into_iter().map(module_name);
        let names: Vec<_> = names.filter(|name| named.insert(*name)).collect();
        let mut modules = names.join(&b'\n');
        modules.truncate(whole_lines(&modules, MODULES_MAX));
        send(
            &control,
            &[b"M", &modules[..]].concat(),
            SendFlags::NOSIGNAL,
        )
        .map_err(|e| StartError::descriptors(e.into()))?;
        launch.more.push(theirs);
        for file in files {
            let copy = file.try_clone().map_err(StartError::descriptors)?;
            launch.more.push(copy);
        }
        let cpu = launch.limits.cpu;
        let mut reports = Reports::default();
        reports.loaded.renewals = count_renewals();
        let child = run(launch)?;
        let births = child.is_marked().then(Mutex::default);
        let forks = uses == Uses::Many && births.is_some();
        Ok(Self {
            _watched: forks.then(|| WatchedTemplate::new(child.pid())).flatten(),
            child,
            kind,
            uses,
            looked: looked::NOTHING | if apart { looked::APART } else { 0 },
            streams,
            of_children,
            births,
            cpu,
            worn: None,
            control,
            reports,
        })
    }

    /// Implements [`Template::loaded`](super::Template::loaded).
    pub(crate) fn loaded(&mut self) -> Result<Option<LoadedTemplate>, LoadFailure> {
        self.read_reports().map_err(|e| {
            let reason = match e.raw_os_error() {
                // The template did not end: this process had an error while looking at it.
                Some(_) if self.holds() => NoTemplate::NotNow,
                _ => NoTemplate::Ended,
            };
            match e.kind() {
                io::ErrorKind::UnexpectedEof => LoadFailure::new(reason, ""),
                _ => LoadFailure::new(reason, e.to_string()),
            }
        })
    }

    fn read_reports(&mut self) -> io::Result<Option<LoadedTemplate>> {
        if !self.reports.read(&self.control)? {
            return Ok(None);
        }
        let mut loaded = mem::take(&mut self.reports.loaded);
        loaded.knows_modules = true;
        eligible::examine(
            self.child.pid(),
            self.kind,
            self.uses,
            &self.streams,
            &mut loaded,
        )?;
        send(
            &self.control,
            &[self.looked],
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )?;
        // Processes that the program started while loading are killed now.
        self.child.drop_mark();
        let spent = cpu_time(self.child.pid());
        let left = |cpu| Duration::from_secs(cpu).saturating_sub(spent);
        self.worn = self.cpu.map(|cpu| spent + left(cpu) / 2);
        Ok(Some(loaded))
    }

    /// Implements [`Template::is_holding`](super::Template::is_holding).
    pub(crate) fn holds(&self) -> bool {
        self.reports.holds
    }

    /// Implements [`Template::prefork`](super::Template::prefork).
    pub(crate) fn prefork(&self) -> io::Result<OwnPreforked> {
        let births = self.births.as_ref();
        let born_with = births.map(|births| self.birth_mark(births));
        let (ours, theirs) = pair()?;
        set_socket_passcred(&ours, true)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [theirs.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.control, &[IoSlice::new(b"C")], &mut control, flags)?;
        Ok(OwnPreforked::new(ours, born_with))
    }

    /// Returns the mark that the next child has until it has said hello. By then fork handlers of the program have run in the
    /// child: processes that they start have this mark, too. These are killed once no child is on its way that may have been
    /// born with the mark.
    fn birth_mark(&self, births: &Mutex<Weak<BirthMark>>) -> Arc<BirthMark> {
        let mut births = births.lock().unwrap_or_else(PoisonError::into_inner);
        let last = births.upgrade();
        if let Some(last) = last.as_ref().filter(|last| last.since.elapsed() < BIRTHS) {
            return last.clone();
        }
        let new = Arc::new(BirthMark {
            mark: ProcessMark::new(MarkKind::Lasting),
            of_child: self.of_children,
            since: Instant::now(),
            next: OnceLock::new(),
        });
        set_limits(self.child.pid(), &new.mark);
        if let Some(last) = last {
            let _ = last.next.set(new.clone());
        }
        *births = Arc::downgrade(&new);
        new
    }

    /// Implements [`Template::is_worn`](super::Template::is_worn).
    pub(crate) fn is_worn(&self) -> bool {
        let most = self.worn.filter(|_| self.uses == Uses::Many);
        most.is_some_and(|most| cpu_time(self.child.pid()) >= most)
    }

    /// Implements [`Template::into_preforked`](super::Template::into_preforked).
    pub(crate) fn itself(self) -> OwnPreforked {
        let mut child = self.child;
        if let Some(kind) = self.of_children.filter(|_| self.births.is_some()) {
            child.set_mark(ProcessMark::new(kind));
        }
        OwnPreforked::parked(self.control, child)
    }

    /// Returns whether the process is still there.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.child.has_exited(), Ok(false))
    }
}

impl AsFd for OwnTemplate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

fn streams(stdio: [BorrowedFd<'_>; 3]) -> io::Result<[FileId; 3]> {
    let mut streams = [FileId::default(); 3];
    for (stream, fd) in streams.iter_mut().zip(stdio) {
        *stream = FileId::from_stat(&fstat(fd)?);
    }
    Ok(streams)
}

/// Returns the CPU time of a process that has not been reaped (clock_getcpuclockid(3)).
fn cpu_time(pid: i32) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to the two locals alone.
    let read = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    if read {
        Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
    } else {
        Duration::ZERO
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    Ok(pair?)
}

/// Returns the length of the whole lines that fit into `most` bytes.
fn whole_lines(text: &[u8], most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let cut = text[..most].iter().rposition(|&b| b == b'\n');
    cut.map_or(0, |at| at + 1)
}
