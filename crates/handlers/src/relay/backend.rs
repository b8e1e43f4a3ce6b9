//! What answers a request: a process of its own, or an application or an instance of a module over a connection.

use galgo_spawn::Exit;

use super::program::RunningProgram;
use crate::{
    client::Client,
    fault::Fault,
    out::Out,
    producer::{OutputEvent, Producer},
    upstream::exchange::Exchange,
};

/// What answers a request.
#[derive(Debug)]
pub(crate) enum Backend {
    /// A process of its own.
    Program(Box<RunningProgram>),
    /// An application, or an instance of a module, over a connection.
    Exchange(Box<Exchange>),
}

impl Backend {
    /// Output received and not yet sent on.
    pub(crate) fn out(&mut self) -> &mut Out {
        match self {
            Self::Program(p) => &mut p.out,
            Self::Exchange(e) => &mut e.out,
        }
    }

    /// How much of it there is.
    pub(crate) fn ready(&self) -> usize {
        match self {
            Self::Program(p) => p.out.len(),
            Self::Exchange(e) => e.out.len(),
        }
    }

    /// The response head is whole.
    pub(crate) fn head_done(&mut self) {
        match self {
            Self::Program(p) => p.head_done(),
            Self::Exchange(e) => e.head_done(),
        }
    }

    /// Whether output has ended.
    pub(crate) fn output_ended(&self) -> bool {
        match self {
            Self::Program(p) => p.output_ended(),
            Self::Exchange(e) => e.output_ended(),
        }
    }

    /// Output has ended: what is wrong with how a connection ended. How a process did is asked for later.
    pub(crate) fn verdict(&self) -> Option<Fault> {
        match self {
            Self::Program(_) => None,
            Self::Exchange(e) => e.verdict(),
        }
    }

    /// Waits for output while everything else goes on.
    pub(crate) async fn next_event(
        &mut self,
        client: &mut dyn Client,
    ) -> Result<OutputEvent, Fault> {
        match self {
            Self::Program(p) => p.next_event(client).await,
            Self::Exchange(e) => e.next_event(client).await,
        }
    }

    /// Takes what output is there already, without waiting, until it ends, or there are `most` bytes
    /// of a process, or as many as are read at once of an application.
    pub(crate) fn drain_ready(&mut self, most: usize) {
        match self {
            Self::Program(p) => p.drain_ready(most),
            Self::Exchange(e) => e.drain_ready(),
        }
    }

    /// Output has ended: whether that was the end of a response, or of a piece of one.
    pub(crate) async fn cut(&mut self) -> Option<Fault> {
        match self {
            Self::Program(p) => p.killed().await,
            Self::Exchange(e) => e.cut(),
        }
    }

    /// Output has ended: how the process did, if it exits soon.
    pub(crate) async fn exit(&mut self) -> Option<Exit> {
        match self {
            Self::Program(p) => p.exit().await,
            Self::Exchange(e) => e.exit(),
        }
    }

    /// From now on it produces a body.
    pub(crate) fn producer(self) -> Box<dyn Producer> {
        match self {
            Self::Program(p) => p,
            Self::Exchange(e) => e,
        }
    }

    /// The response is over; `done` is told how the process ended.
    pub(crate) fn finish(self, done: impl FnOnce(Option<Exit>) + 'static) {
        match self {
            Self::Program(p) => RunningProgram::finish(*p, done),
            Self::Exchange(e) => Exchange::finish(e, done),
        }
    }

    /// The request has failed or the client is gone.
    pub(crate) fn abandon(self, client_left: bool, done: impl FnOnce(Option<Exit>) + 'static) {
        match self {
            Self::Program(p) => RunningProgram::abandon(*p, client_left, done),
            Self::Exchange(e) => Exchange::abandon(e, client_left, done),
        }
    }

    /// The response is none. Gives a process a moment to exit and to say why, unless it must `end` at once.
    pub(crate) async fn post_mortem(&mut self, end: bool) -> (Option<Exit>, String) {
        match self {
            Self::Program(p) => p.post_mortem(end).await,
            Self::Exchange(e) => e.post_mortem(end).await,
        }
    }

    /// The last it said on standard error.
    pub(crate) fn stderr_tail(&self) -> String {
        match self {
            Self::Program(p) => p.stderr_tail(),
            Self::Exchange(e) => e.stderr_tail(),
        }
    }
}
