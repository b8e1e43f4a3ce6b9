//! Prints the response on standard output as it comes, and remarks about it on standard error.

use std::{
    io::{self, Write},
    time::Duration,
};

use galgo_handlers::status::fault_hint;
use galgo_proto::status::reason;
use galgo_service::{
    body::{Body, Output, Response},
    fault::Fault,
    log::access::AccessEntry,
    request::Request,
};
use galgo_spawn::words::describe_status;
use tokio::sync::oneshot;

use crate::command::screen::{Screen, escape_lines};

/// Prints one response.
#[derive(Debug)]
pub(super) struct Printer {
    /// Only the body goes to standard output.
    body_only: bool,
    time: bool,
    /// Whether the response head is printed: an error from now on cuts the response.
    begun: bool,
    /// Escapes text for a terminal on standard output.
    screen: Screen,
    /// If the program starts warm: the time that its template took to load, before the request began.
    pub(super) loaded: Option<Duration>,
}

/// The reason why a response is incomplete.
#[derive(Debug)]
pub(super) enum Incomplete {
    /// An error, in the server's words.
    Fault(Fault),
    /// Standard output takes no more.
    Output(io::Error),
}

impl From<Fault> for Incomplete {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for Incomplete {
    fn from(e: io::Error) -> Self {
        Self::Output(e)
    }
}

impl Printer {
    pub(super) fn new(body_only: bool, time: bool) -> Self {
        Self {
            body_only,
            time,
            begun: false,
            screen: Screen::for_stream(&io::stdout()),
            loaded: None,
        }
    }

    /// Prints a response and waits for the program to end.
    pub(super) async fn print_response(
        &mut self,
        request: &mut Request<'_>,
        mut response: Response,
    ) -> Result<(), Incomplete> {
        let Body::Stream(output) = std::mem::replace(&mut response.body, Body::Empty) else {
            return Ok(self.print_head(&response, None)?); // INVARIANT: programs answer with a program's body
        };
        let mut output = *output;
        request.entry.borrow_mut().status = response.status;
        if !output.nph {
            self.print_head(&response, output.content_length)?;
        }
        self.begun = true;
        let room = match () {
            () if output.nph => None,
            () if request.is_bodiless(response.status) || output.discard => Some(0),
            () => output.content_length,
        };
        // A response to HEAD promises the length of the body that GET would get.
        let promised = room.filter(|_| !request.is_bodiless(response.status));
        let printed = self.print_body(request, &mut output, room).await;
        let printed = printed.and_then(|sent| {
            request.entry.borrow_mut().bytes = sent;
            Ok(promised.map_or(Ok(()), |n| output.check_sent_length(n, sent))?)
        });
        let (tell, told) = oneshot::channel();
        let done = Box::new(move |exit| {
            let _ = tell.send(exit);
        });
        match &printed {
            Ok(()) => output.producer.finish(done),
            Err(why) => {
                let client_gone = matches!(why, Incomplete::Output(_));
                output.producer.abandon(client_gone, done);
            }
        }
        let exit = told.await.ok().flatten();
        let mut entry = request.entry.borrow_mut();
        entry.exit = exit;
        entry.total = request.began.elapsed();
        printed
    }

    fn print_head(&mut self, response: &Response, length: Option<u64>) -> io::Result<()> {
        let phrase = response.reason.as_deref();
        let phrase = phrase.unwrap_or_else(|| reason(response.status));
        let mut text = format!("HTTP/1.1 {} {phrase}\n", response.status).into_bytes();
        for (name, value) in response.fields.iter() {
            text.extend([name, b": ", value, b"\n"].concat());
        }
        if let Some(n) = length {
            text.extend(format!("Content-Length: {n}\n").into_bytes());
        }
        text.push(b'\n');
        if !self.body_only {
            return write_stdout(&self.screen.escape_chunk(&text));
        }
        let mut screen = Screen::for_stream(&io::stderr());
        io::stderr().write_all(&screen.escape_chunk(&text))
    }

