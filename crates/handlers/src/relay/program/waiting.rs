//! What goes on while a client lets a write wait.

use std::{pin::Pin, sync::Arc};

use galgo_spawn::Exit;

use super::{
    super::pump::{PumpEnd, pump},
    PIPE_MOST, RunningProgram,
};
use crate::{
    client::Client,
    fault::Fault,
    out::Out,
    producer::{Boxed, OnExit, OutputEvent, Producer},
    sock::Sock,
    spool::Spool,
};

impl RunningProgram {
    /// The next output that waits becomes that which is sent.
    pub(super) async fn pull(&mut self, client: &mut dyn Client) -> Result<OutputEvent, Fault> {
        let Self {
            process,
            stdin,
            errors,
            clocks,
            out,
            spill,
            ..
        } = self;
        let pump = pump(stdin, errors, process, clocks, client);
        tokio::select! {
            biased;
            pulled = spill.pull(out) => return pulled.map(|()| OutputEvent::Output),
            ended = pump => if let PumpEnd::HalfClosed = ended? {
                return Ok(OutputEvent::HalfClosed);
            },
        }
        self.over();
        self.spill
            .pull(&mut self.out)
            .await
            .map(|()| OutputEvent::Output)
    }

    /// The process has exited: gives its permit back, if there is room for the output that its client has not read yet.
    fn over(&mut self) {
        // What is in its pipe will come into memory.
        let pipe = self.stdout.as_ref().map_or(0, |_| PIPE_MOST);
        // Processes it has left running do not hold the permit: a client could prolong that at will.
        if self.reap().is_some() && self.spill.reserve(pipe) {
            self.permit = None;
        }
    }

    /// Goes on while `io` waits for a client that did not take everything at once.
    async fn while_waiting(
        &mut self,
        client: &mut dyn Client,
        mut io: Pin<&mut dyn Future<Output = ()>>,
    ) -> Result<(), Fault> {
        loop {
            let Self {
                process,
                stdin,
                stdout,
                errors,
                clocks,
                spill,
                ..
            } = self;
            let pump = pump(stdin, errors, process, clocks, client);
            tokio::select! {
                biased;
                () = &mut io => return Ok(()),
                ended = pump => match ended? {
                    // The write itself will show whether the client still reads.
                    PumpEnd::HalfClosed => {}
                    // Nothing is left to watch but the write.
                    PumpEnd::Exited => {
                        self.over();
                        io.await;
                        return Ok(());
                    }
                },
                read = spill.gather(stdout.as_ref()) => match read {
                    Ok(0) => *stdout = None,
                    Ok(_) => clocks.moved(),
                    // The next read meets it again.
                    Err(_) => spill.disable(),
                },
            }
        }
    }
}

impl Producer for RunningProgram {
    fn out(&mut self) -> &mut Out {
        &mut self.out
    }

    fn ready(&self) -> usize {
        self.out.len()
    }

    fn output_ended(&self) -> bool {
        Self::output_ended(self)
    }

    fn streams(&mut self, spool: &Arc<Spool>) {
        self.may_splice();
        self.spill.enable(spool);
    }

    fn drain_ready(&mut self, most: usize) {
        Self::drain_ready(self, most);
    }

    fn next_event<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>> {
        Box::pin(Self::next_event(self, client))
    }

    /// None where output waits already: it was in the pipe before what is there now, and comes first.
    fn take_pipe(&mut self) -> Option<Sock> {
        match self.spill.is_empty() {
            true => self.stdout.take(),
            false => None,
        }
    }

    fn give_pipe(&mut self, pipe: Sock) {
        self.stdout = Some(pipe);
    }

    fn sent(&mut self) {
        self.clocks.moved();
    }

    fn client_keeps_up(&mut self, whether: bool) {
        self.spill.sent_at_once(whether);
    }

    fn while_sending<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
        io: Pin<&'a mut dyn Future<Output = ()>>,
    ) -> Boxed<'a, Result<(), Fault>> {
        Box::pin(self.while_waiting(client, io))
    }

    fn cut(&mut self) -> Boxed<'_, Option<Fault>> {
        Box::pin(self.killed())
    }

    fn exit(&mut self) -> Boxed<'_, Option<Exit>> {
        Box::pin(Self::exit(self))
    }

    fn post_mortem(&mut self, end: bool) -> Boxed<'_, (Option<Exit>, String)> {
        Box::pin(Self::post_mortem(self, end))
    }

    fn finish(self: Box<Self>, done: OnExit) {
        Self::finish(*self, done);
    }

    fn abandon(self: Box<Self>, client_left: bool, done: OnExit) {
        Self::abandon(*self, client_left, done);
    }
}
