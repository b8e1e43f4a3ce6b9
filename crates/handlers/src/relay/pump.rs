//! Handles everything besides a program's output while that output is awaited or sent: the program's input, its standard error,
//! the client, the process itself and the clocks.

use std::{
    io::{self, IoSlice},
    task::Context,
    time::Duration,
};

use galgo_io::sock::is_short;
use galgo_service::{
    client::{Client, Next, Spliced},
    fault::{Fault, SHORT},
};

use super::{
    clock::Clocks,
    process::Process,
    stderr::StderrPipe,
    stdin::ProgramInput,
    transfer::{PIPE_MOST, Transfer, transfer},
};

pub(super) enum PumpEnd {
    HalfClosed,
    Exited,
}

/// The parts of a running program, except its standard output.
#[derive(Debug)]
pub(super) struct Pump {
    pub(super) process: Process,
    pub(super) stdin: ProgramInput,
    pub(super) errors: StderrPipe,
    pub(super) clocks: Clocks,
}

impl Pump {
    /// Feeds the request body, logs standard error, watches the client, the process and the clocks. Ends with a fault, or when
    /// the client half-closes, or when the process has exited and nothing was printed for `grace`.
    pub(super) async fn pump_until_event(
        &mut self,
        client: &mut dyn Client,
        grace: Duration,
    ) -> Result<PumpEnd, Fault> {
        loop {
            tokio::select! {
                fed = feed_stdin(&mut self.stdin, client) => match fed? {
                    Fed::Moved => self.clocks.record_body_move(),
                    Fed::HalfClosed => return Ok(PumpEnd::HalfClosed),
                },
                never = self.errors.drain_pipe() => match never {},
                fault = self.clocks.await_expiry() => return Err(fault),
                () = self.process.await_silent_exit(grace) => return Ok(PumpEnd::Exited),
            }
        }
    }
}

/// Least number of body bytes still to come for splicing them from the client's socket to the program's pipe, without a copy.
/// From 64 KB on splicing takes three quarters of the processor time, from 256 KB on a half and less. At 16 KB it is about even.
const SPLICE_BODY: usize = 64 << 10;

/// Takes in more of a body, either into the buffer or directly into the program's pipe.
async fn take_more_body(stdin: &mut ProgramInput, client: &mut dyn Client) -> Result<Fed, Fault> {
    let least = match transfer() {
        Transfer::Cheapest => SPLICE_BODY,
        Transfer::Spliced => 1,
        Transfer::Copied => usize::MAX,
    };
    let len = client.spliceable();
    let Some(pipe) = stdin.pipe().filter(|_| len >= least) else {
        return client.wait_for_body().await.map(|()| Fed::Moved);
    };
    if len >= PIPE_MOST {
        pipe.grow_pipe(PIPE_MOST);
    }
    match client.splice(pipe, len.min(PIPE_MOST)).await? {
        Spliced::Moved => {}
        Spliced::HalfClosed => return Ok(Fed::HalfClosed),
        Spliced::Unread => stdin.close_pipe(),
    }
    Ok(Fed::Moved)
}

pub(crate) enum Fed {
    /// A piece of the body moved on.
    Moved,
    /// The client has shut down its sending side.
    HalfClosed,
}

/// Returns the fault for a body whose rest does not arrive: its reader must not take that for the end.
pub(crate) fn unfed_fault(e: &io::Error) -> Fault {
    if is_short(e) {
        SHORT
    } else {
        Fault::Internal(format!("the request body could not be passed on: {e}"))
    }
}

/// Moves a piece of the request body to standard input; watches the client if there is no piece to move.
pub(crate) async fn feed_stdin(
    stdin: &mut ProgramInput,
    client: &mut dyn Client,
) -> Result<Fed, Fault> {
    match client.next()? {
        Next::More => take_more_body(stdin, client).await,
        Next::End => {
            stdin.end_body();
            client.watch_connection().await.map(|()| Fed::HalfClosed)
        }
        Next::Data(n) => {
            let Some(pipe) = stdin.pipe() else {
                // The program reads no more: take the rest of the body and drop it.
                client.consume(n);
                return Ok(Fed::Moved);
            };
            let mut waits = false;
            let write = |data: &[u8], cx: &mut Context<'_>| {
                pipe.poll_write(&[IoSlice::new(&data[..n])], &mut waits, cx)
            };
            let Some(written) = client.poll_while_connected(write).await? else {
                return Ok(Fed::HalfClosed);
            };
            match written {
                Ok(n) => client.consume(n),
                // The program closed its standard input.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => stdin.close_pipe(),
                Err(e) => return Err(unfed_fault(&e)),
            }
            Ok(Fed::Moved)
        }
    }
}
