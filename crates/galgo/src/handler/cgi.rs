//! Programs: a process for each request.
//!
//! 1. find the program  2. take in the body, where it goes to a file  3. wait for a place  4. start
//! 5. read its head  6. document, redirect, or its own words (NPH)

use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    rc::Rc,
    sync::Arc,
};

use galgo_proto::{
    Parsed,
    cgi::{Kind, Reply, ReplyBody, ReplyError, ReplyLimits, ReplyScan, nph, search},
    h1::{BodyLen, Head},
    vars::{self, Sink},
};
use galgo_spawn::{Child, EnvBlock, Exit, Stage, Start, StartError, Status, inspect};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::time::Instant;

use super::{Answer, spool};
use crate::{
    admission::Permit,
    body::{Body, Output, Response},
    config::{BodyMode, Cgi, Route, StartMode},
    conn::Request,
    fault::Fault,
    log::{Level, Source},
    pool,
    relay::{
        clock::Clocks,
        process::how,
        program::{Program, Started, Turn},
    },
    route::{self, Found, Match, Refusal},
    sock::Sock,
    warm::{self, Born, Setup},
    worker::Worker,
};

/// A program's file that is being written cannot be executed (ETXTBSY): tried again this often,
/// this far apart.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);

/// Answers a request by running the program it names.
pub async fn answer(
    worker: &Rc<Worker>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    found: &Match<'_, '_>,
    cgi: &Cgi,
) -> Result<Answer, Fault> {
    // Whoever is turned away must not cost those who are served: no program is looked for.
    worker.server.admission.refuse_if_full()?;
    let path = &head.target.path;
    let script = route::program(cgi, &found.route.path, path).map_err(|refusal| match refusal {
        Refusal::NotFound => Fault::NotFound,
        Refusal::Forbidden(why) => Fault::Refused(why),
    })?;
    request.body.limit(cgi.options.max_body)?;
    // A local redirect's request has no body, whatever the one before it had.
    let mut run = Run {
        worker,
        request,
        head,
        route: found.route,
        cgi,
        script,
    };
    let file = match cgi.options.body {
        BodyMode::File if head.body != BodyLen::None => Some(spool::spool(run.request).await?),
        _ => None,
    };
    let permit = run.place().await?;
    let program = run.start(file, permit).await?;
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
                left = crate::conn::input::watch_unread(input.sock.as_deref(), &mut input.half_closed) => {
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

    /// Starts the process.
    async fn start(
        &mut self,
        file: Option<(OwnedFd, u64)>,
        permit: Permit,
    ) -> Result<Program, Fault> {
        let began = Instant::now();
        let length = match (&file, self.head.body) {
            (Some((_, n)), _) => Some(*n),
            (None, BodyLen::Length(n)) => Some(n),
            (None, BodyLen::None | BodyLen::Chunked) => None,
        };
        let env = self.environment(length)?;
        let args = self.arguments()?;
        let clocks = Clocks::start(&self.cgi.options);
        let pipes = Pipes::new(file.map(|(fd, _)| fd), self.head.body).map_err(|e| capacity(&e))?;
        let (child, born) = match self.warm(&pipes, &args, &env).await {
            Some((child, born)) => (child, Some(born)),
            None => (self.cold(&pipes, &args, &env).await?, None),
        };
        let Pipes { ours, .. } = pipes;
        self.request.entry.borrow_mut().start = began.elapsed();
        let io = |e: std::io::Error| Fault::Internal(format!("registering a pipe: {e}"));
        let options = &self.cgi.options;
        Ok(Program::new(Started {
            child,
            born,
            stdin: ours.stdin.map(Sock::writer).transpose().map_err(io)?,
            stdout: Sock::reader(ours.stdout).map_err(io)?,
            stderr: Sock::reader(ours.stderr).map_err(io)?,
            clocks,
            kill_grace: options.kill_grace,
            run_to_completion: options.run_to_completion,
            max_stderr: options.max_stderr,
            source: self.source(),
            permit,
        }))
    }

    /// A child of the program's template, where it has one.
    async fn warm(&self, pipes: &Pipes, args: &[CString], env: &EnvBlock) -> Option<(Child, Born)> {
        // Words of the query are arguments of one request, and a template has its own.
        let wordless = args.len() == 1 + usize::from(self.script.interpreter.is_some());
        if self.cgi.options.start == StartMode::Cold || !wordless {
            return None;
        }
        let setup = || self.setup(args);
        let ready = warm::child(self.worker, self.route, &self.script, setup).await?;
        let cpu = self.cgi.options.limits.cpu;
        ready.start(env, pipes.stdio(&self.worker.null), cpu).ok()
    }

    /// How a template of the program is started.
    fn setup(&self, args: &[CString]) -> Setup {
        let file = OsStr::from_bytes(self.script.script_filename.as_bytes());
        let mut env = Env(EnvBlock::default());
        self.constants(&mut env);
        Setup {
            args: args.to_vec(),
            env: env.0,
            dir: self.script.dir.clone(),
            file: file.into(),
            interpreter: self.script.interpreter.clone(),
            limits: self.cgi.options.limits,
            no_new_privs: self.cgi.options.no_new_privs,
        }
    }

    /// Executes the program.
    async fn cold(&self, pipes: &Pipes, args: &[CString], env: &EnvBlock) -> Result<Child, Fault> {
        let mut tries = 0;
        loop {
            match self.start_once(pipes, args, env) {
                Ok(child) => return Ok(child),
                Err(e) if e.is_busy() && tries < BUSY_TRIES => {
                    tries += 1;
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Err(e) => return Err(self.not_started(&e)),
            }
        }
    }

    fn start_once(
        &self,
        pipes: &Pipes,
        args: &[CString],
        env: &EnvBlock,
    ) -> Result<Child, StartError> {
        let options = &self.cgi.options;
        self.worker.spawner.borrow_mut().start(&Start {
            path: &args[0],
            args,
            env,
            dir: &self.script.dir,
            stdio: pipes.stdio(&self.worker.null),
            more: &[],
            limits: options.limits,
            no_new_privs: options.no_new_privs,
        })
    }

    /// argv: the program as named; an interpreter gets the script as its argument.
    fn arguments(&self) -> Result<Vec<CString>, Fault> {
        let script = self.script.script_filename.clone();
        if let Some(interpreter) = &self.script.interpreter {
            let interpreter = CString::new(interpreter.as_os_str().as_bytes())
                .map_err(|_| Fault::Internal("an interpreter's path holds a NUL".into()))?;
            return Ok(vec![interpreter, script]);
        }
        let mut args = vec![script];
        if self.cgi.options.query_args {
            let words = search::words(&self.head.method, self.head.target.query());
            args.extend(words.into_iter().filter_map(|w| CString::new(w).ok()));
        }
        Ok(args)
    }

    /// The whole environment: nothing of the server's own is in it.
    fn environment(&self, content_length: Option<u64>) -> Result<EnvBlock, Fault> {
        let mut env = Env(EnvBlock::default());
        self.constants(&mut env);
        let link = self.request.link;
        let connection = vars::Connection {
            remote_addr: if link.remote_ip.is_some() {
                &link.remote
            } else {
                ""
            },
            remote_port: link.remote_ip.map(|a| a.port()),
            server_addr: if link.local.is_some() {
                &link.local_text
            } else {
                ""
            },
            server_port: link.local.map_or(0, |a| a.port()),
            https: false,
        };
        vars::connection(&connection, &mut env);
        let id = self.request.id();
        let script = vars::Script {
            script_name: self.script.script_name,
            path_info: self.script.path_info,
            path_translated: self.script.path_translated.as_deref(),
            script_filename: self.script.script_filename.as_bytes(),
            document_root: self.cgi.document_root.as_os_str().as_bytes(),
            unique_id: id.as_str(),
            content_length,
            user: None,
            pass_authorization: self.cgi.options.pass_authorization,
            drop_shellshock: self.cgi.options.drop_shellshock,
        };
        let dropped = vars::request(self.head, &connection, &script, &mut env)
            .map_err(|_| Fault::Client(400, "two header fields become the same variable"))?;
        if dropped.shellshock > 0 {
            self.source().write(
                Level::Warn,
                "a header field that begins with `() {` was dropped (drop_shellshock)",
            );
        }
        Ok(env.0)
    }

    /// The variables that every request to this program has.
    fn constants(&self, env: &mut Env) {
        let server = vars::Server {
            software: concat!("galgo/", env!("CARGO_PKG_VERSION")),
            path: &self.worker.server.config.path,
        };
        vars::server(&server, env);
        for (name, value) in &self.cgi.env {
            env.put(name.as_bytes(), value.as_bytes());
        }
    }

    fn not_started(&self, e: &StartError) -> Fault {
        let file = OsStr::from_bytes(self.script.script_filename.as_bytes());
        match (e.stage, &self.script.interpreter) {
            (Stage::Environment, _) => Fault::Client(
                431,
                "a header field is longer than any variable of a program may be",
            ),
            (Stage::Clone, _) => Fault::Busy("the system could not create another process"),
            (_, Some(interpreter)) => {
                let path = &self.worker.server.config.path;
                let words = inspect::diagnose(interpreter, path, e);
                Fault::Script(format!(
                    "its interpreter {}: {words}",
                    interpreter.display()
                ))
            }
            (_, None) => {
                let path = &self.worker.server.config.path;
                Fault::Script(inspect::diagnose(file.as_ref(), path, e))
            }
        }
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
        if reply.body() == ReplyBody::Refuse {
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

    async fn document(&mut self, mut program: Program, reply: Reply) -> Result<Answer, Fault> {
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

/// An environment as a sink of variables.
struct Env(EnvBlock);

impl Sink for Env {
    fn put(&mut self, name: &[u8], value: &[u8]) {
        self.0.put(name, value);
    }
}

/// The three standard streams: the program's ends, and ours.
struct Pipes {
    /// `None`: nothing, /dev/null.
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    ours: Ends,
}

struct Ends {
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Pipes {
    fn new(file: Option<OwnedFd>, body: BodyLen) -> std::io::Result<Self> {
        let (stdin, to_stdin) = match (file, body) {
            (Some(file), _) => (Some(file), None),
            (None, BodyLen::None) => (None, None),
            (None, _) => {
                let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
                rustix::io::ioctl_fionbio(&ours, true)?;
                (Some(theirs), Some(ours))
            }
        };
        let (from_stdout, stdout) = outward()?;
        let (from_stderr, stderr) = outward()?;
        let ours = Ends {
            stdin: to_stdin,
            stdout: from_stdout,
            stderr: from_stderr,
        };
        Ok(Self {
            stdin,
            stdout,
            stderr,
            ours,
        })
    }
}

impl Pipes {
    /// The program's ends; `null` where it gets no body.
    fn stdio<'p>(&'p self, null: &'p OwnedFd) -> [BorrowedFd<'p>; 3] {
        let stdin = self.stdin.as_ref().unwrap_or(null);
        [stdin.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }
}

/// A pipe from the program to us. Only our end is non-blocking: programs do not expect that of theirs.
fn outward() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

fn capacity(_e: &std::io::Error) -> Fault {
    Fault::Busy("no descriptors are left for another program")
}
