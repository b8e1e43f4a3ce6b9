//! A template that this process has started itself.

use super::{
    eligible,
    kind::{TemplateKind, Uses},
    preforked::OwnPreforked,
    reports::{LoadedTemplate, Reports},
    shim,
};
use crate::{Child, Launch, LaunchOutcome, Sandbox, Spawner, StartError};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    send, sendmsg, socketpair, sockopt::set_socket_passcred,
};
use std::{
    io::{self, IoSlice},
    mem::{self, MaybeUninit},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The longest list of learned modules a template is given, bytes; what is beyond is left for the
/// children to load.
const MODULES_MAX: usize = 96 << 10;

/// A start of a program that is to stop before its first line, before it is started.
#[derive(Debug)]
pub(crate) struct TemplateStart {
    /// With what makes it a template.
    pub(crate) launch: Launch,
    kind: TemplateKind,
    uses: Uses,
    may_stay: bool,
    control: OwnedFd,
}

/// A program, loaded and stopped, or on its way there. Dropping it kills it; its children live on.
#[derive(Debug)]
pub(crate) struct OwnTemplate {
    child: Child,
    kind: TemplateKind,
    uses: Uses,
    looked: u8,
    control: OwnedFd,
    reports: Reports,
}

/// What a template is told when it has been looked at; see `shim/template.c`.
mod looked {
    pub(super) const NOTHING: u8 = b'@';
    /// Its children are in domains of their own.
    pub(super) const APART: u8 = 1;
    /// What its children leave running ends with them.
    pub(super) const ENDS: u8 = 2;
    /// It is in a domain that handles rights to files.
    pub(super) const FILES: u8 = 4;
}

impl TemplateStart {
    /// See [`Template::start`](super::Template::start).
    pub(crate) fn new(
        mut launch: Launch,
        kind: TemplateKind,
        uses: Uses,
        modules: &[u8],
    ) -> Result<Self, StartError> {
        let (control, theirs) = pair().map_err(StartError::descriptors)?;
        let files = shim::files(kind).map_err(StartError::descriptors)?;
        kind.add_env(uses, &mut launch.env);
        launch.limits.cpu = None;
        // A limit cannot be raised again: its children have numbers of their own.
        let may_stay = mem::replace(&mut launch.limits.may_stay, true);
        let mut modules = kind.names(modules).join(&b'\n');
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
        Ok(Self {
            launch,
            kind,
            uses,
            may_stay,
            control,
        })
    }

    /// It was started by other means than [`run`](Self::run), as `child`. `files`: in a domain that handles rights to files.
    pub(crate) fn started(self, child: Child, files: bool) -> OwnTemplate {
        let apart = self.launch.sandbox == Sandbox::Standard;
        OwnTemplate {
            child,
            kind: self.kind,
            uses: self.uses,
            looked: looked::NOTHING
                | if apart { looked::APART } else { 0 }
                | if self.may_stay { 0 } else { looked::ENDS }
                | if files { looked::FILES } else { 0 },
            control: self.control,
            reports: Reports::default(),
        }
    }

    /// Has `spawner` start it.
    pub(super) fn run(
        mut self,
        spawner: &mut Spawner,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<OwnTemplate, StartError> {
        let launch = Launch {
            path: self.launch.path.take(),
            args: mem::take(&mut self.launch.args),
            env: mem::take(&mut self.launch.env),
            dir: mem::take(&mut self.launch.dir),
            more: mem::take(&mut self.launch.more),
            ..self.launch
        };
        let child = spawner.launch(launch, stdio).map_err(|f| f.error)?;
        Ok(self.started(child, false))
    }
}

impl OwnTemplate {
    /// Whether it has been executed; asked of the spawner that started it. To be asked now and then until it is so: only then
    /// all descriptors it was given are its own, and a failure is known by nothing else.
    ///
    /// # Errors
    /// It could not be.
    pub(crate) fn begun(&self, spawner: &mut Spawner) -> Result<bool, StartError> {
        match spawner.outcome(&self.child) {
            LaunchOutcome::Started => Ok(true),
            LaunchOutcome::UnderWay => Ok(false),
            LaunchOutcome::Failed(failed) => Err(failed.error),
        }
    }

    /// Reads what the template has reported; `Some` once it has stopped, together with what stands
    /// in the way of using it. Until then [`AsFd`] becomes readable when there is more to read. From then on
    /// only root can look into it, not even this process.
    ///
    /// # Errors
    /// It ended, or reports more than a program can be made of.
    pub(crate) fn loaded(&mut self) -> io::Result<Option<LoadedTemplate>> {
        if !self.reports.read(&self.control)? {
            return Ok(None);
        }
        let mut loaded = self.reports.take();
        eligible::examine(self.child.pid(), self.kind, self.uses, &mut loaded)?;
        send(
            &self.control,
            &[self.looked],
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )?;
        Ok(Some(loaded))
    }

    /// Whether it has told that it will stop before anything of the program itself runs. One that has ended and had not
    /// may have run, without a request.
    pub(crate) fn holds(&self) -> bool {
        self.reports.holds()
    }

    /// Asks for one child more. It is on its way: [`OwnPreforked::ready`] says when it is there.
    ///
    /// # Errors
    /// The template is gone, descriptors are short, or (`WouldBlock`) more children were asked for
    /// than it has forked by now.
    pub(crate) fn prefork(&self) -> io::Result<OwnPreforked> {
        let (ours, theirs) = pair()?;
        set_socket_passcred(&ours, true)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [theirs.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.control, &[IoSlice::new(b"C")], &mut control, flags)?;
        Ok(OwnPreforked::new(ours))
    }

    /// The template as the child that takes a request: one for [`Uses::Once`] that has stopped.
    pub(crate) fn itself(self) -> OwnPreforked {
        OwnPreforked::parked(self.control, self.child)
    }

    /// The template's process id, for logs.
    pub(crate) fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Its process, by a pidfd.
    pub(crate) fn process(&self) -> BorrowedFd<'_> {
        self.child.as_fd()
    }

    /// What it was started for.
    pub(crate) fn uses(&self) -> Uses {
        self.uses
    }

    /// What kind of program it is.
    pub(crate) fn kind(&self) -> TemplateKind {
        self.kind
    }

    /// Whether the process is still there.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.child.has_exited(), Ok(false))
    }
}

impl AsFd for OwnTemplate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
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

/// The length of as many whole lines as `most` bytes hold.
fn whole_lines(text: &[u8], most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let cut = text[..most].iter().rposition(|&b| b == b'\n');
    cut.map_or(0, |at| at + 1)
}
