//! A child of a template, or a parked process, for one request.

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
    template::{ChildRequest, PreforkedChild, PreloadReport, TemplateKind, Uses},
};
use tokio::io::Interest;

use super::{
    keeper,
    live::Offer,
    program::WarmProgram,
    registry::{Warm, version},
    setup::TemplateSetup,
};
use crate::{
    context::Context, program_settings::Cgi, relay::program::Origin, script::FoundProgram,
};

/// A child that is asked for is there within some milliseconds. One that takes longer stands in a
/// queue, or its template has been stopped: a cold start will not be later.
const PATIENCE: Duration = Duration::from_secs(1);

/// What has changed is known after this, where requests are to wait for templates.
const BUSY: Duration = Duration::from_millis(1);

/// A child that waits for this request.
#[derive(Debug)]
pub struct ReadyChild {
    offer: Offer,
    program: Arc<WarmProgram>,
    patience: Duration,
}

/// Where a running child came from; told how it ended.
#[derive(Debug)]
pub struct TemplateChild {
    program: Arc<WarmProgram>,
    template: i32,
    uses: Uses,
    kind: TemplateKind,
    report: Option<PreloadReport>,
}

/// A child of `script`'s template; `None`: start it cold. Where there is no template yet, one is
/// loaded for the requests to come, as `setup` says.
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

/// Waits until the child is there.
async fn arrival(child: &mut PreforkedChild, patience: Duration) -> io::Result<()> {
    if child.ready()? {
        return Ok(());
    }
    until(child, PreforkedChild::ready, patience).await
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
    /// Gives the child its request, and the working directory `dir` where that is not its template's. `file` is the program as a
    /// cold start names it.
    ///
    /// # Errors
    /// It has ended meanwhile, or the environment is larger than one message takes: start it cold.
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
        let running = offer.child.start(&request);
        program.refill(offer.template);
        let look = |_: &io::Error| {
            program.look(offer.template);
        };
        let mut running = running.inspect_err(look)?;
        // A parked one may have been killed long after it was asked for, as a child is not, and a helper may refuse what
        // the server has sent it. A request that it has not read can still be started cold.
        if offer.uses == Uses::Once || running.child.is_remote() {
            let begun = until(&mut running, |child| child.began(), patience).await;
            begun.inspect_err(look)?;
        }
        let origin = TemplateChild {
            program,
            template: offer.template,
            uses: offer.uses,
            kind: offer.kind,
            report: running.report,
        };
        Ok((running.child, origin))
    }
}

impl Origin for TemplateChild {
    fn ended(self: Box<Self>, exit: &Exit, signalled: bool) {
        match exit.status {
            Status::Signal(signal) if !signalled && is_crash(signal) => {
                self.program.retire_crashed(self.template);
            }
            Status::Code(_) => {
                if let Some(report) = self.report {
                    self.program.learned(self.kind, &report.modules());
                }
            }
            Status::Signal(_) => {}
        }
        // Sooner, and the start of another process would take its time from this one. The keeper looks
        // for itself where a request takes long.
        if self.uses == Uses::Once {
            self.program.wake.notify_one();
        }
    }
}

/// Signals that tell the client that provoked them something about the program's memory. Others end
/// programs in good health: a reader that left (PIPE), a limit (XCPU, XFSZ), an operator (TERM).
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
