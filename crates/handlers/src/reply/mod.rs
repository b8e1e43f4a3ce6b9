//! Reads the response of a CGI program, or of an application that answers in the same form.
//!
//! 1. Read the head.
//! 2. Answer with the document, follow the redirect, or pass the program's own response on (NPH).

use std::{future::poll_fn, pin::pin, task::Poll};

use galgo_io::pool;
use galgo_proto::{
    Fields, Parsed,
    cgi::{Reply, ReplyBody, ReplyError, ReplyKind, ReplyLimits, ReplyScan, nph},
    cond::{self, CondOutcome, Validators},
    fields::is_one_of,
    h1::{Head, Method},
};
use galgo_service::{
    body::{Body, Output, Response},
    client::UnreadAnswers,
    fault::Fault,
    log::{Level, LogSource},
    producer::{OutputEvent, Producer},
    request::Request,
};
use galgo_spawn::{Exit, Status, words::describe_status};
use tokio::time::timeout;

use crate::{
    backend::Backend,
    context::{Answer, Context},
    files::{Files, waits::send_for_program},
    program_settings::CgiOptions,
    relay::program::LINGER,
    sendfile::{self, Sendfile},
    status,
};

const UNTYPED: &str = "the response has a document but no Content-Type, so browsers guess the type; \
    print \"Content-Type: text/html\", or the type of the document, before the empty line (logged once for each program)";

pub(super) struct Answering<'a, 'r, 'c> {
    pub(super) cx: Context<'a>,
    pub(super) request: &'a mut Request<'r>,
    pub(super) options: &'c CgiOptions,
    pub(super) sendfile: &'c Sendfile,
    pub(super) head: &'c Head,
    /// The program writes the HTTP response itself.
    pub(super) nph: bool,
    /// The client asks for another protocol on its connection, and the program may get that connection.
    pub(super) upgrades: bool,
    /// Names the program in the log.
    pub(super) source: LogSource,
}

