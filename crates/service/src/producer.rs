//! What produces the body of a response while it is sent: a program, or an application on a connection.
//!
//! A front takes what comes, and sends it as its protocol wants. Meanwhile the producer goes on: it reads the request's
//! body, writes to the log, and is watched.

use std::{
    fmt::Debug,
    future::ready,
    io,
    pin::{Pin, pin},
    task::Poll,
};

use galgo_io::{
    out::Out,
    rate_allowance::{GIVES_WAY, poll_once},
    sock::Sock,
    tick,
};
use galgo_spawn::{Exit, Status};

use crate::{client::Client, fault::Fault, spool::SpoolShare};

/// A client that has let a write wait for so many ticks reads slower than its program prints.
const TICKS: u32 = 2;

/// What a [`Producer`] is asked for. The futures are boxed: they are awaited once for each piece of a body that was not
/// there at once.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Called once with how a process ended, as far as that is known.
pub type OnExit = Box<dyn FnOnce(Option<Exit>)>;

/// What happened while output was awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputEvent {
    /// [`Producer::out`] holds more.
    Output,
    /// This many bytes of output wait in a pipe: see [`Producer::take_pipe`].
    Waiting(usize),
    /// There will be no more output.
    End,
    /// The client has shut down its sending side: it may be gone, or still be reading.
    HalfClosed,
}

/// What produces a body. Where a method does something by itself, that is for a producer without a process, whose output never
/// has to wait.
pub trait Producer: Debug {
    /// Output received and not yet sent on.
    fn out(&mut self) -> &mut Out;

    /// Bytes in [`Producer::out`].
    fn ready(&self) -> usize;

    /// Whether output has ended.
    fn output_ended(&self) -> bool;

    /// The body goes to the client as it comes: output may wait for it in `spool`, and large output, where `splices`, in a pipe.
    fn streams(&mut self, _spool: &SpoolShare, _splices: bool) {}

    /// Takes what output is there already, without waiting, until it ends, or there are `most` bytes or as many as are
    /// read at once.
    fn drain_ready(&mut self, _most: usize) {}

    /// Waits for output while everything else goes on.
    fn next_event<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>>;

    /// Takes the pipe in which output waits, to splice from it. It comes back by [`Producer::give_pipe`].
    fn take_pipe(&mut self) -> Option<Sock> {
        None
    }

    /// Gives the pipe back.
    fn give_pipe(&mut self, _pipe: Sock) {}

    /// Something was sent.
    fn sent(&mut self) {}

    /// Whether the client takes what it is sent as fast as it comes. Output that waits for one that does not goes to memory
    /// and files.
    fn client_keeps_up(&mut self, _whether: bool) {}

    /// Goes on while `io` waits for the client, until that is done.
    fn while_sending<'a>(
        &'a mut self,
        _client: &'a mut dyn Client,
        io: Pin<&'a mut dyn Future<Output = ()>>,
    ) -> Boxed<'a, Result<(), Fault>> {
        Box::pin(async {
            io.await;
            Ok(())
        })
    }

    /// Output has ended: what is wrong where that was not the end of a response, but of a piece of one.
    fn cut(&mut self) -> Boxed<'_, Option<Fault>> {
        Box::pin(ready(None))
    }

    /// Output has ended: how the process did, if it exits soon.
    fn exit(&mut self) -> Boxed<'_, Option<Exit>> {
        Box::pin(ready(None))
    }

    /// The response is none. Gives a process a moment to exit and to say why, unless it must `end` at once: how it did, and
    /// the last it wrote to standard error.
    fn post_mortem(&mut self, _end: bool) -> Boxed<'_, (Option<Exit>, String)> {
        Box::pin(ready((None, String::new())))
    }

    /// The response is over; `done` is told how the process ended.
    fn finish(self: Box<Self>, done: OnExit) {
        done(None);
    }

    /// The request has failed or the client is gone.
    fn abandon(self: Box<Self>, _client_left: bool, done: OnExit) {
        done(None);
    }
}

impl dyn Producer + '_ {
    /// Does `io` (sending to the client) while the producer goes on.
    pub async fn during<T>(
        &mut self,
        client: &mut dyn Client,
        io: impl Future<Output = io::Result<T>>,
    ) -> Result<T, Fault> {
        let mut io = pin!(io);
        let done = match poll_once(io.as_mut()).await {
            Poll::Ready(done) => {
                self.client_keeps_up(true);
                done
            }
            Poll::Pending => {
                let mut done = Err(io::ErrorKind::Interrupted.into());
                let io = pin!(async { done = io.await });
                self.while_sending(client, io).await?;
                done
            }
        };
        self.sent();
        done.map_err(|e| Fault::Gone(send_failed(&e)))
    }
}

/// Waits until a client that is being written to has shown itself to be slow.
pub async fn slow() {
    for _ in 0..TICKS {
        tick::next().await;
    }
}

fn send_failed(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::TimedOut => "the client reads slower than min_rate",
        GIVES_WAY => "the client reads slower than busy_rate, and others wait for a permit",
        _ => "the client closed the connection while the response was sent",
    }
}

/// The exit status of a producer's process, if it exits soon; 128 and the signal where one ended it; else 0.
pub async fn exit_status(producer: &mut dyn Producer) -> u32 {
    match producer.exit().await.map(|exit| exit.status) {
        Some(Status::Code(code)) => code.unsigned_abs(),
        Some(Status::Signal(signal)) => 128 + signal.unsigned_abs(),
        None => 0,
    }
}
