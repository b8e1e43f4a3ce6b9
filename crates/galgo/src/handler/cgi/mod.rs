//! Programs: a process, or an instance of a module, for each request.
//!
//! 1. take in the body, where it goes to a file  2. wait for a place  3. start  4. read its head
//! 5. document, redirect, or its own words (NPH)

mod pipes;
mod start;

use std::{rc::Rc, sync::Arc};

use galgo_proto::{
    Parsed,
    cgi::{Kind, Reply, ReplyBody, ReplyError, ReplyLimits, ReplyScan, nph},
    h1::{BodyLen, Head},
};
use galgo_spawn::{Exit, Status};
use tokio::time::Instant;

use super::{Answer, handover, spool};
use crate::{
    admission::Permit,
    body::{Body, Output, Response},
    config::{BodyMode, Cgi, Route},
    conn::Request,
    fault::Fault,
    log::Source,
    pool,
    relay::{
        process::how,
        program::{Program, Turn},
    },
    route::Found,
    worker::Worker,
};

/// Answers a request by running `script`, of `route`.
pub async fn answer(
    worker: &Rc<Worker>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    route: &Arc<Route>,
    cgi: &Cgi,
    script: Found<'_>,
) -> Result<Answer, Fault> {
    if script.nph && !request.input.wire.is_http() {
        return Err(Fault::Refused(
            "an nph- program speaks HTTP to its client, and there is a front server between them"
                .into(),
        ));
    }
    request.body.limit(cgi.options.max_body)?;
    // A local redirect's request has no body, whatever the one before it had.
    let mut run = Run {
        worker,
        request,
        head,
        route,
        cgi,
        script,
    };
    let file = match cgi.options.body {
        BodyMode::File if head.body != BodyLen::None => Some(spool::spool(run.request).await?),
        _ => None,
    };
    let module = run.module().await?;
    let permit = run.place().await?;
    let program = run.start(file, module, permit).await?;
    run.reply(program).await
}

/// One program about to answer one request.
struct Run<'a, 'r, 'c> {
    worker: &'a Rc<Worker>,
    request: &'a mut Request<'r>,
    head: &'a Rc<Head>,
    route: &'c Arc<Route>,
    cgi: &'c Cgi,
    script: Found<'a>,
}

