//! The helper's side of template children that wait for their requests.

use crate::{
    Child,
    helper::{
        checked_program::{CheckedProgram, HelperTerms, NotChecked},
        running::tell_start,
    },
    remote::{
        connection::HelperEnd,
        message::{HelperOrder, ProgramReport, StartOrder},
    },
    template::{
        ChildRequest, Uses,
        preforked::{OwnPreforked, has_read_request},
    },
};
use rustix::io::Errno;
use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The origin of a template, shared by the template and its children.
#[derive(Debug)]
pub(crate) struct TemplateOrigin {
    pub(crate) path: CString,
    pub(crate) args: Vec<CString>,
    /// The template serves all files that its interpreter runs.
    pub(crate) shared: bool,
    pub(crate) uses: Uses,
    stale: AtomicBool,
}

impl TemplateOrigin {
    pub(crate) fn new(program: &CheckedProgram, shared: bool, uses: Uses) -> Self {
        Self {
            path: program.path.clone(),
            args: program.args.clone(),
            shared,
            uses,
            stale: AtomicBool::new(false),
        }
    }

    /// Marks the template as stale, because a file of it has changed.
    pub(crate) fn retire(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Whether the template's children may serve a request for this program.
    fn serves(&self, program: &CheckedProgram) -> bool {
        self.path == program.path && (self.shared || self.args == program.args)
    }
}

/// A child or a parked process, and its connection.
#[derive(Debug)]
pub(crate) struct WaitingProcess {
    socket: HelperEnd,
    origin: Arc<TemplateOrigin>,
    stage: PreforkedStage,
}

#[derive(Debug)]
pub(crate) enum PreforkedStage {
    Coming(OwnPreforked),
    /// A parked process is in this stage from the beginning.
    Waits(OwnPreforked),
    /// The process has been given its request, and has not read it yet.
    Begins(Child, OwnedFd),
}

/// The new state of a waiting process.
pub(crate) enum PreforkedEvent {
    Waits(WaitingProcess),
    /// The process has its request.
    Runs(Child, HelperEnd),
}

impl WaitingProcess {
    pub(crate) fn new(
        stage: PreforkedStage,
        socket: HelperEnd,
        origin: Arc<TemplateOrigin>,
    ) -> Self {
        Self {
            socket,
            origin,
            stage,
        }
    }

    /// Marks the process's template as stale: the process takes no request any more.
    pub(crate) fn retire(&self) {
        self.origin.retire();
    }

    /// Returns the descriptors of the process and of the server.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        let process = match &self.stage {
            PreforkedStage::Coming(child) | PreforkedStage::Waits(child) => child.as_fd(),
            PreforkedStage::Begins(_, socket) => socket.as_fd(),
        };
        [process, self.socket.as_fd()]
    }

    /// Handles messages of the process and of the server. `None`: the process is over.
    pub(crate) fn turn(
        mut self,
        [process, server]: [bool; 2],
        terms: &HelperTerms<'_>,
        buffer: &mut [u8],
    ) -> Option<PreforkedEvent> {
        let begins = matches!(self.stage, PreforkedStage::Begins(..));
        if self.origin.is_stale() && !begins {
            return None;
        }
        if process {
            match self.moved(terms)? {
                PreforkedEvent::Waits(this) => self = this,
                runs => return Some(runs),
            }
        }
        if server {
            self.asked(terms, buffer)
        } else {
            Some(PreforkedEvent::Waits(self))
        }
    }

    /// Handles a message of the process.
    fn moved(mut self, terms: &HelperTerms<'_>) -> Option<PreforkedEvent> {
        self.stage = match self.stage {
            PreforkedStage::Coming(mut child) => {
                if !child.is_ready().ok()? {
                    PreforkedStage::Coming(child)
                } else if self.socket.send_report(&ProgramReport::Waits.encode(), &[]) {
                    PreforkedStage::Waits(child)
                } else {
                    return None;
                }
            }
            // A process that waits says nothing, so it has ended.
            PreforkedStage::Waits(_) => return None,
            PreforkedStage::Begins(child, taken) => {
                if has_read_request(&taken).ok()? {
                    return runs(child, self.socket, terms);
                }
                PreforkedStage::Begins(child, taken)
            }
        };
        Some(PreforkedEvent::Waits(self))
    }

    /// Handles the server's message, which gives the process a request, or the server's end.
    fn asked(mut self, terms: &HelperTerms<'_>, buffer: &mut [u8]) -> Option<PreforkedEvent> {
        let received = self.socket.receive(buffer);
        let (n, fds) = match received {
            Err(Errno::INTR | Errno::AGAIN) => return Some(PreforkedEvent::Waits(self)),
            Err(_) | Ok((0, _)) => return None,
            Ok(got) => got,
        };
        let order = HelperOrder::decode(buffer.get(..n)?)?;
        let (HelperOrder::Start(order), PreforkedStage::Waits(child)) = (order, self.stage) else {
            return None;
        };
        if !order.is_wanted() || self.socket.is_closed() {
            return None;
        }
        let program = program(&order, &self.origin, terms);
        let program = program
            .map_err(|why| self.socket.send_report(&why.into_report().encode(), &[]))
            .ok()?;
        let (stdio, report) = descriptors(&fds)?;
        let request = ChildRequest {
            env: &program.env,
            dir: self.origin.shared.then_some(&*program.dir),
            program: &order.program,
            stdio,
            cpu: terms.remit.terms.limits.cpu,
            priority: order.priority,
            patience: Duration::MAX,
            learn: false,
        };
        // A cold start takes requests that do not fit into a message.
        let (child, taken) = child.give_request(&request, report).ok()?;
        if self.origin.uses == Uses::Many {
            return runs(child, self.socket, terms);
        }
        self.stage = PreforkedStage::Begins(child, taken);
        Some(PreforkedEvent::Waits(self))
    }
}

/// Checks the program of a request. The program must be permitted, and must be the template's.
fn program(
    order: &StartOrder,
    origin: &TemplateOrigin,
    terms: &HelperTerms<'_>,
) -> Result<CheckedProgram, NotChecked> {
    let program = CheckedProgram::from_order(order, terms.remit, terms.uid)?;
    match origin.serves(&program) {
        true if program.env.check_size().is_ok() => Ok(program),
        true => Err("a variable is longer than any program takes".into()),
        false => Err("its template is of another program".into()),
    }
}

/// Splits the descriptors into standard input, output and error, and the memory for reporting loaded modules, if there is one.
fn descriptors(fds: &[OwnedFd]) -> Option<([BorrowedFd<'_>; 3], Option<BorrowedFd<'_>>)> {
    match fds {
        [a, b, c] => Some(([a, b, c].map(AsFd::as_fd), None)),
        [a, b, c, report] => Some(([a, b, c].map(AsFd::as_fd), Some(report.as_fd()))),
        _ => None,
    }
}

fn runs(child: Child, socket: HelperEnd, terms: &HelperTerms<'_>) -> Option<PreforkedEvent> {
    tell_start(&socket, &child, terms.own_ids).then_some(PreforkedEvent::Runs(child, socket))
}
