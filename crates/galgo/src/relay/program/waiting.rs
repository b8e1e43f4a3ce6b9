//! What goes on while a client lets a write wait.

use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
};

use super::{
    super::{
        spill,
        tend::{Tended, tend},
    },
    PIPE_MOST, Program, Turn, send_failed,
};
use crate::{
    client::Client,
    fault::Fault,
    pace::{Pace, poll_once},
    sock::Sock,
    spool::Spool,
};

impl Program {
    /// From now on output may wait for a client that reads slowly, and the program need not.
    pub fn may_spill(&mut self, spool: &Arc<Spool>) {
        self.spill.enable(spool);
    }

    /// The next output that waits becomes that which is sent.
    pub(super) async fn pull(&mut self, client: &mut dyn Client) -> Result<Turn, Fault> {
        let Self {
            process,
            stdin,
            errors,
            clocks,
            out,
            spill,
            ..
        } = self;
        let tend = tend(stdin, errors, process, clocks, client);
        tokio::select! {
            biased;
            pulled = spill.pull(out) => return pulled.map(|()| Turn::Output),
            tended = tend => if let Tended::HalfClosed = tended? {
                return Ok(Turn::HalfClosed);
            },
        }
        self.over();
        self.spill.pull(&mut self.out).await.map(|()| Turn::Output)
    }

    /// The process has exited. Its place is free, whoever still reads what it has printed, where there is room for that.
    fn over(&mut self) {
        // What is in its pipe comes into memory when nobody else is to print there.
        let pipe = self.stdout.as_ref().map_or(0, |_| PIPE_MOST);
        // Whom it has left running does not hold the place on: that would be for as long as the client likes.
        if self.reap().is_some() && self.spill.reserve(pipe) {
            self.permit = None;
        }
    }

    /// Moves `len` bytes that wait in the pipe to `to`, while everything else is tended to: fewer, where the client
    /// takes them slowly. Says how many.
    pub async fn pass_on(
        &mut self,
        client: &mut dyn Client,
        to: &Sock,
        pace: &mut Pace,
        len: usize,
    ) -> Result<usize, Fault> {
        let Some(stdout) = self.stdout.take() else {
            return Ok(0);
        };
        let mut left = len;
        let moved = async {
            let moved = pace.move_all(len, async |most| {
                let n = to.splice(&stdout, most).await?;
                left -= n;
                Ok(n)
            });
            tokio::select! {
                biased;
                moved = moved => moved.map(|()| false),
                () = spill::slow() => Ok(true),
            }
        };
        let slow = self.during(client, pin!(moved)).await?;
        self.stdout = Some(stdout);
        self.spill.sent_at_once(!slow);
        Ok(len - left)
    }

    /// Does `io` (sending to the client) while everything else is tended to. Output waits in its pipe as long as the
    /// client is not known to be slow.
    pub async fn during<T>(
        &mut self,
        client: &mut dyn Client,
        io: impl Future<Output = io::Result<T>>,
    ) -> Result<T, Fault> {
        let mut io = pin!(io);
        let done = match poll_once(io.as_mut()).await {
            Poll::Ready(done) => {
                self.spill.sent_at_once(true);
                done
            }
            Poll::Pending => self.while_waiting(client, io).await?,
        };
        self.clocks.moved();
        done.map_err(|e| Fault::Gone(send_failed(&e)))
    }

    /// As [`Program::during`], for a client that did not take everything at once.
    async fn while_waiting<T>(
        &mut self,
        client: &mut dyn Client,
        mut io: Pin<&mut impl Future<Output = io::Result<T>>>,
    ) -> Result<io::Result<T>, Fault> {
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
            let tend = tend(stdin, errors, process, clocks, client);
            tokio::select! {
                biased;
                done = &mut io => return Ok(done),
                tended = tend => match tended? {
                    // The write itself will show whether anybody still reads.
                    Tended::HalfClosed => {}
                    // Nothing is left to tend to but what is being sent.
                    Tended::Exited => {
                        self.over();
                        return Ok(io.await);
                    }
                },
                read = spill.gather(stdout.as_ref()) => match read {
                    Ok(0) => *stdout = None,
                    Ok(_) => clocks.moved(),
                    // It is met again, by who waits for more.
                    Err(_) => spill.disable(),
                },
            }
        }
    }
}
