//! Takes a child of a template, or a parked process, for one request.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use galgo_io::sock::register;
use galgo_spawn::{
    Child, EnvBlock, Exit, Priority, Status,
    template::{ChildRequest, PreforkedChild, PreloadReport, Uses},
};
use tokio::io::Interest;

use super::{
    keeper,
    live::Offer,
    registry::{Warm, version},
    setup::TemplateSetup,
};
use crate::{
    context::Context, program_settings::Cgi, relay::program::Origin, script::FoundProgram,
    warm::warm_program::WarmProgram,
};

/// A requested child arrives within some milliseconds. If it takes longer, it stands in a queue, or its template has been
/// stopped: a cold start will not be later.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pause before changed files are looked for again, if requests are to wait for templates.
const BUSY: Duration = Duration::from_millis(1);

/// A child that waits for this request.
#[derive(Debug)]
pub struct ReadyChild {
    offer: Offer,
    program: Arc<WarmProgram>,
    patience: Duration,
}

/// The template of a running child, to be notified of the child's exit.
#[derive(Debug)]
pub struct TemplateChild {
    program: Arc<WarmProgram>,
    template: i32,
    uses: Uses,
    report: Option<PreloadReport>,
}

/// Returns a child of `script`'s template; `None` if the program must be started cold. If there is no template yet, starts to
/// load one for later requests, as `setup` says.
pub async fn child(
    cx: Context<'_>,
    warm: &Arc<Warm>,
    cgi: &Arc<Cgi>,
    script: &FoundProgram<'_>,
    setup: impl FnOnce() -> TemplateSetup,
) -> Option<ReadyChild> {
    let resources = cx.resources;
    if resources.templates().count == 0 || warm.watch.is_none() {
        return None;
    }
    while !warm.look() {
        if !warm.waits {
            return None;
        }
        tokio::time::sleep(BUSY).await;
    }
    let program = warm.program(&resources.errors, cgi, script);
    let version = version(script);
    let (found, keeper) = program.child(&version);
    if keeper {
        keeper::start(resources, warm, &program, setup());
    }
    let found = match found {
        None if warm.waits => program.awaited(&version).await,
        found => found,
    };
    let mut offer = found?;
    let patience = warm.patience(PATIENCE);
    while let Err(e) = arrival(&mut offer.child, patience).await {
        program.lost(offer.template, &e);
        if !warm.waits {
            return None;
        }
        offer = program.awaited(&version).await?;
    }
    Some(ReadyChild {
        offer,
        program,
        patience,
    })
}

/// Waits until the child has arrived.
async fn arrival(child: &mut PreforkedChild, patience: Duration) -> io::Result<()> {
    if child.is_ready()? {
        return Ok(());
    }
    until(child, PreforkedChild::is_ready, patience).await
}

async fn until<T: AsFd>(
    what: &mut T,
    mut is_so: impl FnMut(&mut T) -> io::Result<bool>,
    patience: Duration,
) -> io::Result<()> {
    let come = async {
        let raw = what.as_fd().as_raw_fd();
        let watched = register(raw, Interest::READABLE)?;
        loop {
            let mut guard = watched.readable().await?;
            if is_so(what)? {
                return Ok(());
            }
            guard.clear_ready();
        }
    };
    tokio::time::timeout(patience, come).await?
}

impl ReadyChild {
    /// Gives the child its request, and the working directory `dir` if that differs from its template's. `file` is the program
    /// as a cold start names it.
    ///
    /// # Errors
    /// The child has ended meanwhile, or the environment is larger than one message takes: start the program cold.
    pub async fn start(
        self,
        file: &CStr,
        env: &EnvBlock,
        dir: Option<&CStr>,
        stdio: [BorrowedFd<'_>; 3],
        cpu: Option<u64>,
        priority: Priority,
    ) -> io::Result<(Child, TemplateChild)> {
        let Self {
            offer,
            program,
            patience,
        } = self;
        let request = ChildRequest {
            program: file,
            env,
            dir,
            stdio,
            cpu,
            priority,
            patience,
            learn: offer.teach,
        };
        let running = offer.child.give_request(&request);
        program.refill(offer.template);
        let look = |_: &io::Error| {
            program.look(offer.template);
        };
        let mut running = running.inspect_err(look)?;
        // A parked process, unlike a child, may have been killed long ago. A helper may also refuse the request that the server
        // has sent. A request that the process has not read can still be started cold.
        if offer.uses == Uses::Once || running.child.is_remote() {
            let begun = until(&mut running, |child| child.has_begun(), patience).await;
            begun.inspect_err(look)?;
        }
        let origin = TemplateChild {
            program,
            template: offer.template,
            uses: offer.uses,
            report: running.report,
        };
        Ok((running.child, origin))
    }
}

impl Origin for TemplateChild {
    fn report_exit(self: Box<Self>, exit: &Exit, signalled: bool) {
        match exit.status {
            Status::Signal(signal) if !signalled && is_crash(signal) => {
                self.program.retire_crashed(self.template);
            }
            Status::Code(_) => {
                if let Some(report) = self.report {
                    self.program.learned(&report.read_modules());
                }
            }
            Status::Signal(_) => {}
        }
        // If the keeper were woken sooner, the start of another process would take time from this one. If a request takes long,
        // the keeper looks for itself.
        if self.uses == Uses::Once {
            self.program.wake.notify_one();
        }
    }
}

/// Returns whether the signal tells the client that provoked it something about the program's memory. Other signals end healthy
/// programs: a reader that left (PIPE), a limit (XCPU, XFSZ), an operator (TERM).
fn is_crash(signal: i32) -> bool {
    use rustix::process::Signal;
    let healthy = [
        Signal::PIPE,
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::ALARM,
        Signal::XCPU,
        Signal::XFSZ,
        Signal::USR1,
        Signal::USR2,
    ];
    !healthy.iter().any(|s| s.as_raw() == signal)
}
