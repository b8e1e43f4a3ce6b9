//! What goes on while a client lets a write wait.

use std::{io, pin::Pin, task::Poll};

use super::{Exchange, tend};
use crate::{
    client::Client,
    fault::Fault,
    pace::poll_once,
    relay::program::{Turn, send_failed},
};

impl Exchange {
    /// Does `io` (sending to the client) while everything else is tended to. Output waits where it is as long as the
    /// client is not known to be slow.
    pub async fn during<T>(
        &mut self,
        client: &mut dyn Client,
        io: impl Future<Output = io::Result<T>>,
    ) -> Result<T, Fault> {
        let mut io = std::pin::pin!(io);
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

    async fn while_waiting<T>(
        &mut self,
        client: &mut dyn Client,
        mut io: Pin<&mut impl Future<Output = io::Result<T>>>,
    ) -> Result<io::Result<T>, Fault> {
        while let Some(link) = &self.link {
            let tend = tend(&mut self.sending, &mut self.clocks, &link.conn, client);
            let (spill, raw) = (&mut self.spill, self.out.buffer());
            let gathered = async { spill.begin(Some(&link.conn)).await.read_later(raw).await };
            let read = tokio::select! {
                biased;
                done = &mut io => return Ok(done),
                tended = tend => {
                    // A half-close: the write itself will show whether anybody still reads.
                    tended?;
                    continue;
                }
                read = gathered => read,
            };
            self.clocks.moved();
            self.receive(read);
            self.set_aside();
        }
        // A response that has ended as it should leaves its place to another.
        if self.good.is_some()
            && self.spill.reserve(0)
            && let Some(link) = self.good.take()
        {
            link.seat.give_back(link.conn);
        }
        Ok(io.await)
    }

    /// What was received waits.
    fn set_aside(&mut self) {
        for mut part in self.out.parts() {
            while !part.is_empty() {
                let back = self.spill.back();
                let (now, rest) = part.split_at(part.len().min(back.capacity() - back.len()));
                back.extend_from_slice(now);
                part = rest;
            }
        }
        self.out.clear();
    }

    /// The next output that waits becomes that which is sent.
    pub(super) async fn pull(&mut self, client: &mut dyn Client) -> Result<Turn, Fault> {
        if let Some(link) = &self.link {
            let tend = tend(&mut self.sending, &mut self.clocks, &link.conn, client);
            return tokio::select! {
                biased;
                pulled = self.spill.pull(&mut self.out) => pulled.map(|()| Turn::Output),
                tended = tend => tended.map(|()| Turn::HalfClosed),
            };
        }
        self.spill.pull(&mut self.out).await.map(|()| Turn::Output)
    }
}