    /// Prints output as it comes, at most `room` bytes. Returns how many bytes were printed.
    async fn print_body(
        &mut self,
        request: &mut Request<'_>,
        output: &mut Output,
        room: Option<u64>,
    ) -> Result<u64, Incomplete> {
        let mut sent = 0;
        loop {
            let last = output.producer.has_output_ended();
            let killed = match room {
                None if last => output.producer.truncation_fault().await,
                _ => None,
            };
            let mut out = std::mem::take(output.producer.pending_output());
            out.join_parts();
            let left = room.map_or(usize::MAX, |n| {
                usize::try_from(n - sent).unwrap_or(usize::MAX)
            });
            output.excess |= out.len() > left && !output.discard;
            let piece = &out.first_part()[..out.len().min(left)];
            let client = &mut *request.client;
            let text = self.screen.escape_chunk(piece);
            let printing = async { Ok(write_stdout(&text)) };
            output
                .producer
                .produce_while_sending(client, printing)
                .await??;
            sent += piece.len() as u64;
            drop(out);
            if let Some(fault) = killed {
                return Err(fault.into());
            }
            if last || output.excess {
                write_stdout(&self.screen.escape_rest())?;
                return Ok(sent);
            }
            let client = &mut *request.client;
            output.producer.next_event(client).await?;
        }
    }

    /// Reports that the server would answer with another path instead (RFC 3875, 6.2.2).
    pub(super) fn local_redirect(&mut self, location: &str) -> Result<(), Incomplete> {
        let text = format!("local redirect to {location}\n");
        if self.body_only {
            eprint!("{}", escape_lines(text));
        } else {
            write_stdout(&self.screen.escape_chunk(text.as_bytes()))?;
        }
        eprintln!("galgo: the server answers with this page; the client sees no redirect");
        Ok(())
    }

    /// Reports errors, times and memory. Returns the exit code.
    pub(super) fn report_outcome(&self, request: &Request<'_>, done: Result<(), Incomplete>) -> u8 {
        let entry = request.entry.borrow();
        let code = u8::from(done.is_err());
        match (done, entry.exit.map(|e| e.status)) {
            (Err(Incomplete::Fault(fault)), _) => self.print_fault(&fault),
            (Err(Incomplete::Output(e)), _) if e.kind() != io::ErrorKind::BrokenPipe => {
                eprintln!("galgo: standard output: {e}");
            }
            (Ok(()), Some(status)) if self.begun && !status.success() => {
                let how = describe_status(status);
                eprintln!("galgo: note: the response is valid, yet the program ended {how}");
            }
            _ => {}
        }
        if self.time {
            if let Some(took) = self.loaded {
                eprintln!("warm: loaded in {:.1} ms, once; then", to_millis(took));
            }
            print_times(&entry, request.began.elapsed());
        }
        code
    }

    fn print_fault(&self, fault: &Fault) {
        if self.begun {
            eprintln!("galgo: the response is cut: {}", escape_lines(fault));
        } else {
            let status = fault.status();
            eprintln!(
                "galgo: {status} {}: {}",
                reason(status),
                escape_lines(fault)
            );
        }
        let hint = fault_hint(fault);
        if !hint.is_empty() {
            eprintln!("galgo: hint: {hint}");
        }
    }
}

fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Prints the times and the memory of the request.
fn print_times(entry: &AccessEntry, elapsed: Duration) {
    let total = match entry.total {
        Duration::ZERO => elapsed,
        total => total,
    };
    eprintln!(
        "start {:.1} ms, first byte {:.1} ms, total {:.1} ms",
        to_millis(entry.start),
        to_millis(entry.first_byte),
        to_millis(total)
    );
    if let Some(exit) = &entry.exit {
        eprintln!(
            "user {:.1} ms, system {:.1} ms, peak memory {:.1} MiB",
            to_millis(exit.user),
            to_millis(exit.system),
            exit.max_rss as f64 / f64::from(1 << 20)
        );
    }
}

fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
