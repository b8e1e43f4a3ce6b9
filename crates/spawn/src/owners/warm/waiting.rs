//! Children of templates that wait for their requests, at the helper that has them.

use super::super::{
    connection::HelperEnd,
    message::{HelperOrder, Report, StartOrder},
    program::Program,
    remit::Remit,
};
use crate::{
    Child, EnvBlock,
    template::{
        ChildRequest, Uses,
        preforked::{OwnPreforked, has_taken},
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
};

/// What a template was made of: one for it and for its children.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) path: CString,
    pub(super) args: Vec<CString>,
    /// It serves all files that its interpreter runs.
    pub(super) shared: bool,
    pub(super) uses: Uses,
    stale: AtomicBool,
}

impl Origin {
    pub(super) fn new(program: &Program, shared: bool, uses: Uses) -> Self {
        Self {
            path: program.path.clone(),
            args: program.args.clone(),
            shared,
            uses,
            stale: AtomicBool::new(false),
        }
    }

    /// One of its files has changed.
    pub(super) fn retire(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Whether a request for this program is one for its children.
    fn serves(&self, program: &Program) -> bool {
        self.path == program.path && (self.shared || self.args == program.args)
    }
}

/// What this helper's programs are started with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'r> {
    pub(super) remit: &'r Remit,
    pub(super) uid: u32,
    pub(super) own_ids: bool,
}

/// A child, or a parked process, and its connection.
#[derive(Debug)]
pub(super) struct Waiting {
    socket: HelperEnd,
    origin: Arc<Origin>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Coming(OwnPreforked),
    Waits(OwnPreforked),
    /// It has been given its request, and has not read it yet.
    Begins(Child, OwnedFd),
}

/// What has become of one.
pub(super) enum Turn {
    Waits(Waiting),
    /// It has its request.
    Runs(Child, HelperEnd),
    Over,
}

impl Waiting {
    pub(super) fn coming(child: OwnPreforked, socket: HelperEnd, origin: Arc<Origin>) -> Self {
        Self {
            socket,
            origin,
            stage: Stage::Coming(child),
        }
    }

    /// A parked process, which is there.
    pub(super) fn parked(child: OwnPreforked, socket: HelperEnd, origin: Arc<Origin>) -> Self {
        Self {
            socket,
            origin,
            stage: Stage::Waits(child),
        }
    }

    /// Of the process and of the server.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        let process = match &self.stage {
            Stage::Coming(child) | Stage::Waits(child) => child.as_fd(),
            Stage::Begins(_, socket) => socket.as_fd(),
        };
        [process, self.socket.as_fd()]
    }

    /// Goes on, where the process or the server has something to say.
    pub(super) fn turn(
        self,
        [process, server]: [bool; 2],
        terms: &Terms<'_>,
        buffer: &mut [u8],
    ) -> Turn {
        let begins = matches!(self.stage, Stage::Begins(..));
        if self.origin.is_stale() && !begins {
            return Turn::Over;
        }
        let this = match process {
            true => match self.moved(terms) {
                Turn::Waits(this) => this,
                other => return other,
            },
            false => self,
        };
        match server {
            true => this.asked(terms, buffer),
            false => Turn::Waits(this),
        }
    }

    /// The process has something to say.
    fn moved(self, terms: &Terms<'_>) -> Turn {
        let Self {
            socket,
            origin,
            stage,
        } = self;
        let stage = match stage {
            Stage::Coming(mut child) => match child.ready() {
                Ok(true) if socket.tell(&Report::Waits.encode(), &[]) => Stage::Waits(child),
                Ok(false) => Stage::Coming(child),
                Ok(true) | Err(_) => return Turn::Over,
            },
            // It was asked nothing: it has ended.
            Stage::Waits(_) => return Turn::Over,
            Stage::Begins(child, taken) => match has_taken(&taken) {
                Ok(true) => return runs(child, socket, terms),
                Ok(false) => Stage::Begins(child, taken),
                Err(_) => return Turn::Over,
            },
        };
        Turn::Waits(Self {
            socket,
            origin,
            stage,
        })
    }

    /// The server gives it a request, or has gone.
    fn asked(self, terms: &Terms<'_>, buffer: &mut [u8]) -> Turn {
        let received = self.socket.receive(buffer);
        let (n, fds) = match received {
            Err(Errno::INTR | Errno::AGAIN) => return Turn::Waits(self),
            Err(_) | Ok((0, _)) => return Turn::Over,
            Ok(got) => got,
        };
        let order = buffer.get(..n).and_then(HelperOrder::decode);
        let (Some(HelperOrder::Start(order)), Stage::Waits(child)) = (order, self.stage) else {
            return Turn::Over;
        };
        let program = match program(&order, &self.origin, terms) {
            Ok(program) => program,
            Err(why) => {
                self.socket.tell(&Report::Denied(why).encode(), &[]);
                return Turn::Over;
            }
        };
        let (Some((stdio, report)), shared) = (descriptors(&fds), self.origin.shared) else {
            return Turn::Over;
        };
        let request = ChildRequest {
            env: &program.env,
            dir: shared.then_some(&*program.dir),
            program: &order.program,
            stdio,
            cpu: terms.remit.terms.limits.cpu,
            learn: false,
        };
        // What does not fit into a message a cold start takes.
        match child.start(&request, report) {
            Err(_) => Turn::Over,
            Ok((child, _)) if self.origin.uses == Uses::Many => runs(child, self.socket, terms),
            Ok((child, taken)) => Turn::Waits(Self {
                stage: Stage::Begins(child, taken),
                ..self
            }),
        }
    }
}

/// The program of a request, where it may be started, and as this template's child.
fn program(order: &StartOrder, origin: &Origin, terms: &Terms<'_>) -> Result<Program, String> {
    let program = Program::of(order, terms.remit, terms.uid)?;
    match origin.serves(&program) {
        true if fits(&program.env) => Ok(program),
        true => Err("a variable is longer than any program takes".into()),
        false => Err("its template is of another program".into()),
    }
}

fn fits(env: &EnvBlock) -> bool {
    env.fits().is_ok()
}

/// Standard input, output and error; and where it tells what it loads.
fn descriptors(fds: &[OwnedFd]) -> Option<([BorrowedFd<'_>; 3], Option<BorrowedFd<'_>>)> {
    match fds {
        [a, b, c] => Some(([a, b, c].map(AsFd::as_fd), None)),
        [a, b, c, report] => Some(([a, b, c].map(AsFd::as_fd), Some(report.as_fd()))),
        _ => None,
    }
}

fn runs(child: Child, socket: HelperEnd, terms: &Terms<'_>) -> Turn {
    let fds: Vec<_> = terms.own_ids.then(|| child.as_fd()).into_iter().collect();
    match socket.tell(&Report::Started(child.pid()).encode(), &fds) {
        true => Turn::Runs(child, socket),
        false => Turn::Over,
    }
}
