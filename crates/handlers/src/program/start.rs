//! A process for the request: its arguments and environment, from a template or executed.

use std::{
    ffi::{CString, OsStr},
    io,
    os::unix::ffi::OsStrExt,
};

use galgo_io::{off_loop::off_loop, tick};
use galgo_proto::{cgi::search, h1::BodyLen, vars::Sink};
use galgo_service::{
    admission::Permit,
    fault::{Fault, is_shortage},
    spool::Stored,
};
use galgo_spawn::{
    Child, EnvBlock, FailedLaunch, Launch, LaunchOutcome, StartError, StartStage, inspect,
    owners::Deadline,
};
use tokio::time::Instant;

use super::ProgramRun;
use crate::{
    owners,
    program_settings::StartMode,
    relay::{
        clock::Clocks,
        pipes::{Pipes, ServerEnds},
        program::{Origin, RunningProgram},
        pump::{Fed, feed_stdin},
    },
    variables::{self, Judged, ScriptVars},
    warm::{self, ReadyChild, TemplateChild, TemplateSetup},
};

/// A program that cannot be started at the moment ([`StartError::is_busy`]) is tried again this often, this far apart.
const BUSY_TRIES: u32 = 20;
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_millis(25);

/// A child that has failed is looked at again at this interval, until it has ended.
const ENDING: std::time::Duration = std::time::Duration::from_millis(1);

/// A process; its template, or `None` if it was executed; and the fault that ends the request before it is answered. Even with
/// a fault the process ends in the usual way, because it has begun.
type StartedProcess = (Child, Option<Box<dyn Origin>>, Option<Fault>);

enum StartState {
    /// The program runs; the fault that occurred meanwhile.
    Runs(Option<Fault>),
    Failed(Box<FailedLaunch>),
}

const NO_ROOM: Fault = Fault::Busy("no file descriptors are left for another program");
/// Text about a program that was too late.
pub(super) const AFTER: &str = "galgo ended the program";

