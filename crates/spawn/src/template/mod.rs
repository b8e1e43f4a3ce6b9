//! Programs that are loaded once, stopped before their first line, and forked for each request.
//!
//! A [`Template`] is such a stopped program. [`Template::prefork`] asks it for one child more; the
//! [`PreforkedChild`] becomes a [`Child`](crate::Child) of this process when it is given a request. One that cannot be forked
//! may be *parked*: it is the preforked child itself ([`Template::itself`]). A template holds no
//! request's data, a child serves one request, and nothing goes back from it but, where asked, the
//! names of the modules it loaded: what a hostile child says there is checked ([`TemplateKind::names`], [`SearchPath`]).
//! The messages are described in `shim/template.c`.
//!
//! The shim (`shim/`) runs inside other people's programs before their first line, in the process of an interpreter that has its own
//! idea of threads, memory and panics. So it is written in C, the language that these interpreters are made in: it calls their
//! functions by name, and Rust's library would bring an allocator and a runtime along. `build.rs` compiles one library for each kind
//! of program. At run time the bytes are a sealed file in memory: nothing is installed.

pub mod dates;
mod eligible;
mod names;
pub(crate) mod own;
pub(crate) mod preforked;
mod reports;
mod search;
mod shim;
mod unheard;
mod watch;

pub use crate::template_kind::{TemplateKind, Unfit, Uses};
pub use names::module_name;
pub use preforked::{ChildRequest, PreforkedChild, PreloadReport, RunningChild};
pub use reports::LoadedTemplate;
pub use search::SearchPath;
pub use watch::{FileWatch, Unwatched};

use crate::{Launch, LaunchOutcome, Spawner, StartError, remote::template::RemoteTemplate};
use own::{OwnTemplate, TemplateStart};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

/// A program, loaded and stopped, or on its way there. Dropping it kills it; its children live on.
#[derive(Debug)]
pub struct Template(TemplateHandle);

#[derive(Debug)]
enum TemplateHandle {
    /// Started by this process.
    Own(Box<OwnTemplate>),
    /// A helper has it.
    Remote(RemoteTemplate),
}

/// Asks whichever it is.
macro_rules! either {
    ($whose:expr, $template:ident => $own:expr, $remote:expr) => {
        match $whose {
            TemplateHandle::Own($template) => $own,
            TemplateHandle::Remote($template) => $remote,
        }
    };
}

impl Template {
    /// Starts a program that is to stop before its first line, with the `modules` loaded that an
    /// earlier child was seen to load. `launch` is what a request's start would be, with an
    /// environment that holds no request. Not all kinds can be for one use ([`TemplateKind::parks`]). Its `execve` is not waited for: [`begun`](Self::begun).
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
        let start = TemplateStart::new(&mut launch, kind, uses, modules, stdio)?;
        let child = spawner.launch(launch, stdio).map_err(|f| f.error)?;
        let template = start.started(child, false);
        Ok(Self(TemplateHandle::Own(Box::new(template))))
    }

    /// One that a helper has, and that has stopped.
    pub(crate) fn remote(template: RemoteTemplate) -> Self {
        Self(TemplateHandle::Remote(template))
    }

    /// Whether it has been executed; asked of the spawner that started it. To be asked now and then until it is so: only then
    /// all descriptors it was given are its own, and a failure is known by nothing else.
    ///
    /// # Errors
    /// It could not be.
    pub fn begun(&self, spawner: &mut Spawner) -> Result<bool, StartError> {
        let TemplateHandle::Own(template) = &self.0 else {
            return Ok(true);
        };
        match spawner.outcome(&template.child) {
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
        either!(&mut self.0, template => template.loaded(), { let _ = template; Ok(None) })
    }

    /// Whether it has told that it will stop before anything of the program itself runs. One that has ended and had not
    /// may have run, without a request.
    pub fn holds(&self) -> bool {
        either!(&self.0, template => template.holds(), { let _ = template; true })
    }

    /// Asks for one child more. It is on its way: [`PreforkedChild::ready`] says when it is there.
    ///
    /// # Errors
    /// The template is gone, descriptors are short, or (`WouldBlock`) more children were asked for
    /// than it has forked by now.
    pub fn prefork(&self) -> io::Result<PreforkedChild> {
        either!(&self.0, template => template.prefork().map(PreforkedChild::own), template.prefork().map(PreforkedChild::remote))
    }

    /// The template as the child that takes a request: one for [`Uses::Once`] that has stopped.
    pub fn itself(self) -> PreforkedChild {
        either!(self.0, template => PreforkedChild::own(template.itself()), PreforkedChild::remote(template.itself()))
    }

    /// The template's process id, for logs.
    pub fn pid(&self) -> i32 {
        either!(&self.0, template => template.child.pid(), template.pid)
    }

    /// What it was started for.
    pub fn uses(&self) -> Uses {
        either!(&self.0, template => template.uses, template.uses)
    }

    /// What kind of program it is.
    pub fn kind(&self) -> TemplateKind {
        either!(&self.0, template => template.kind, template.kind)
    }

    /// Whether its children can tell which modules they loaded.
    pub fn teaches(&self) -> bool {
        self.kind().teaches()
    }

    /// Whether the process is still there.
    pub fn is_alive(&self) -> bool {
        either!(&self.0, template => template.is_alive(), template.is_alive())
    }

    /// Whether it has used half of the CPU time that its limit left when it had been loaded: another one is to take its place.
    pub fn is_worn(&self) -> bool {
        either!(&self.0, template => template.is_worn(), { let _ = template; false })
    }

    /// Whether it is gone because a file that it was made of has changed, where that is not this process's to know.
    pub fn has_changed(&self) -> bool {
        either!(&self.0, template => { let _ = template; false }, template.has_changed())
    }
}

impl AsFd for Template {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(&self.0, template => template.as_fd(), template.as_fd())
    }
}