impl Answering<'_, '_, '_> {
    /// Reads the response head, and decides how to handle the rest.
    pub(super) async fn read_reply(&mut self, mut program: Backend) -> Result<Answer, Fault> {
        self.request.client.send_continue();
        if self.request.client.has_half_closed() {
            self.request.client.probe_connection();
        }
        // A client of another protocol than HTTP/1 cannot get NPH output: its answer needs a parsed head.
        let own_words = self.nph && self.request.client.speaks_http();
        let reply = if own_words {
            self.read_nph_output(&mut program).await
        } else {
            self.read_head(&mut program).await
        };
        self.nph = own_words;
        self.make_answer(program, reply).await
    }

    /// Makes the answer of a response whose head was read.
    pub(super) async fn make_answer(
        &mut self,
        program: Backend,
        reply: Result<Reply, Trouble>,
    ) -> Result<Answer, Fault> {
        match reply {
            Ok(Reply {
                kind: ReplyKind::LocalRedirect(location),
                ..
            }) => {
                self.finish_program(program);
                Ok(Answer::Local(location))
            }
            Ok(reply) => self.answer_with_document(program, reply).await,
            Err(Trouble::Reply(e)) => Err(Box::pin(self.reply_fault(program, &e)).await),
            Err(Trouble::Fault(fault)) => {
                self.request.stderr = program.stderr_tail();
                let client_left = matches!(fault, Fault::Gone(_));
                program.abandon(client_left, |_exit| {});
                Err(fault)
            }
        }
    }

    async fn read_head(&mut self, program: &mut Backend) -> Result<Reply, Trouble> {
        let reply = self.scan_head(program).await?;
        self.warn_untyped(program, &reply).await?;
        Ok(reply)
    }

    pub(super) async fn scan_head(&mut self, program: &mut Backend) -> Result<Reply, Trouble> {
        let limits = ReplyLimits {
            bytes: self.options.max_reply_head,
            upgrade: self.upgrades,
            status_line: self.nph,
            ..Default::default()
        };
        let mut scan = ReplyScan::default();
        loop {
            if let Parsed::Complete(reply, used) =
                scan.scan_head(program.pending_output().first_part(), &limits)?
            {
                program.head_done();
                program.pending_output().consume(used);
                return Ok(reply);
            }
            if program.pending_output().join_parts() {
                continue;
            }
            if program.has_output_ended() {
                // A connection's error tells more than the missing part of the head.
                return Err(match program.verdict() {
                    Some(fault) => fault.into(),
                    None => scan
                        .explain_incomplete(program.pending_output().first_part())
                        .into(),
                });
            }
            self.await_next_output(program).await?;
        }
    }

    /// Tells the author of a program, once, that its documents have no type.
    pub(super) async fn warn_untyped(
        &mut self,
        program: &mut Backend,
        reply: &Reply,
    ) -> Result<(), Trouble> {
        if reply.body_handling() == ReplyBody::SendUntyped
            && !sendfile::asks_for_file(self.sendfile, reply)
        {
            self.await_some_output(program).await?;
            if program.pending_len() > 0 && self.cx.shared.untyped.is_new(self.source.script()) {
                self.source.write(Level::Warn, UNTYPED);
            }
        }
        Ok(())
    }

    /// Prepares the response of a program that writes it whole. Its first bytes are examined for the log only.
    async fn read_nph_output(&mut self, program: &mut Backend) -> Result<Reply, Trouble> {
        self.await_some_output(program).await?;
        while self.upgrades
            && !program.has_output_ended()
            && !has_status_line(program.pending_output().first_part())
        {
            self.await_next_output(program).await?;
            program.pending_output().join_parts();
        }
        if program.pending_len() == 0 {
            return Err(ReplyError::Nothing.into());
        }
        program.head_done();
        Ok(Reply {
            kind: ReplyKind::Document,
            status: nph::parse_nph_status(program.pending_output().first_part()).unwrap_or(200),
            reason: None,
            fields: Fields::new(),
            content_length: None,
            content_type: true,
        })
    }

    /// Waits for a byte of output, or its end.
    async fn await_some_output(&mut self, program: &mut Backend) -> Result<(), Trouble> {
        while program.pending_len() == 0 && !program.has_output_ended() {
            self.await_next_output(program).await?;
        }
        Ok(())
    }

    /// Waits for the program's next output.
    pub(super) async fn await_next_output(&mut self, program: &mut Backend) -> Result<(), Trouble> {
        let event = match self.request.client.unread_answers() {
            None => program.await_event(self.request.client).await?,
            Some(unread) => Box::pin(self.event_with_room(program, &*unread)).await?,
        };
        if event == OutputEvent::HalfClosed {
            self.request.client.probe_connection();
        }
        Ok(())
    }

    /// Waits for the program's next output while the client has room for it. Many programs may print at the same moment.
    async fn event_with_room(
        &mut self,
        program: &mut Backend,
        unread: &dyn UnreadAnswers,
    ) -> Result<OutputEvent, Fault> {
        loop {
            let client = &mut *self.request.client;
            let event = {
                let mut next = pin!(program.await_event(client));
                poll_fn(|cx| {
                    if unread.is_full() {
                        Poll::Ready(None)
                    } else {
                        next.as_mut().poll(cx).map(Some)
                    }
                })
                .await
            };
            if let Some(event) = event {
                unread.set_held_bytes(program.pending_len());
                return event;
            }
            let room = async {
                poll_fn(|cx| unread.poll_room(cx)).await;
                Ok(())
            };
            (program as &mut dyn Producer)
                .produce_while_sending(client, room)
                .await?;
        }
    }

    /// Answers with a file in place of the program's output, or explains why there is no file.
    async fn answer_with_file(
        &mut self,
        program: Backend,
        mut reply: Reply,
        file: Result<(&Files, Vec<u8>), Fault>,
    ) -> Result<Answer, Fault> {
        let (cx, request) = (self.cx, &*self.request);
        let send = async |asked: (&Files, &Head, &[u8]), media| {
            send_for_program(cx, request, asked, media).await
        };
        let sent = match file {
            Ok(file) => sendfile::answer_with_file(file, self.head, &mut reply, send).await,
            Err(fault) => Err(fault),
        };
        if sent.is_err() {
            self.request.stderr = program.stderr_tail();
        }
        self.finish_program(program);
        sent.map(Answer::Response)
    }

    async fn answer_with_document(
        &mut self,
        mut program: Backend,
        mut reply: Reply,
    ) -> Result<Answer, Fault> {
        if self.upgrades {
            let granted = reply.status == 101;
            program.upgrade(granted);
            if granted {
                self.request.client.upgrade();
                return Ok(self.stream_response(program, reply));
            }
        }
        let passed_on = self.request.link.passed_on;
        if let Some(file) =
            sendfile::take_requested_file(self.sendfile, &mut reply, passed_on).transpose()
        {
            return Box::pin(self.answer_with_file(program, reply, file)).await;
        }
        match conditional(
            self.head,
            &mut reply.status,
            &mut reply.fields,
            DecidedBy::Program,
        ) {
            _ if self.nph => {}
            CondOutcome::Failed => {
                self.finish_program(program);
                let failed = status::add_page(self.cx, self.request, Response::new(412), None);
                return Ok(Answer::Response(failed));
            }
            CondOutcome::NotModified => (reply.reason, reply.content_length) = (None, None),
            CondOutcome::Proceed => {}
        }
        program.drain_ready(pool::SIZE);
        if program.has_output_ended()
            && let Some(fault) = program.output_fault().await
        {
            self.request.stderr = program.stderr_tail();
            self.finish_program(program);
            return Err(fault);
        }
        if self.may_be_blank(&reply)
            && let Some(fault) = Box::pin(self.explain_blank_page(&mut program)).await
        {
            let (exit, stderr) = program.post_mortem(false).await;
            self.request.entry.borrow_mut().exit = exit;
            self.request.stderr = stderr;
            return Err(fault);
        }
        Ok(self.stream_response(program, reply))
    }

    /// Returns the response whose body is the program's output.
    fn stream_response(&self, program: Backend, reply: Reply) -> Answer {
        let output = Output {
            producer: Box::new(program),
            content_length: reply.content_length,
            nph: self.nph,
            discard: !self.nph && reply.body_handling() == ReplyBody::Discard,
            excess: false,
            source: self.source.clone(),
            spool: self.cx.shared.spool.share_of(self.request.peer()),
        };
        Answer::Response(Response {
            status: reply.status,
            reason: reply.reason,
            fields: reply.fields,
            body: Body::Stream(Box::new(output)),
        })
    }

    /// Returns whether a developer would see the reason for a blank page.
    fn may_be_blank(&self, reply: &Reply) -> bool {
        let shown = !self.nph && reply.status == 200 && self.head.method != Method::Head;
        shown && status::shows_cause(self.cx.shared, self.request)
    }

    /// Finds out for a developer why a page is blank: the program failed after its head, and printed nothing more. The
    /// program has a moment to print something. For all other clients the head is sent at once.
    async fn explain_blank_page(&mut self, program: &mut Backend) -> Option<Fault> {
        let output = timeout(LINGER, self.await_some_output(program)).await;
        if let Ok(Err(Trouble::Fault(fault))) = output {
            return Some(fault);
        }
        if program.pending_len() > 0 || !program.has_output_ended() {
            return None;
        }
        match program.wait_for_exit().await.map(|exit| exit.status) {
            Some(status @ Status::Code(1..)) => Some(Fault::Script(format!(
                "the program printed a head but no document, and ended {}",
                describe_status(status)
            ))),
            _ => None,
        }
    }

    /// Returns the fault for a wrong response, together with how the program ended.
    async fn reply_fault(&mut self, mut program: Backend, e: &ReplyError) -> Fault {
        if let ReplyError::Line { .. } = e {
            self.show_output(&mut program).await;
        }
        let ended = program.has_output_ended();
        let (exit, stderr) = program.post_mortem(!ended).await;
        // Processes that the program has left running get their time, as after a response.
        if let Backend::Program(program) = program {
            program.finish(|_exit| {});
        }
        self.request.entry.borrow_mut().exit = exit;
        self.request.stderr = stderr;
        let how = match exit.map(|e| e.status) {
            Some(Status::Code(0)) | None => String::new(),
            Some(_) if !ended => String::new(),
            Some(status @ Status::Code(_)) => format!("; it exited {}", describe_status(status)),
            Some(status @ Status::Signal(_)) => {
                format!("; it was killed {}", describe_status(status))
            }
        };
        Fault::Script(format!("{e}{how}"))
    }

    /// Logs the output of a program that printed no head. Like standard error it is for the author: most often it is a
    /// traceback.
    async fn show_output(&mut self, program: &mut Backend) {
        const MOST: usize = 64 << 10;
        let printed = async {
            while program.pending_len() < MOST && !program.has_output_ended() {
                self.await_next_output(program).await?;
            }
            Ok::<_, Trouble>(())
        };
        // A program that goes on for longer is ended.
        let _ = timeout(LINGER, printed).await;
        program.log_output();
    }

    /// Ends a program whose response is complete.
    pub(super) fn finish_program(&self, program: Backend) {
        let entry = self.request.entry.clone();
        program.finish(move |exit: Option<Exit>| entry.borrow_mut().exit = exit);
    }
}

