//! Programs that are loaded once, stopped before their first line, and forked for each request.
//!
//! A [`Template`] is such a stopped program. [`Template::prefork`] asks it for one child more; the
//! [`PreforkedChild`] becomes a [`Child`] of this process when it is given a request. One that cannot be forked
//! may be *parked*: it is the spare itself ([`Template::itself`]). A template holds no
//! request's data, a child serves one request, and nothing goes back from it but, where asked, the
//! names of the modules it loaded: what a hostile child says there is checked ([`TemplateKind::names`], [`SearchPath`]).
//! The messages are described in `shim/template.c`.

mod eligible;
mod kind;
mod names;
mod preforked;
mod reports;
mod search;
mod shim;

pub use kind::{TemplateKind, Unfit, Uses};
pub use preforked::{ChildRequest, PreforkedChild, PreloadReport, RunningChild};
pub use reports::LoadedTemplate;
pub use search::SearchPath;

use crate::{Child, Launch, LaunchOutcome, Sandbox, Spawner, StartError};
use reports::Reports;
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

/// A program, loaded and stopped, or on its way there. Dropping it kills it; its children live on.
#[derive(Debug)]
pub struct Template {
    child: Child,
    kind: TemplateKind,
    uses: Uses,
    sandbox: Sandbox,
    may_stay: bool,
    control: OwnedFd,
    reports: Reports,
}

impl Template {
    /// Starts a program that is to stop before its first line, with the `modules` loaded that an
    /// earlier child was seen to load. `launch` is what a request's start would be, with an
    /// environment that holds no request; there is no limit of CPU time until there is one. Not all
    /// kinds can be for one use ([`TemplateKind::parks`]). Its `execve` is not waited for: [`begun`](Self::begun).
    ///
    /// # Errors
    /// As [`Spawner::launch`]; also where the kernel gives no memory file to execute from
    /// (sysctl `vm.memfd_noexec`).
    pub fn start(
        spawner: &mut Spawner,
        mut launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
        kind: TemplateKind,
        uses: Uses,
        modules: &[u8],
    ) -> Result<Self, StartError> {
        let (control, theirs) = pair().map_err(StartError::descriptors)?;
        let files = shim::files(kind).map_err(StartError::descriptors)?;
        kind.dress(uses, &mut launch.env);
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
        let sandbox = launch.sandbox;
        let child = spawner.launch(launch, stdio).map_err(|f| f.error)?;
        Ok(Self {
            child,
            kind,
            uses,
            sandbox,
            may_stay,
            control,
            reports: Reports::default(),
        })
    }

    /// Whether it has been executed; asked of the spawner that started it. To be asked now and then until it is so: only then
    /// all descriptors it was given are its own, and a failure is known by nothing else.
    ///
    /// # Errors
    /// It could not be.
    pub fn begun(&self, spawner: &mut Spawner) -> Result<bool, StartError> {
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
    pub fn loaded(&mut self) -> io::Result<Option<LoadedTemplate>> {
        if !self.reports.read(&self.control)? {
            return Ok(None);
        }
        let mut loaded = self.reports.take();
        eligible::examine(self.child.pid(), self.kind, self.uses, &mut loaded)?;
        let apart = u8::from(self.sandbox == Sandbox::Standard);
        let ends = u8::from(!self.may_stay);
        send(
            &self.control,
            &[b'@' | apart | ends << 1],
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        )?;
        Ok(Some(loaded))
    }

    /// Whether it has told that it will stop before anything of the program itself runs. One that has ended and had not
    /// may have run, without a request.
    pub fn holds(&self) -> bool {
        self.reports.holds()
    }

    /// Asks for one child more. It is on its way: [`PreforkedChild::ready`] says when it is there.
    ///
    /// # Errors
    /// The template is gone, descriptors are short, or (`WouldBlock`) more children were asked for
    /// than it has forked by now.
    pub fn prefork(&self) -> io::Result<PreforkedChild> {
        let (ours, theirs) = pair()?;
        set_socket_passcred(&ours, true)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [theirs.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.control, &[IoSlice::new(b"C")], &mut control, flags)?;
        Ok(PreforkedChild::new(ours))
    }

    /// The template as the child that takes a request: one for [`Uses::Once`] that has stopped.
    pub fn itself(self) -> PreforkedChild {
        PreforkedChild::parked(self.control, self.child)
    }

    /// The template's process id, for logs.
    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// What it was started for.
    pub fn uses(&self) -> Uses {
        self.uses
    }

    /// What kind of program it is.
    pub fn kind(&self) -> TemplateKind {
        self.kind
    }

    /// Whether its children can tell which modules they loaded.
    pub fn teaches(&self) -> bool {
        self.kind.teaches()
    }

    /// Whether the process is still there.
    pub fn is_alive(&self) -> bool {
        matches!(self.child.has_exited(), Ok(false))
    }
}

impl AsFd for Template {
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
