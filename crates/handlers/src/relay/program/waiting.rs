//! What goes on while a client lets a write wait.

use std::pin::Pin;

use galgo_io::sock::Sock;
use galgo_service::{client::Client, fault::Fault, producer::OutputEvent, spool::SpoolShare};

use super::{
    super::{
        pump::PumpEnd,
        transfer::{EXIT_GRACE, PIPE_MOST, Transfer, transfer},
    },
    RunningProgram,
};

impl RunningProgram {
    /// The next output that waits becomes that which is sent.
    pub(super) async fn pull(&mut self, client: &mut dyn Client) -> Result<OutputEvent, Fault> {
        tokio::select! {
            biased;
            pulled = self.spill.pull(&mut self.out) => return pulled,
            ended = self.pump.run(client, EXIT_GRACE) => if let PumpEnd::HalfClosed = ended? {
                return Ok(OutputEvent::HalfClosed);
            },
        }
        self.over();
        self.spill.pull(&mut self.out).await
    }

    /// The process has exited: gives its permit back, if there is room for the output that its client has not read yet.
    fn over(&mut self) {
        // What is in its pipe will come into memory.
        let pipe = self.stdout.as_ref().map_or(0, |_| PIPE_MOST);
        // Processes it has left running do not hold the permit: a client could prolong that at will.
        // Before Linux 6.9 those would end as the process is reaped, in the middle of what they print.
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
                ended = self.pump.run(client, EXIT_GRACE) => match ended? {
                    // The write itself will show whether the client still reads.
                    PumpEnd::HalfClosed => {}
                    // Nothing is left to watch but the write.
                    PumpEnd::Exited => {
                        self.over();
                        io.await;
                        return Ok(());
                    }
                },
                read = self.spill.gather(self.stdout.as_ref()) => match read {
                    Ok(0) => self.stdout = None,
                    Ok(_) => self.heard(),
                    // The next read meets it again.
                    Err(_) => self.spill.spool = None,
                },
            }
        }
    }

    /// Output may wait for the client in `spool`, and large output, where it `splices`, in its pipe (`Producer::take_pipe`).
    pub(crate) fn streams(&mut self, spool: &SpoolShare, splices: bool) {
        if splices {
            self.splices = transfer() != Transfer::Copied;
            if transfer() == Transfer::Spliced
                && let Some(sock) = &self.stdout
            {
                self.bulk = true;
                sock.widen(PIPE_MOST);
            }
        }
        self.spill.spool = Some(spool.clone());
    }

    /// `None` where output waits already: it was in the pipe before what is there now, and comes first.
    pub(crate) fn take_pipe(&mut self) -> Option<Sock> {
        if self.spill.is_empty() {
            self.stdout.take()
        } else {
            None
        }
    }
}
