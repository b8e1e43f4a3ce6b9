//! Keeps a program going while a client lets a write wait.

use std::pin::Pin;

use galgo_io::sock::Sock;
use galgo_service::{client::Client, fault::Fault, producer::OutputEvent, spool::SpoolShare};

use crate::relay::{
    program::RunningProgram,
    pump::PumpEnd,
    transfer::{EXIT_GRACE, PIPE_MOST, Transfer, transfer},
};

impl RunningProgram {
    /// Moves the next spilled output to `out`, which is sent.
    pub(super) async fn pull_spilled(
        &mut self,
        client: &mut dyn Client,
    ) -> Result<OutputEvent, Fault> {
        tokio::select! {
            biased;
            pulled = self.spill.pull_piece(&mut self.out) => return pulled,
            ended = self.pump.pump_until_event(client, EXIT_GRACE) => if let PumpEnd::HalfClosed = ended? {
                return Ok(OutputEvent::HalfClosed);
            },
        }
        self.release_permit();
        self.spill.pull_piece(&mut self.out).await
    }

    /// After the process's exit, gives its permit back if memory can hold the output that the client has not read yet.
    fn release_permit(&mut self) {
        // The contents of the pipe will come into memory.
        let pipe = self.stdout.as_ref().map_or(0, |_| PIPE_MOST);
        // Leftover processes do not hold the permit, because a client could prolong that at will. Before Linux 6.9, reaping the
        // process would end them while they print.
        let may_reap = self.stdout.is_none() || self.pump.process.leaves_its_group();
        if may_reap && self.reap().is_some() && self.spill.reserve(pipe) {
            self.pump.process.permit = None;
        }
    }

    /// Goes on while `io` waits for a client that did not take everything at once.
    pub(crate) async fn while_sending(
        &mut self,
        client: &mut dyn Client,
        mut io: Pin<&mut dyn Future<Output = ()>>,
    ) -> Result<(), Fault> {
        loop {
            tokio::select! {
                biased;
                () = &mut io => return Ok(()),
                ended = self.pump.pump_until_event(client, EXIT_GRACE) => match ended? {
                    // The write itself shows whether the client still reads.
                    PumpEnd::HalfClosed => {}
                    // Only the write is left to watch.
                    PumpEnd::Exited => {
                        self.release_permit();
                        io.await;
                        return Ok(());
                    }
                },
                read = self.spill.gather_output(self.stdout.as_ref()) => match read {
                    Ok(0) => self.stdout = None,
                    Ok(_) => self.record_output(),
                    // The next read meets the error again.
                    Err(_) => self.spill.spool = None,
                },
            }
        }
    }

    /// Lets output wait for the client in `spool`. If it `splices`, large output waits in its pipe (`Producer::take_pipe`).
    pub(crate) fn streams(&mut self, spool: &SpoolShare, splices: bool) {
        if splices {
            self.splices = transfer() != Transfer::Copied;
            if transfer() == Transfer::Spliced
                && let Some(sock) = &self.stdout
            {
                self.bulk = true;
                sock.grow_pipe(PIPE_MOST);
            }
        }
        self.spill.spool = Some(spool.clone());
    }

    /// Takes the pipe; `None` if output waits already, because that output came before the pipe's contents and is sent first.
    pub(crate) fn take_pipe(&mut self) -> Option<Sock> {
        if self.spill.is_empty() {
            self.stdout.take()
        } else {
            None
        }
    }
}
