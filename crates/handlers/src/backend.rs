//! The backend of a request: a process of its own, or a connection to an application or to an instance of a
//! module.

use std::pin::Pin;

use galgo_io::{out::Out, sock::Sock};
use galgo_service::{
    client::Client,
    fault::Fault,
    producer::{Boxed, OnExit, OutputEvent, Producer},
    spool::SpoolShare,
};
use galgo_spawn::Exit;

use crate::{
    relay::{clock::Clocks, program::RunningProgram},
    upstream::exchange::Exchange,
};

#[derive(Debug)]
pub(crate) enum Backend {
    /// A process of its own.
    Program(Box<RunningProgram>),
    /// An application, or an instance of a module, over a connection.
    Exchange(Box<Exchange>),
}

/// Evaluates the same expression for both variants.
macro_rules! either {
    ($backend:expr, $own:ident => $done:expr) => {
        match $backend {
            Backend::Program($own) => $done,
            Backend::Exchange($own) => $done,
        }
    };
}

impl Backend {
    fn clocks(&mut self) -> &mut Clocks {
        match self {
            Self::Program(program) => program.clocks(),
            Self::Exchange(exchange) => &mut exchange.clocks,
        }
    }

    pub(crate) fn head_done(&mut self) {
        self.clocks().stop_first_clock();
    }

    /// See [`RunningProgram::upgrade`].
    pub(crate) fn upgrade(&mut self, granted: bool) {
        if let Self::Program(program) = self {
            program.upgrade(granted);
        }
    }

    /// Returns the fault in how a connection ended, once the output has ended. A process's exit is checked
    /// later.
    pub(crate) fn verdict(&self) -> Option<Fault> {
        match self {
            Self::Program(_) => None,
            Self::Exchange(e) => e.verdict(),
        }
    }

    /// See [`Producer::next_event`].
    pub(crate) async fn await_event(
        &mut self,
        client: &mut dyn Client,
    ) -> Result<OutputEvent, Fault> {
        match self {
            // Boxed: an exchange needs half the room.
            Self::Program(p) => Box::pin(p.next_event(client)).await,
            Self::Exchange(e) => e.next_event(client).await,
        }
    }

    /// See [`Producer::truncation_fault`].
    pub(crate) async fn output_fault(&mut self) -> Option<Fault> {
        match self {
            Self::Program(p) => Box::pin(p.output_fault()).await,
            Self::Exchange(e) => e.output_fault(),
        }
    }

    /// See [`Producer::finish`].
    pub(crate) fn finish(self, done: impl FnOnce(Option<Exit>) + 'static) {
        either!(self, own => own.finish(done));
    }

    /// See [`Producer::abandon`].
    pub(crate) fn abandon(self, client_left: bool, done: impl FnOnce(Option<Exit>) + 'static) {
        either!(self, own => own.abandon(client_left, done));
    }

    /// Logs the printed output as if the program had written it to standard error.
    pub(crate) fn log_output(&mut self) {
        let (out, log) = match self {
            Self::Program(program) => program.output_and_log(),
            Self::Exchange(exchange) => (&mut exchange.out, &mut exchange.stderr),
        };
        out.parts().for_each(|part| log.log_bytes(part));
        log.finish();
        out.clear_seen();
    }

    pub(crate) fn stderr_tail(&self) -> String {
        either!(self, own => own.stderr_tail())
    }
}

impl Producer for Backend {
    fn pending_output(&mut self) -> &mut Out {
        either!(self, own => &mut own.out)
    }

    fn pending_len(&self) -> usize {
        either!(self, own => own.out.len())
    }

    fn has_output_ended(&self) -> bool {
        either!(self, own => own.output_ended())
    }

    fn start_streaming(&mut self, spool: &SpoolShare, splices: bool) {
        match self {
            Self::Program(program) => program.streams(spool, splices),
            Self::Exchange(exchange) => exchange.spill.spool = Some(spool.clone()),
        }
    }

    fn drain_ready(&mut self, most: usize) {
        match self {
            Self::Program(p) => p.drain_ready(most),
            Self::Exchange(e) => e.drain_ready(),
        }
    }

    fn next_event<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>> {
        either!(self, own => Box::pin(own.next_event(client)))
    }

    fn take_pipe(&mut self) -> Option<Sock> {
        match self {
            Self::Program(p) => p.take_pipe(),
            Self::Exchange(_) => None,
        }
    }

    fn give_pipe(&mut self, pipe: Sock) {
        if let Self::Program(p) = self {
            p.stdout = Some(pipe);
        }
    }

    fn note_sent(&mut self) {
        self.clocks().record_move();
    }

    fn set_client_keeps_up(&mut self, whether: bool) {
        either!(self, own => own.spill.sent_at_once(whether));
    }

    fn while_sending<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
        io: Pin<&'a mut dyn Future<Output = ()>>,
    ) -> Boxed<'a, Result<(), Fault>> {
        either!(self, own => Box::pin(own.while_sending(client, io)))
    }

    fn truncation_fault(&mut self) -> Boxed<'_, Option<Fault>> {
        Box::pin(self.output_fault())
    }

    fn wait_for_exit(&mut self) -> Boxed<'_, Option<Exit>> {
        match self {
            Self::Program(p) => Box::pin(p.exit_after_output()),
            Self::Exchange(e) => Box::pin(std::future::ready(e.exit)),
        }
    }

    fn post_mortem(&mut self, end: bool) -> Boxed<'_, (Option<Exit>, String)> {
        either!(self, own => Box::pin(own.post_mortem(end)))
    }

    fn finish(self: Box<Self>, done: OnExit) {
        Self::finish(*self, done);
    }

    fn abandon(self: Box<Self>, client_left: bool, done: OnExit) {
        Self::abandon(*self, client_left, done);
    }
}