/// Returns whether the status line is whole, or there is none.
fn has_status_line(output: &[u8]) -> bool {
    const LONGEST: usize = "HTTP/1.1 101 ".len();
    output.len() >= LONGEST || output.contains(&b'\n')
}

/// The side that decides the conditions on a document without a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecidedBy {
    /// The program, because it has seen the conditions.
    Program,
    /// The server, because the program has not seen the conditions.
    Server,
}

/// Makes a 304 of a document that the client already has (RFC 9110, 13.2). The program has named its version by ETag or
/// Last-Modified, and left the comparison to the server, as with Apache. The rest of its output is read and dropped. This
/// holds only for GET and HEAD: with any other method the program has already acted, whatever the comparison says now.
pub(super) fn conditional(
    head: &Head,
    status: &mut u16,
    fields: &mut Fields,
    by: DecidedBy,
) -> CondOutcome {
    let reads = matches!(head.method, Method::Get | Method::Head);
    if *status != 200 || !reads || !head.fields.has_any(&cond::FIELDS) {
        return CondOutcome::Proceed;
    }
    let said = |name| fields.first_value(name);
    let current = Validators {
        etag: said("etag").and_then(|tag| std::str::from_utf8(tag).ok()),
        modified: said("last-modified").and_then(cond::parse_date),
    };
    let has_version = current.etag.is_some() || current.modified.is_some();
    if !has_version && by == DecidedBy::Program {
        return CondOutcome::Proceed;
    }
    let outcome = cond::evaluate(&head.method, &head.fields, Some(current));
    if outcome == CondOutcome::NotModified {
        *status = 304;
        // 15.4.5: the response keeps only fields that a cache needs. The type is for the later steps, and not sent.
        fields.retain(|name, _| {
            let about = name
                .get(..8)
                .is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
            !about || is_one_of(name, &["content-location", "content-type"])
        });
    }
    outcome
}

pub(super) enum Trouble {
    Reply(ReplyError),
    Fault(Fault),
}

impl From<ReplyError> for Trouble {
    fn from(e: ReplyError) -> Self {
        Self::Reply(e)
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

#[cfg(test)]
mod tests;