impl Run<'_, '_, '_> {
    /// Waits for a place among the running programs; a client that leaves meanwhile is noticed.
    async fn place(&mut self) -> Result<Permit, Fault> {
        let began = Instant::now();
        let server = &self.worker.server;
        let admit = server.admission.admit(server.places(self.route));
        let mut admit = std::pin::pin!(admit);
        let permit = loop {
            let input = &mut *self.request.input;
            tokio::select! {
                biased;
                permit = &mut admit => break permit?,
                left = crate::conn::input::watch_unread(input.sock.as_deref(), &mut input.half_closed, input.wire) => {
                    left?;
                }
            }
        };
        self.request.entry.borrow_mut().queue = began.elapsed();
        Ok(permit)
    }

    fn source(&self) -> Source {
        let name = String::from_utf8_lossy(self.script.script_name);
        Source::new(
            self.worker.server.logs.error.clone(),
            self.request.id(),
            &name,
        )
    }

    /// Reads the response head, and decides what becomes of the rest.
    async fn reply(&mut self, mut program: Program) -> Result<Answer, Fault> {
        self.request.send_continue();
        if self.request.input.half_closed {
            self.request.probe();
        }
        let reply = match self.script.nph {
            true => self.own_words(&mut program).await,
            false => self.head(&mut program).await,
        };
        match reply {
            Ok(Reply {
                kind: Kind::LocalRedirect(location),
                ..
            }) => {
                self.end(program);
                Ok(Answer::Local(location))
            }
            Ok(reply) => self.document(program, reply).await,
            Err(Trouble::Reply(e)) => Err(self.bad_reply(program, &e).await),
            Err(Trouble::Fault(fault)) => {
                self.request.stderr = program.stderr_tail();
                let client_left = matches!(fault, Fault::Gone(_));
                program.abandon(client_left, |_exit| {});
                Err(fault)
            }
        }
    }

    async fn head(&mut self, program: &mut Program) -> Result<Reply, Trouble> {
        let limits = ReplyLimits {
            bytes: self.cgi.options.max_reply_head,
            ..Default::default()
        };
        let mut scan = ReplyScan::default();
        let (reply, used) = loop {
            match scan.step(&program.out, &limits)? {
                Parsed::Complete(reply, used) => break (reply, used),
                Parsed::Partial if program.output_ended() => {
                    return Err(scan.ended(&program.out).into());
                }
                Parsed::Partial => self.turn(program).await?,
            }
        };
        program.head_done();
        program.out.drain(..used);
        if reply.body() == ReplyBody::Refuse && !handover::asked(&self.cgi.handover, &reply) {
            self.some_output(program).await?;
            if !program.out.is_empty() {
                return Err(ReplyError::UntypedBody.into());
            }
        }
        Ok(reply)
    }

    /// A program that writes the whole response itself. Its first bytes are looked at for the log only.
    async fn own_words(&mut self, program: &mut Program) -> Result<Reply, Trouble> {
        self.some_output(program).await?;
        if program.out.is_empty() {
            return Err(ReplyError::Nothing.into());
        }
        program.head_done();
        Ok(Reply {
            kind: Kind::Document,
            status: nph::status(&program.out).unwrap_or(200),
            reason: None,
            fields: galgo_proto::Fields::new(),
            content_length: None,
            content_type: true,
        })
    }

    /// Waits for a byte of output, or its end.
    async fn some_output(&mut self, program: &mut Program) -> Result<(), Trouble> {
        while program.out.is_empty() && !program.output_ended() {
            self.turn(program).await?;
        }
        Ok(())
    }

    /// One turn of the program.
    async fn turn(&mut self, program: &mut Program) -> Result<(), Trouble> {
        if program.turn(self.request.input, self.request.body).await? == Turn::HalfClosed {
            self.request.probe();
        }
        Ok(())
    }

    async fn document(&mut self, mut program: Program, mut reply: Reply) -> Result<Answer, Fault> {
        let passed_on = self.request.link.passed_on;
        match handover::answer(&self.cgi.handover, self.head, &mut reply, passed_on) {
            Ok(None) => {}
            Ok(Some(response)) => {
                self.end(program);
                return Ok(Answer::Response(response));
            }
            Err(fault) => {
                self.request.stderr = program.stderr_tail();
                self.end(program);
                return Err(fault);
            }
        }
        program.drain_ready(pool::SIZE);
        if program.output_ended()
            && let Some(fault) = program.killed().await
        {
            self.request.stderr = program.stderr_tail();
            self.end(program);
            return Err(fault);
        }
        let output = Output {
            program,
            content_length: reply.content_length,
            nph: self.script.nph,
            discard: !self.script.nph && reply.body() == ReplyBody::Discard,
            excess: false,
            source: self.source(),
        };
        Ok(Answer::Response(Response {
            status: reply.status,
            reason: reply.reason,
            fields: reply.fields,
            body: Body::Program(Box::new(output)),
        }))
    }

    /// What the program did wrong, together with how it ended.
    async fn bad_reply(&mut self, mut program: Program, e: &ReplyError) -> Fault {
        let ended = program.output_ended();
        let (exit, stderr) = program.post_mortem(!ended).await;
        self.request.entry.borrow_mut().exit = exit;
        self.request.stderr = stderr;
        let how = match exit.map(|e| e.status) {
            Some(Status::Code(0)) | None => String::new(),
            Some(_) if !ended => String::new(),
            Some(status @ Status::Code(_)) => format!("; it exited {}", how(status)),
            Some(status @ Status::Signal(_)) => format!("; it was ended {}", how(status)),
        };
        Fault::Script(format!("{e}{how}"))
    }

    /// Ends a program whose response is complete.
    fn end(&self, program: Program) {
        let entry = self.request.entry.clone();
        program.finish(move |exit: Option<Exit>| entry.borrow_mut().exit = exit);
    }
}

/// Why there is no response head.
enum Trouble {
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
