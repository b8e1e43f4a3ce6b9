//! What goes on while a client lets a write wait.

use std::{pin::Pin, sync::Arc};

use galgo_spawn::Exit;

use super::{Exchange, pump};
use crate::{
    client::Client,
    fault::Fault,
    out::Out,
    producer::{Boxed, OnExit, OutputEvent, Producer},
    spool::Spool,
};

impl Exchange {
    /// Goes on while `io` waits for a client that did not take everything at once.
    async fn while_waiting(
        &mut self,
        client: &mut dyn Client,
        mut io: Pin<&mut dyn Future<Output = ()>>,
    ) -> Result<(), Fault> {
        while let Some(link) = &self.link {
            let pump = pump(&mut self.sending, &mut self.clocks, &link.conn, client);
            let (spill, raw) = (&mut self.spill, self.out.buffer());
            let gathered = async { spill.begin(Some(&link.conn)).await.read_later(raw).await };
            let read = tokio::select! {
                biased;
                () = &mut io => return Ok(()),
                ended = pump => {
                    // A half-close: the write itself will show whether the client still reads.
                    ended?;
                    continue;
                }
                read = gathered => read,
            };
            self.clocks.moved();
            self.receive(read);
            self.spill_received();
        }
        // A response that has ended as it should gives its lease back.
        if self.good.is_some()
            && self.spill.reserve(0)
            && let Some(link) = self.good.take()
        {
            link.lease.give_back(link.conn);
        }
        io.await;
        Ok(())
    }

    /// What was received waits.
    fn spill_received(&mut self) {
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
    pub(super) async fn pull(&mut self, client: &mut dyn Client) -> Result<OutputEvent, Fault> {
        if let Some(link) = &self.link {
            let pump = pump(&mut self.sending, &mut self.clocks, &link.conn, client);
            return tokio::select! {
                biased;
                pulled = self.spill.pull(&mut self.out) => pulled.map(|()| OutputEvent::Output),
                ended = pump => ended.map(|()| OutputEvent::HalfClosed),
            };
        }
        self.spill
            .pull(&mut self.out)
            .await
            .map(|()| OutputEvent::Output)
    }
}

impl Producer for Exchange {
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
        self.spill.enable(spool);
    }

    fn drain_ready(&mut self, _most: usize) {
        Self::drain_ready(self);
    }

    fn next_event<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>> {
        Box::pin(Self::next_event(self, client))
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
        Box::pin(std::future::ready(Self::cut(self)))
    }

    fn exit(&mut self) -> Boxed<'_, Option<Exit>> {
        Box::pin(std::future::ready(Self::exit(self)))
    }

    fn post_mortem(&mut self, end: bool) -> Boxed<'_, (Option<Exit>, String)> {
        Box::pin(Self::post_mortem(self, end))
    }

    fn finish(self: Box<Self>, done: OnExit) {
        Self::finish(self, done);
    }

    fn abandon(self: Box<Self>, client_left: bool, done: OnExit) {
        Self::abandon(self, client_left, done);
    }
}
