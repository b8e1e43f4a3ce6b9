//! The producer of a response body that is sent at the same time: a program, or an application on a connection.
//!
//! A front takes the output, and sends it as its protocol requires. Meanwhile the producer goes on: it reads the request's body,
//! writes to the log, and is watched.

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

/// After this many ticks of a waiting write, the client counts as slower than its program.
const TICKS: u32 = 2;

/// A future of a [`Producer`]. Boxed, because one is awaited for each piece of a body that was not there at once.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Called once with the exit of a process, if it is known.
pub type OnExit = Box<dyn FnOnce(Option<Exit>)>;

/// An event while output was awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputEvent {
    /// [`Producer::pending_output`] holds more output.
    Output,
    /// This many bytes of output wait in a pipe: see [`Producer::take_pipe`].
    Waiting(usize),
    /// There will be no more output.
    End,
    /// The client has shut down its sending side: it may be gone, or still be reading.
    HalfClosed,
}

/// A producer of a body. Methods with a default are for a producer without a process, whose output never has to wait.
pub trait Producer: Debug {
    /// Returns the output that was received and not yet sent on.
    fn pending_output(&mut self) -> &mut Out;

    /// Returns the number of bytes in [`Producer::pending_output`].
    fn pending_len(&self) -> usize;

    /// Whether output has ended.
    fn has_output_ended(&self) -> bool;

    /// Tells the producer that the body goes to the client as it comes. Output may wait for the client in `spool`; if `splices`,
    /// large output may wait in a pipe.
    fn start_streaming(&mut self, _spool: &SpoolShare, _splices: bool) {}

    /// Takes output that is there already, without waiting: until it ends, or until there are `most` bytes or as many as one
    /// read takes.
    fn drain_ready(&mut self, _most: usize) {}

    /// Waits for output while everything else goes on.
    fn next_event<'a>(
        &'a mut self,
        client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>>;

    /// Takes the pipe in which output waits, to splice from it. [`Producer::give_pipe`] gives it back.
    fn take_pipe(&mut self) -> Option<Sock> {
        None
    }

    /// Gives the pipe back.
    fn give_pipe(&mut self, _pipe: Sock) {}

    /// Tells the producer that something was sent.
    fn note_sent(&mut self) {}

    /// Tells the producer whether the client reads as fast as output comes. If not, output waits in memory and files.
    fn set_client_keeps_up(&mut self, _whether: bool) {}

    /// Keeps the producer going until `io`, which waits for the client, is done.
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

    /// Returns the fault if output ended in the middle of a response.
    fn truncation_fault(&mut self) -> Boxed<'_, Option<Fault>> {
        Box::pin(ready(None))
    }

    /// Returns the exit of the process after the end of output, if it exits soon.
    fn wait_for_exit(&mut self) -> Boxed<'_, Option<Exit>> {
        Box::pin(ready(None))
    }

    /// Called if there is no response. Gives the process a moment to exit and to say why, unless it must `end` at once. Returns
    /// its exit, and the last text on its standard error.
    fn post_mortem(&mut self, _end: bool) -> Boxed<'_, (Option<Exit>, String)> {
        Box::pin(ready((None, String::new())))
    }

    /// Ends the producer after the response; `done` gets the exit of the process.
    fn finish(self: Box<Self>, done: OnExit) {
        done(None);
    }

    /// Ends the producer because the request has failed or the client is gone.
    fn abandon(self: Box<Self>, _client_left: bool, done: OnExit) {
        done(None);
    }
}

impl dyn Producer + '_ {
    /// Runs `io` (sending to the client) while the producer goes on.
    pub async fn produce_while_sending<T>(
        &mut self,
        client: &mut dyn Client,
        io: impl Future<Output = io::Result<T>>,
    ) -> Result<T, Fault> {
        let mut io = pin!(io);
        let done = match poll_once(io.as_mut()).await {
            Poll::Ready(done) => {
                self.set_client_keeps_up(true);
                done
            }
            Poll::Pending => {
                let mut done = Err(io::ErrorKind::Interrupted.into());
                let io = pin!(async { done = io.await });
                self.while_sending(client, io).await?;
                done
            }
        };
        self.note_sent();
        done.map_err(|e| Fault::Gone(send_failed(&e)))
    }
}

/// Waits until a client that is being written to has shown itself to be slow.
pub async fn wait_until_slow() {
    for _ in 0..TICKS {
        tick::next().await;
    }
}

fn send_failed(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::TimedOut => "the client reads slower than min_rate",
        GIVES_WAY => {
            "the client reads slower than busy_rate while other requests wait (max_running)"
        }
        _ => "the client closed the connection while the response was sent",
    }
}

/// Returns the exit status of a producer's process, if it exits soon; 128 plus the signal, if a signal ended it; else 0.
pub async fn exit_status(producer: &mut dyn Producer) -> u32 {
    match producer.wait_for_exit().await.map(|exit| exit.status) {
        Some(Status::Code(code)) => code.unsigned_abs(),
        Some(Status::Signal(signal)) => 128 + signal.unsigned_abs(),
        None => 0,
    }
}
