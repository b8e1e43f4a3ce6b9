//! Programs that are loaded once, stopped before their first line, and forked for each request.
//!
//! A [`Template`] is such a stopped program. [`Template::prefork`] asks it for another child. The [`PreforkedChild`] becomes a
//! [`Child`](crate::Child) of this process when it is given a request. A program that cannot be forked may be *parked*: then it
//! is the preforked child itself ([`Template::into_preforked`]). A template holds no request's data, and a child serves one request. If
//! asked, a child returns the names of the modules that it loaded, and nothing else. A hostile child may lie, so the names are
//! checked ([`TemplateKind::module_names`], [`SearchPath`]). The messages are described in `shim/template.c`.
//!
//! The shim (`shim/`) runs inside other people's programs before their first line, in the process of an interpreter that has
//! its own idea of threads, memory and panics. Therefore it is written in C, like these interpreters. It calls their functions
//! by name, and Rust's library would bring an allocator and a runtime along. `build.rs` compiles one library for each kind of
//! program. At run time the bytes are a sealed file in memory: nothing is installed.

pub mod dates;
mod eligible;
pub(crate) mod local_template;
mod names;
pub(crate) mod preforked;
mod reports;
mod search;
mod shim;
mod unheard;
mod watch;

pub use crate::{
    start::ChildRequest,
    template_failure::{LoadFailure, NoTemplate},
    template_kind::{TemplateKind, Unfit, Uses},
};
pub use names::module_name;
pub use preforked::{PreforkedChild, PreloadReport, RunningChild};
pub use reports::LoadedTemplate;
pub use search::SearchPath;
pub use unheard::{UNHEARD, UnheardFiles};
pub use watch::FileWatch;

use crate::{
    Launch, LaunchOutcome, Spawner, StartError, remote::template::RemoteTemplate,
    template::local_template::OwnTemplate,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

/// A program, loaded and stopped, or on its way there. Dropping it kills the program; its children live on.
#[derive(Debug)]
pub struct Template(TemplateHandle);

#[derive(Debug)]
enum TemplateHandle {
    /// A template that this process started.
    Own(Box<OwnTemplate>),
    /// A template that a helper has started.
    Remote(RemoteTemplate),
}

/// Calls the template of this process or the helper's.
macro_rules! either {
    ($whose:expr, $template:ident => $own:expr, $remote:expr) => {
        match $whose {
            TemplateHandle::Own($template) => $own,
            TemplateHandle::Remote($template) => $remote,
        }
    };
}

impl Template {
    /// Starts a program that stops before its first line, with the `modules` loaded that an earlier child was seen to load.
    /// `launch` is the start of a request's program, with an environment that holds no request. Some kinds cannot be started
    /// for one use ([`TemplateKind::can_park`]). This does not wait for `execve`: see [`has_begun`](Self::has_begun).
    ///
    /// # Errors
    /// The same errors as [`Spawner::launch`]. Another error: the kernel gives no memory file to execute from (sysctl
    /// `vm.memfd_noexec`).
    pub fn start(
        spawner: &mut Spawner,
        launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
        kind: TemplateKind,
        uses: Uses,
        modules: &[u8],
    ) -> Result<Self, StartError> {
        let run = |launch| spawner.launch(launch, stdio).map_err(|f| f.error);
        let template = OwnTemplate::start(launch, stdio, (kind, uses), modules, run)?;
        Ok(Self(TemplateHandle::Own(Box::new(template))))
    }

    /// Wraps a template that a helper has started.
    pub(crate) fn from_remote(template: RemoteTemplate) -> Self {
        Self(TemplateHandle::Remote(template))
    }

    /// Returns whether the program has been executed. Ask the spawner that started it, now and then, until this is true: only
    /// then all descriptors that the program was given are its own. A failure shows nowhere else.
    ///
    /// # Errors
    /// The program could not be executed.
    pub fn has_begun(&self, spawner: &mut Spawner) -> Result<bool, StartError> {
        let TemplateHandle::Own(template) = &self.0 else {
            return Ok(true);
        };
        match spawner.outcome(&template.child) {
            LaunchOutcome::Started => Ok(true),
            LaunchOutcome::UnderWay => Ok(false),
            LaunchOutcome::Failed(failed) => Err(failed.error),
        }
    }

    /// Reads the template's reports. `Some`: the template has stopped, and the result names any obstacle to using it. Until
    /// then [`AsFd`] becomes readable when there is more to read. Afterwards only root can look into the template, not even
    /// this process. A helper tells neither the template's files nor its search path.
    ///
    /// # Errors
    /// There will be no template: it ended, or reports more than a program can be made of, or its helper gives none.
    pub fn loaded(&mut self) -> Result<Option<LoadedTemplate>, LoadFailure> {
        either!(&mut self.0, template => template.loaded(), {
            Ok(template.stopped()?.map(|(stop, left)| LoadedTemplate {
                memory: stop.memory,
                obstacle: Some(stop.obstacle).filter(|words| !words.is_empty()),
                left,
                knows_modules: stop.knows,
                ..LoadedTemplate::default()
            }))
        })
    }

    /// Returns whether the template has reported that it will stop before any code of the program itself runs. If a template
    /// ended without that report, the program may have run without a request.
    pub fn is_holding(&self) -> bool {
        either!(&self.0, template => template.holds(), template.holds())
    }

    /// Asks for another child, which is then on its way: see [`PreforkedChild::is_ready`].
    ///
    /// # Errors
    /// The template is gone, descriptors are short, or (`WouldBlock`) more children were asked for than the template has forked
    /// by now.
    pub fn prefork(&self) -> io::Result<PreforkedChild> {
        either!(&self.0, template => template.prefork().map(PreforkedChild::from_own), template.prefork().map(PreforkedChild::from_remote))
    }

    /// Turns a stopped template for [`Uses::Once`] into the child that takes a request.
    pub fn into_preforked(self) -> PreforkedChild {
        either!(self.0, template => PreforkedChild::from_own(template.itself()), PreforkedChild::from_remote(template.into_preforked()))
    }

    /// Returns the template's process id, for logs.
    pub fn pid(&self) -> i32 {
        either!(&self.0, template => template.child.pid(), template.pid())
    }

    /// Returns the use that the template was started for.
    pub fn uses(&self) -> Uses {
        either!(&self.0, template => template.uses, template.uses)
    }

    /// Returns the kind of the program.
    pub fn kind(&self) -> TemplateKind {
        either!(&self.0, template => template.kind, template.kind())
    }

    /// Returns whether children of the template can report which modules they loaded.
    pub fn can_teach(&self) -> bool {
        self.kind().can_teach()
    }

    /// Returns whether the process is still there.
    pub fn is_alive(&self) -> bool {
        either!(&self.0, template => template.is_alive(), template.is_alive())
    }

    /// Returns whether the template has used half of the CPU time that its limit left after loading: then another template must
    /// replace it.
    pub fn is_worn(&self) -> bool {
        either!(&self.0, template => template.is_worn(), { let _ = template; false })
    }

    /// Returns whether a helper dropped the template because a file that it was made of has changed. Always false for a
    /// template of this process, which watches the files itself.
    pub fn has_changed(&self) -> bool {
        either!(&self.0, template => { let _ = template; false }, template.has_changed())
    }
}

impl AsFd for Template {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(&self.0, template => template.as_fd(), template.as_fd())
    }
}
