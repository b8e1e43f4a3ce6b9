//! Programs, cold: a process, or an instance of a module, for each request.
//!
//! 1. take in the body, where it goes to a file  2. wait for a place  3. start
//! 4. its response: see `reply`

use std::{
    ffi::CString,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    rc::Rc,
    sync::Arc,
};

use galgo_proto::{
    cgi::search,
    h1::{BodyLen, Head},
    vars::Sink,
};
use galgo_spawn::{EnvBlock, Stage, Start, StartError, inspect};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::time::Instant;

use super::{
    Answer,
    reply::{self, Answering},
    spool,
    variables::{self, Known},
};
use crate::{
    admission::Permit,
    config::{BodyMode, Cgi, Route},
    conn::Request,
    fault::Fault,
    log::Source,
    relay::{
        clock::Clocks,
        process::Running,
        program::{Program, Started},
        speaker::Speaker,
    },
    route::Found,
    sock::Sock,
    wasm,
    worker::Worker,
};

/// A program's file that is being written cannot be executed (ETXTBSY): tried again this often,
/// this far apart.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);

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
        cgi,
        script,
    };
    let file = match cgi.options.body {
        BodyMode::File if head.body != BodyLen::None => Some(spool::spool(run.request).await?),
        _ => None,
    };
    let module = run.module().await?;
    let permit = run.place(route).await?;
    let program = run.start(file, module, permit).await?;
    let answering = Answering {
        source: run.source(),
        nph: run.script.nph,
        options: &cgi.options,
        handover: &cgi.handover,
        head,
        request: run.request,
    };
    answering.reply(Speaker::Program(Box::new(program))).await
}

/// One program about to answer one request.
struct Run<'a, 'r, 'c> {
    worker: &'a Rc<Worker>,
    request: &'a mut Request<'r>,
    head: &'a Rc<Head>,
    cgi: &'c Cgi,
    script: Found<'a>,
}

impl Run<'_, '_, '_> {
    /// Waits for a place among the running programs; a client that leaves meanwhile is noticed.
    async fn place(&mut self, route: &Arc<Route>) -> Result<Permit, Fault> {
        let server = &self.worker.server;
        let admit = server.admission.admit(server.places(route));
        reply::wait_for(self.request, admit).await
    }

    fn source(&self) -> Source {
        let name = String::from_utf8_lossy(self.script.script_name);
        Source::new(
            self.worker.server.logs.error.clone(),
            self.request.id(),
            &name,
        )
    }

    /// The code of a module, compiled now where that has not been done; `None`: it is no module.
    async fn module(&mut self) -> Result<Option<wasm::Code>, Fault> {
        let wasm = &self.worker.server.wasm;
        if !self.script.module && (self.script.interpreter.is_some() || !wasm.begins(&self.script))
        {
            return Ok(None);
        }
        let longest = self.cgi.options.first_byte_timeout;
        let code = tokio::time::timeout(longest, wasm.code(&self.script));
        let mut code = std::pin::pin!(code);
        loop {
            let input = &mut *self.request.input;
            tokio::select! {
                biased;
                code = &mut code => {
                    let late = |_| Fault::Late("the module was not compiled within first_byte_timeout".into());
                    return code.map_err(late)?.map(Some);
                }
                left = crate::conn::input::watch_unread(input.sock.as_deref(), &mut input.half_closed, input.wire) => {
                    left?;
                }
            }
        }
    }

    /// Starts the process, or the instance.
    async fn start(
        &mut self,
        file: Option<(OwnedFd, u64)>,
        module: Option<wasm::Code>,
        permit: Permit,
    ) -> Result<Program, Fault> {
        let began = Instant::now();
        let length = match (&file, self.head.body) {
            (Some((_, n)), _) => Some(*n),
            (None, BodyLen::Length(n)) => Some(n),
            (None, BodyLen::None | BodyLen::Chunked) => None,
        };
        let env = self.environment(length)?;
        let clocks = Clocks::start(&self.cgi.options, "the program was ended");
        let pipes = Pipes::new(file.map(|(fd, _)| fd), self.head.body).map_err(|e| capacity(&e))?;
        let running = match module {
            Some(code) => {
                let launch = wasm::Launch {
                    code,
                    cgi: self.cgi,
                    script_name: self.script.script_name,
                    env: &env,
                    stdio: pipes.theirs(&self.worker.null),
                };
                self.worker.server.wasm.launch(launch).await?
            }
            None => Running::Native(self.execute(&pipes, &env).await?),
        };
        let Pipes { ours, .. } = pipes;
        self.request.entry.borrow_mut().start = began.elapsed();
        let io = |e: std::io::Error| Fault::Internal(format!("registering a pipe: {e}"));
        let options = &self.cgi.options;
        Ok(Program::new(Started {
            running,
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

    /// Executes the program. A file that is being written is tried again for a moment.
    async fn execute(&self, pipes: &Pipes, env: &EnvBlock) -> Result<galgo_spawn::Child, Fault> {
        let args = self.arguments()?;
        let mut tries = 0;
        loop {
            match self.start_once(pipes, &args, env) {
                Err(e) if e.is_busy() && tries < BUSY_TRIES => {
                    tries += 1;
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                started => return started.map_err(|e| self.not_started(&e)),
            }
        }
    }

    fn start_once(
        &self,
        pipes: &Pipes,
        args: &[CString],
        env: &EnvBlock,
    ) -> Result<galgo_spawn::Child, StartError> {
        let options = &self.cgi.options;
        self.worker.spawner.borrow_mut().start(&Start {
            path: &args[0],
            args,
            env,
            dir: &self.script.dir,
            stdio: pipes.theirs(&self.worker.null),
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
        let known = Known {
            script_name: self.script.script_name,
            path_info: self.script.path_info,
            path_translated: self.script.path_translated.as_deref(),
            script_filename: self.script.script_filename.as_bytes(),
            document_root: self.cgi.document_root.as_os_str().as_bytes(),
            env: &self.cgi.env,
            options: &self.cgi.options,
            content_length,
        };
        if variables::put(self.worker, self.request, self.head, &known, &mut env)?.shellshock > 0 {
            variables::warn_shellshock(&self.source());
        }
        Ok(env.0)
    }

    fn not_started(&self, e: &StartError) -> Fault {
        let file = std::ffi::OsStr::from_bytes(self.script.script_filename.as_bytes());
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
    /// The program's ends; `null` is an empty standard input.
    fn theirs<'a>(&'a self, null: &'a OwnedFd) -> [BorrowedFd<'a>; 3] {
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
