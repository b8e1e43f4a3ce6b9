//! A producer that codes the output of another producer.

use std::{cell::Cell, pin::Pin, sync::Arc};

use galgo_io::{out::Out, pool, tick};
use galgo_service::{
    body::short_body_fault,
    client::Client,
    fault::Fault,
    log::LogSource,
    producer::{Boxed, OnExit, OutputEvent, Producer},
    spool::SpoolShare,
};
use galgo_spawn::Exit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::coder::Coder;

/// Bytes that are coded before other requests go on.
const PIECE: usize = 32 << 10;
/// Bytes that are coded, if there are as many, before another body has its turn and the coded output is sent.
const STRETCH: u64 = 128 << 10;
/// Limit for bodies that one event loop codes at a time. Each takes time and up to 2 MiB of memory; further bodies are sent
/// uncoded.
const MOST: usize = 32;

thread_local! {
    static CODING: Cell<usize> = const { Cell::new(0) };
    /// Number of small bodies, coded in one go, since the event loop last looked for events.
    static SMALL: Cell<usize> = const { Cell::new(0) };
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// Waits until this event loop codes no other body. The processor's cache holds the memory of one coder, not of many in
/// alternation.
async fn await_turn() -> Option<OwnedSemaphorePermit> {
    TURN.with(Arc::clone).acquire_owned().await.ok()
}

/// A permit to code a body on this event loop.
#[derive(Debug)]
pub(super) struct CoderPermit(());

impl CoderPermit {
    /// Takes a permit; `None` if the event loop already codes as many bodies as it may. Must be called on an event loop.
    pub(super) fn try_acquire(small: bool) -> Option<Self> {
        let taken = CODING.get();
        if taken == MOST || small && !count_small() {
            return None;
        }
        CODING.set(taken + 1);
        Some(Self(()))
    }
}

/// Counts a small body, and returns whether it may be coded.
fn count_small() -> bool {
    let before = SMALL.get();
    if before == 0 {
        // A task that yields runs again once the event loop has looked for events.
        tokio::task::spawn_local(async {
            tokio::task::yield_now().await;
            SMALL.set(0);
        });
    }
    SMALL.set(MOST.min(before + 1));
    before < MOST
}

impl Drop for CoderPermit {
    fn drop(&mut self) {
        CODING.set(CODING.get() - 1);
    }
}

#[derive(Debug)]
pub(super) struct Coded {
    inner: Box<dyn Producer>,
    /// `None` if the end of the coding is in `out`, or if the coder has failed.
    coder: Option<Coder>,
    out: Out,
    /// Bytes that the coder has read.
    taken: u64,
    /// Bytes that the program promised; `source` names the program in the log.
    promised: Option<u64>,
    source: LogSource,
    /// Whether some input cannot be read from the output yet.
    unflushed: bool,
    fault: Option<Fault>,
    _permit: CoderPermit,
}

impl Coded {
    pub(super) fn new(
        inner: Box<dyn Producer>,
        coder: Coder,
        (promised, source): (Option<u64>, LogSource),
        permit: CoderPermit,
    ) -> Self {
        let mut coded = Self {
            inner,
            coder: Some(coder),
            out: Out::default(),
            taken: 0,
            promised,
            source,
            unflushed: false,
            fault: None,
            _permit: permit,
        };
        // A small and complete body leaves with its length, in one write.
        if coded.inner.has_output_ended() && coded.inner.pending_len() <= PIECE {
            coded.code_piece();
            coded.end_if_ended();
        }
        coded
    }

    /// Codes a piece of the producer's output.
    fn code_piece(&mut self) {
        let Some(coder) = &mut self.coder else {
            return;
        };
        let raw = self.inner.pending_output();
        let left = self
            .promised
            .map_or(u64::MAX, |promised| promised - self.taken);
        let piece = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        let front = raw.first_part();
        let taken = front.len().min(piece);
        let done = coder.write(&front[..taken]);
        let over = taken == 0 && !raw.is_empty();
        raw.consume(taken);
        self.taken += taken as u64;
        self.unflushed |= taken > 0;
        self.collect_coded(done.is_ok());
        if over {
            self.source.log_excess_output(self.taken);
            self.end_coding();
        }
    }

    fn flush(&mut self) {
        let done = self.coder.as_mut().map(Coder::flush);
        self.unflushed = false;
        self.collect_coded(done.is_none_or(|done| done.is_ok()));
    }

    /// Moves the coder's output to `out`. `fine`: the last step of the coder succeeded.
    fn collect_coded(&mut self, fine: bool) {
        if let Some(coder) = &mut self.coder {
            append_output(&mut self.out, &coder.take_output());
        }
        if !fine {
            self.coder = None;
            let words = "a response could not be compressed: out of memory";
            self.fault = Some(Fault::Internal(words.into()));
        }
    }

    fn end_coding(&mut self) {
        let Some(coder) = self.coder.take() else {
            return;
        };
        match coder.finish() {
            Ok(last) => append_output(&mut self.out, &last),
            Err(_) => self.collect_coded(false),
        }
    }

    fn end_if_ended(&mut self) {
        if self.inner.pending_len() == 0 && self.inner.has_output_ended() {
            self.end_coding();
        }
    }

    /// Codes the producer's output, including bytes that arrive meanwhile.
    async fn code_stretch(&mut self) {
        let _turn = await_turn().await;
        let end = self.taken + STRETCH;
        while self.inner.pending_len() > 0 && self.taken < end && self.coder.is_some() {
            self.code_piece();
            // Other requests of the event loop go on meanwhile.
            tokio::task::yield_now().await;
            if self.inner.pending_len() == 0 {
                self.inner.drain_ready(pool::SIZE);
            }
        }
        self.end_if_ended();
    }

    async fn next(&mut self, client: &mut dyn Client) -> Result<OutputEvent, Fault> {
        loop {
            if !self.out.is_empty() {
                return Ok(OutputEvent::Output);
            }
            if self.coder.is_none() {
                return Ok(OutputEvent::End);
            }
            if self.inner.pending_len() > 0 {
                self.code_stretch().await;
                continue;
            }
            if self.inner.has_output_ended() {
                self.end_coding();
                continue;
            }
            // A program that pauses wants its output to be seen.
            let event = if self.unflushed {
                tokio::select! {
                    biased;
                    event = self.inner.next_event(client) => event?,
                    () = tick::next() => {
                        self.flush();
                        continue;
                    }
                }
            } else {
                self.inner.next_event(client).await?
            };
            match event {
                OutputEvent::Output => self.inner.drain_ready(pool::SIZE),
                OutputEvent::End => {}
                OutputEvent::HalfClosed => return Ok(event),
                OutputEvent::Waiting(_) => {
                    let words = "output to be coded waits in a pipe";
                    return Err(Fault::Internal(words.into()));
                }
            }
        }
    }

    /// Returns the fault of output that has ended.
    async fn output_fault(&mut self) -> Option<Fault> {
        if let Some(fault) = self.inner.truncation_fault().await {
            return Some(fault);
        }
        let promised = self.promised;
        let short = promised.and_then(|promised| short_body_fault(promised, self.taken));
        short.or_else(|| self.fault.take())
    }
}

fn append_output(out: &mut Out, bytes: &[u8]) {
    out.buffer().extend_from_slice(bytes);
    out.keep_all();
}

impl Producer for Coded {
    fn pending_output(&mut self) -> &mut Out {
        &mut self.out
    }

    fn pending_len(&self) -> usize {
        self.out.len()
    }

    fn has_output_ended(&self) -> bool {
        self.coder.is_none()
    }

    fn start_streaming(&mut self, spool: &SpoolShare, _splices: bool) {
        self.inner.start_streaming(spool, false);
    }

    fn next_event<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>> {
        Box::pin(self.next(client))
    }

    fn note_sent(&mut self) {
        self.inner.note_sent();
    }

    fn set_client_keeps_up(&mut self, whether: bool) {
        self.inner.set_client_keeps_up(whether);
    }

    fn while_sending<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
        io: Pin<&'a mut dyn Future<Output = ()>>,
    ) -> Boxed<'a, Result<(), Fault>> {
        self.inner.while_sending(client, io)
    }

    fn truncation_fault(&mut self) -> Boxed<'_, Option<Fault>> {
        Box::pin(self.output_fault())
    }

    fn wait_for_exit(&mut self) -> Boxed<'_, Option<Exit>> {
        self.inner.wait_for_exit()
    }

    fn post_mortem(&mut self, end: bool) -> Boxed<'_, (Option<Exit>, String)> {
        self.inner.post_mortem(end)
    }

    fn finish(self: Box<Self>, done: OnExit) {
        self.inner.finish(done);
    }

    fn abandon(self: Box<Self>, client_left: bool, done: OnExit) {
        self.inner.abandon(client_left, done);
    }
}