impl ProgramRun<'_, '_, '_> {
    pub(super) async fn start_program(
        &mut self,
        file: Option<Stored>,
        permit: Permit,
    ) -> Result<RunningProgram, Fault> {
        let began = Instant::now();
        let mut env = Env(EnvBlock::default());
        self.variables(self.body_length(file.as_ref()), &mut env)?;
        let mut clocks = Clocks::start(&self.cgi.options, AFTER);
        let is_anothers = self.cgi.remit.is_some();
        let pipes = Pipes::new(file, self.head.body, self.upgrades, is_anothers);
        let mut pipes = pipes.map_err(|_| NO_ROOM)?;
        let started = self.start_process(&mut pipes, env.0, &mut clocks, began);
        let (child, origin, fault) = started.await?;
        // The ends of the program are closed when this returns: then only the program has them.
        let mut program = RunningProgram::new(
            (child, origin),
            pipes.ours,
            clocks,
            &self.cgi.options,
            self.log_source(),
            permit,
        );
        program.carried = self.carried.take();
        match fault {
            None => Ok(program),
            Some(fault) => {
                program.abandon(matches!(fault, Fault::Gone(_)), |_exit| {});
                Err(fault)
            }
        }
    }

    async fn start_process(
        &mut self,
        pipes: &mut Pipes,
        env: EnvBlock,
        clocks: &mut Clocks,
        began: Instant,
    ) -> Result<StartedProcess, Fault> {
        let args = self.arguments()?;
        if let Some((child, origin)) = self.start_warm(pipes, &args, &env).await {
            self.request.entry.borrow_mut().start = began.elapsed();
            return Ok((child, Some(Box::new(origin)), None));
        }
        let dir = self.script.dir.clone();
        let launch = Launch {
            knocks: true,
            priority: self.priority,
            ..self.cgi.options.make_launch(args, env, dir)
        };
        self.start_cold(pipes, launch, clocks, began).await
    }

    /// Returns whether the program has a template, or a template was loaded.
    pub(super) async fn load_template(&self) -> bool {
        match self.arguments() {
            // The child ends unused.
            Ok(args) => self.ready_child(&args).await.is_some(),
            Err(_) => false,
        }
    }

    /// Starts a child of the program's template, if there is a template.
    async fn start_warm(
        &self,
        pipes: &Pipes,
        args: &[CString],
        env: &EnvBlock,
    ) -> Option<(Child, TemplateChild)> {
        let ready = self.ready_child(args).await?;
        let cpu = self.cgi.options.limits.cpu;
        let stdio = pipes.program_stdio(&self.cx.resources.null);
        let dir = self.script.shares_template().then_some(&*self.script.dir);
        let program = &self.script.script_filename;
        let started = ready.start(program, env, dir, stdio, cpu, self.priority);
        started.await.ok()
    }

    async fn ready_child(&self, args: &[CString]) -> Option<ReadyChild> {
        // Words of the query are arguments of one request, and a template has fixed arguments.
        let wordless = args.len() == 1 + usize::from(self.script.interpreter.is_some());
        let cold = self.cgi.options.start == StartMode::Cold;
        if cold || !wordless || !self.may_be_loaded() {
            return None;
        }
        let setup = || self.template_setup(args);
        warm::child(
            self.cx.common,
            &self.cx.starters.warm,
            self.cgi,
            &self.script,
            setup,
        )
        .await
    }

    fn template_setup(&self, args: &[CString]) -> TemplateSetup {
        let file = OsStr::from_bytes(self.script.script_filename.as_bytes());
        let mut env = Env(EnvBlock::default());
        variables::put_constants(self.cx.shared, &self.cgi.env, &mut env);
        for (name, value) in &self.cgi.load_env {
            env.0.set_variable(name.as_bytes(), value.as_bytes());
        }
        // A template that serves many scripts must not depend on this script.
        let (args, dir) = if self.script.shares_template() {
            (&args[..1], c"/".to_owned())
        } else {
            (args, self.script.dir.clone())
        };
        TemplateSetup {
            args: args.to_vec(),
            env: env.0,
            dir,
            file: file.into(),
            interpreter: self.script.interpreter.clone(),
            options: self.cgi.options.clone(),
            as_user: self.as_user(),
        }
    }

    async fn start_cold(
        &mut self,
        pipes: &mut Pipes,
        mut launch: Launch,
        clocks: &mut Clocks,
        began: Instant,
    ) -> Result<StartedProcess, Fault> {
        let mut tries = 0;
        let remit = self.cgi.remit.as_ref();
        let by = remit.map(|_| owners::deadline(&self.cgi.options, began.elapsed()));
        loop {
            let started = self.launch(launch, pipes, by).await?;
            let took = began.elapsed();
            let failed = match started {
                Ok(child) => match self.feed_until_running(&child, pipes, clocks, by).await? {
                    StartState::Runs(fault) => {
                        self.request.entry.borrow_mut().start = took;
                        return Ok((child, None, fault));
                    }
                    StartState::Failed(failed) => failed,
                },
                Err(failed) => failed,
            };
            if !failed.error.is_busy() || tries >= BUSY_TRIES {
                return Err(self.start_fault(failed.error).await);
            }
            // A byte in this pipe now would be taken for the next child's output.
            let _ = pipes.ours.stdout.try_take(&mut [0]);
            tries += 1;
            launch = failed.launch;
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Feeds the program until it runs, or until the server knows why it could not be executed. Its first output, or the next
    /// tick, shows either. A failed child writes a byte, and is still ending then. The data that was fed stays in the pipe for
    /// the program that is started next, because the server holds the other end.
    async fn feed_until_running(
        &mut self,
        child: &Child,
        pipes: &mut Pipes,
        clocks: &mut Clocks,
        by: Option<Deadline>,
    ) -> Result<StartState, Fault> {
        self.request.client.send_continue();
        let ServerEnds { stdin, stdout, .. } = &mut pipes.ours;
        let mut arrived = false;
        let mut fault = None;
        // A helper cannot have answered yet.
        let mut asks = !child.is_remote();
        loop {
            let outcome = if std::mem::replace(&mut asks, true) {
                self.cx.resources.spawner.borrow_mut().outcome(child)
            } else {
                LaunchOutcome::UnderWay
            };
            match outcome {
                LaunchOutcome::Started => return Ok(StartState::Runs(fault)),
                LaunchOutcome::Failed(failed) => {
                    return fault.map_or(Ok(StartState::Failed(failed)), Err);
                }
                LaunchOutcome::UnderWay => {}
            }
            if let Some(fault) = fault {
                return Err(fault);
            }
            if child.is_remote() && by.is_some_and(Deadline::has_passed) {
                return Err(self.start_fault(self.silent_helper()).await);
            }
            // A single byte may come from a failed child, about which its helper still has to report. The event loop may also
            // call the pipe readable because of a byte from the previous start.
            if arrived && child.is_remote() && stdout.readable_len() > 1 {
                return Ok(StartState::Runs(None));
            }
            tokio::select! {
                biased;
                _ = stdout.wait_until_readable(), if !arrived => arrived = true,
                () = tokio::time::sleep(ENDING), if arrived => {}
                () = tick::next() => {}
                late = clocks.await_expiry() => fault = Some(late),
                fed = feed_stdin(stdin, self.request.client) => match fed {
                    Ok(Fed::Moved) => clocks.record_body_move(),
                    Ok(Fed::HalfClosed) => self.request.client.probe_connection(),
                    Err(e) => fault = Some(e),
                },
            }
        }
    }

    /// Returns argv: the program as named. An interpreter gets the script as its argument.
    fn arguments(&self) -> Result<Vec<CString>, Fault> {
        let script = self.script.script_filename.clone();
        if let Some(interpreter) = &self.script.interpreter {
            let interpreter = CString::new(interpreter.as_os_str().as_bytes())
                .map_err(|_| Fault::Internal("an interpreter's path holds a NUL".into()))?;
            return Ok(vec![interpreter, script]);
        }
        let mut args = vec![script];
        if self.cgi.options.query_args {
            let words = search::search_words(&self.head.method, self.head.target.query());
            args.extend(words.into_iter().filter_map(|w| CString::new(w).ok()));
        }
        Ok(args)
    }

    /// Returns the body's length if it is known; `file` is a body that was taken in.
    pub(super) fn body_length(&self, file: Option<&Stored>) -> Option<u64> {
        match (file, self.head.body) {
            (Some(file), _) => Some(file.len()),
            (None, BodyLen::Length(n)) => Some(n),
            (None, BodyLen::None | BodyLen::Chunked) => None,
        }
    }

    /// Puts the whole environment into `sink`. It holds no variable of the server's own environment.
    pub(super) fn variables(
        &self,
        content_length: Option<u64>,
        sink: &mut impl Sink,
    ) -> Result<(), Fault> {
        let known = ScriptVars {
            shared: self.cx.shared,
            script_name: self.script.script_name,
            path_info: self.script.path_info,
            path_translated: self.script.path_translated.as_deref(),
            script_filename: self.script.script_filename.as_bytes(),
            document_root: self.cgi.document_root.as_os_str().as_bytes(),
            env: &self.cgi.env,
            options: &self.cgi.options,
            content_length,
            upgrade: self.upgrades,
        };
        let dropped = if self.judges {
            variables::put_variables(
                self.request,
                self.head,
                &known,
                &mut Judged::from_head(self.head, sink),
            )
        } else {
            variables::put_variables(self.request, self.head, &known, sink)
        };
        if dropped?.shellshock > 0 {
            variables::warn_shellshock(&self.log_source());
        }
        Ok(())
    }

    async fn start_fault(&self, e: StartError) -> Fault {
        match e.stage {
            StartStage::Environment => {
                return Fault::Client(
                    431,
                    "a header field is too long for a variable of a program",
                );
            }
            StartStage::Clone => return Fault::Busy("the system could not create another process"),
            StartStage::Helper => return owners::helper_fault(&e),
            StartStage::Denied => return Fault::Refused(e.source.to_string()),
            // `execve` also reports too little memory if the route's own memory limit is too low.
            stage
                if is_shortage(&e.source)
                    && (stage != StartStage::Exec
                        || e.source.kind() != io::ErrorKind::OutOfMemory) =>
            {
                return NO_ROOM;
            }
            _ => {}
        }
        let file = OsStr::from_bytes(self.script.script_filename.as_bytes());
        let interpreter = self.script.interpreter.as_deref();
        let executed = interpreter.unwrap_or(file.as_ref()).to_owned();
        let path = self.cx.shared.path.clone();
        let (bare, is_filtered) = (e.to_string(), e.is_filtered());
        // The diagnosis reads the file, which may take as long as executing it.
        let diagnosed = off_loop("diagnose", move || inspect::diagnose(&executed, &path, &e));
        let words = diagnosed.await.unwrap_or(bare);
        if is_filtered {
            return Fault::Internal(words);
        }
        Fault::Script(match interpreter {
            Some(interpreter) => format!("its interpreter {}: {words}", interpreter.display()),
            None => words,
        })
    }
}

struct Env(EnvBlock);

impl Sink for Env {
    fn put_variable(&mut self, name: &[u8], value: &[u8]) {
        self.0.set_variable(name, value);
    }
}
