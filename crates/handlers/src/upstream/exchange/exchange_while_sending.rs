//! Keeps an exchange going while a client lets a write wait.

use std::pin::Pin;

use galgo_service::{client::Client, fault::Fault, producer::OutputEvent};

use crate::upstream::exchange::{Exchange, open_link, pump_request};

impl Exchange {
    /// Receives output while `io` waits for a client that did not take everything at once.
    pub(crate) async fn while_sending(
        &mut self,
        client: &mut dyn Client,
        mut io: Pin<&mut dyn Future<Output = ()>>,
    ) -> Result<(), Fault> {
        while let Some(link) = open_link(&self.link) {
            let pump = pump_request(&mut self.sending, &mut self.clocks, &link.conn, client);
            let (spill, raw) = (&mut self.spill, self.out.buffer());
            let gathered = async {
                spill
                    .await_spilling(Some(&link.conn))
                    .await
                    .read_later(raw)
                    .await
            };
            let read = tokio::select! {
                biased;
                () = &mut io => return Ok(()),
                ended = pump => {
                    // After a half-close, the write itself shows whether the client still reads.
                    ended?;
                    continue;
                }
                read = gathered => read,
            };
            self.clocks.record_move();
            self.receive(read);
            self.spill_received();
        }
        // A response that ended without a fault gives its lease back.
        if self.link.is_some()
            && self.spill.reserve(0)
            && let Some(link) = self.link.take()
        {
            link.lease.give_back(link.conn);
        }
        io.await;
        Ok(())
    }

    fn spill_received(&mut self) {
        for mut part in self.out.parts() {
            while !part.is_empty() {
                let back = self.spill.back_buffer();
                let (now, rest) = part.split_at(part.len().min(back.capacity() - back.len()));
                back.extend_from_slice(now);
                part = rest;
            }
        }
        self.out.clear_seen();
    }

    /// Moves the next spilled output to `out`, which is sent.
    pub(super) async fn pull_spilled(
        &mut self,
        client: &mut dyn Client,
    ) -> Result<OutputEvent, Fault> {
        if let Some(link) = open_link(&self.link) {
            let pump = pump_request(&mut self.sending, &mut self.clocks, &link.conn, client);
            return tokio::select! {
                biased;
                pulled = self.spill.pull_piece(&mut self.out) => pulled,
                ended = pump => ended.map(|()| OutputEvent::HalfClosed),
            };
        }
        self.spill.pull_piece(&mut self.out).await
    }
}
