//! What must be tended to while a program's output is awaited or sent: its input, its standard error, the
//! client, the process itself and the clocks.

use std::io::IoSlice;

use super::{clock::Clocks, errors::Errors, process::Process, program::EXIT_GRACE};
use crate::{
    conn::input::{Input, Next, RequestBody, watch_unread},
    fault::Fault,
    sock::Sock,
};

/// Why tending ended.
pub(super) enum Tended {
    HalfClosed,
    Exited,
}

/// Tends to everything but standard output: feeds the request body, logs standard error, watches the
/// client, the process and the clocks. Ends with a fault, or when the client half-closes, or when the
/// process has exited and the grace for its background children is over.
pub(super) async fn tend(
    stdin: &mut Option<Sock>,
    errors: &mut Errors,
    process: &mut Process,
    clocks: &mut Clocks,
    input: &mut Input,
    body: &mut RequestBody,
) -> Result<Tended, Fault> {
    loop {
        tokio::select! {
            fed = feed(stdin, input, body) => match fed? {
                Fed::Moved => clocks.body_moved(),
                Fed::HalfClosed => return Ok(Tended::HalfClosed),
            },
            never = errors.drain() => match never {},
            fault = clocks.ring() => return Err(fault),
            () = process.exited_for(EXIT_GRACE) => return Ok(Tended::Exited),
        }
    }
}

enum Fed {
    Moved,
    HalfClosed,
}

/// Moves a piece of the request body to standard input; without one to move, watches the client.
async fn feed(
    stdin: &mut Option<Sock>,
    input: &mut Input,
    body: &mut RequestBody,
) -> Result<Fed, Fault> {
    match body.next(&mut input.buf)? {
        Next::More => input.fill_body().await.map(|()| Fed::Moved),
        Next::End => {
            *stdin = None;
            input.watch(body).await.map(|()| Fed::HalfClosed)
        }
        Next::Data(n) => {
            let Some(pipe) = stdin else {
                // The program reads no more: what still comes is taken and dropped.
                body.take(&mut input.buf, n);
                return Ok(Fed::Moved);
            };
            let data = [IoSlice::new(&input.buf.bytes()[..n])];
            let written = tokio::select! {
                biased;
                written = pipe.write(&data) => written,
                closed = watch_unread(input.sock.as_deref(), &mut input.half_closed, input.wire) => {
                    return closed.map(|()| Fed::HalfClosed);
                }
            };
            match written {
                Ok(n) => body.take(&mut input.buf, n),
                // EPIPE: the program closed its standard input.
                Err(_) => *stdin = None,
            }
            Ok(Fed::Moved)
        }
    }
}
