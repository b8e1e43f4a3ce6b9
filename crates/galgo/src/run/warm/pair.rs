//! A program on two routes that differ in `start` alone, and its answers on each.

use std::{
    ffi::{CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use galgo_handlers::{context::Answer, program, script, sendfile::Sendfile, warm::About};
use galgo_proto::{Fields, target::UrlPath};
use galgo_service::{
    body::{Body, Response},
    client::Whole,
    fault::Fault,
    request::Request,
};
use galgo_spawn::{Exit, inspect, template::Unfit, words::describe_status};
use tokio::time::Instant;

use crate::{
    config::{Cgi, CgiOptions, Route, StartMode},
    programs,
    run::{
        caller::Caller,
        program_route::Owner,
        request,
        warm::{
            findings::{Answered, Rounds},
            progress::Progress,
        },
    },
};

/// Time limit of one request: a request that streams without end is given up then.
pub(super) const TRIAL: Duration = Duration::from_secs(10);
/// Time limit of all requests to a program.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// Time limit for a program to get two templates that know all its modules.
const SETTLES: Duration = Duration::from_secs(5);
/// The body of POST: a form that no program expects.
const FORM: &[u8] = b"galgo=check";

const SWITCHED_OFF: &str = "templates are switched off, or there is no inotify";

/// The reason why a program is not compared.
#[derive(Debug)]
pub(super) enum Uncompared {
    /// The program stays cold.
    Cold(String),
    /// The program does not work at all.
    Fails(String),
    /// A request was given up after [`TRIAL`].
    Endless,
    /// The program's requests together were given up after [`LONGEST`].
    Late,
}

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Load the program as a template, and nothing more.
    Load,
    Answer,
}

/// A program with two ways to start.
pub(super) struct ProgramPair {
    route: Arc<Route>,
    pub(super) cold: Arc<Cgi>,
    warm: Arc<Cgi>,
    url: Vec<u8>,
    /// The file that the template is loaded from.
    file: CString,
    /// The user id of the file's owner.
    owner: u32,
    /// The interpreter that runs the file, if there is one.
    interpreter: Option<PathBuf>,
    /// Whether the program is a WebAssembly module.
    is_module: bool,
    /// Whether the program's own route starts it warm already.
    pub(super) is_set: bool,
}

impl ProgramPair {
    /// Prepares a program to start cold and warm.
    ///
    /// # Errors
    /// A sentence: why the program fails without being run.
    pub(super) fn from_owner(owner: &Owner) -> Result<Self, String> {
        let cgi = &owner.cgi;
        let found = script::find_program(cgi, &owner.route.path, UrlPath::from_clean(&owner.url));
        let found = found.map_err(|refusal| match refusal {
            Fault::NotFound => "no URL reaches it".into(),
            Fault::Refused(why) => why,
            _ => "the system lacks descriptors or memory to check it".into(),
        })?;
        let started = |start| {
            Arc::new(Cgi {
                options: CgiOptions {
                    start,
                    ..cgi.options.clone()
                },
                // The answers of the program itself are compared.
                sendfile: Sendfile::default(),
                cache: None,
                ..Cgi::clone(cgi)
            })
        };
        Ok(Self {
            route: owner.route.clone(),
            cold: started(StartMode::Cold),
            warm: started(StartMode::Warm),
            url: owner.url.clone(),
            file: found.template_file(),
            owner: found.owner,
            is_module: found.module,
            interpreter: found.interpreter,
            is_set: cgi.options.start == StartMode::Warm,
        })
    }

    /// Loads the program as a template, without a request. Returns why it did not load, which may be the program's own fault.
    pub(super) async fn load_template(
        &self,
        caller: &Caller,
    ) -> Result<Option<String>, Uncompared> {
        if self.is_module {
            let why = "it is a WebAssembly module: each request has a new instance of its compiled code, and `start` changes nothing";
            return Err(Uncompared::Cold(why.into()));
        }
        let file = Path::new(OsStr::from_bytes(self.file.as_bytes()));
        let kind = inspect::find_kind(file, self.interpreter.as_deref());
        kind.map_err(|Unfit { why, .. }| Uncompared::Cold(format!("it {why}")))?;
        let longest = caller.context().starters.warm.patience(TRIAL);
        let load = self.exchange(caller, &self.warm, "GET", What::Load);
        let loaded = tokio::time::timeout(longest, load).await;
        let about = match self.template_state(caller) {
            // A cold start tells whether this user may start the program at all.
            Err(Uncompared::Cold(why)) if self.warm.remit.is_some() => return Ok(Some(why)),
            about => about?,
        };
        match about.obstacle {
            Some(why) if about.unfit => Err(Uncompared::Cold(why)),
            None if loaded.is_err() => Ok(Some(format!("it was still loading after {TRIAL:?}"))),
            obstacle => Ok(obstacle),
        }
    }

    /// Returns the state of the program's template.
    pub(super) fn template_state(&self, caller: &Caller) -> Result<About, Uncompared> {
        let warm = &caller.context().starters.warm;
        let about = warm.about(&self.warm, self.owner, &self.file);
        about.ok_or_else(|| Uncompared::Cold(SWITCHED_OFF.into()))
    }

    /// Waits until the template learns no more modules and all processes are ready. If the program is parked, returns why.
    pub(super) async fn settle(&self, caller: &Caller) -> Result<Option<String>, Uncompared> {
        let began = Instant::now();
        let longest = caller.context().starters.warm.patience(SETTLES);
        loop {
            let about = self.template_state(caller)?;
            if let Some(obstacle) = about.obstacle {
                return Err(Uncompared::Cold(obstacle));
            }
            if about.settled || began.elapsed() > longest {
                return Ok(about.parked);
            }
            // A parked process would be gone after its answer.
            if about.parked.is_none() {
                self.request_answer(caller, &self.warm, "GET").await?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks the warm program when all its processes are ready.
    async fn ask_ready(&self, caller: &Caller, method: &str) -> Result<Answered, Uncompared> {
        // The template's state is known already: only a request without an end matters here.
        if let Err(Uncompared::Endless) = self.settle(caller).await {
            return Err(Uncompared::Endless);
        }
        self.request_answer(caller, &self.warm, method).await
    }

    /// Asks the cold and the warm program in turn.
    pub(super) async fn run_rounds(
        &self,
        caller: &Caller,
        method: &str,
        times: usize,
        progress: &Progress,
    ) -> Result<Rounds, Uncompared> {
        let mut rounds = Rounds::default();
        for at in 1..=times {
            progress.show_step(&format!("{method} {at} of {times}"));
            let cold = self.request_answer(caller, &self.cold, method).await?;
            rounds.cold.push(cold);
            rounds.warm.push(self.ask_ready(caller, method).await?);
        }
        Ok(rounds)
    }

    /// Makes one request. If the answer takes too long, drops the request, which ends the program.
    pub(super) async fn request_answer(
        &self,
        caller: &Caller,
        cgi: &Arc<Cgi>,
        method: &str,
    ) -> Result<Answered, Uncompared> {
        let began = Instant::now();
        let longest = caller.context().starters.warm.patience(TRIAL);
        let answer = self.exchange(caller, cgi, method, What::Answer);
        let answer = tokio::time::timeout(longest, answer).await;
        let answer = answer.map_err(|_| Uncompared::Endless)?;
        Ok(answer.unwrap_or_else(|why| Answered {
            parts: to_byte_parts(["none", "", &why, "", ""]),
            took: began.elapsed(),
            fault: Some(why),
        }))
    }

    async fn exchange(
        &self,
        caller: &Caller,
        cgi: &Arc<Cgi>,
        method: &str,
        what: What,
    ) -> Result<Answered, String> {
        let body = (method == "POST").then(|| FORM.to_vec());
        let target = programs::percent_encode(&self.url);
        let request::LocalRequest { head, body, link } = request::compose_request(
            &caller.dispatch.site.config,
            &self.route,
            [method, &target],
            &[],
            body,
        )?;
        let mut client = Whole::new(body);
        let mut request = caller.request(head.clone(), &link, &mut client);
        let cx = caller.context();
        let script = script::find_program(cgi, &self.route.path, head.target.url_path());
        let answer = match script {
            Ok(script) if what == What::Load => {
                program::load_template(cx, &mut request, &head, cgi, script).await;
                return Err("nothing was asked".into());
            }
            Ok(script) => program::answer(cx, &mut request, &head, cgi, None, script, None).await,
            Err(refusal) => Err(refusal),
        };
        let fault = answer.as_ref().err().map(ToString::to_string);
        let parts = match answer {
            Ok(Answer::Response(response)) => return read_answer(&mut request, response).await,
            Ok(Answer::Local(to)) => to_byte_parts(["200", "", &to, "", ""]),
            Err(fault) => to_byte_parts([
                &fault.status().to_string(),
                "",
                &fault.to_string(),
                &request.stderr,
                &describe_exit(request.entry.borrow().exit),
            ]),
        };
        let took = request.began.elapsed();
        Ok(Answered { parts, took, fault })
    }
}

/// Reads a response to its end.
async fn read_answer(request: &mut Request<'_>, response: Response) -> Result<Answered, String> {
    let Body::Stream(output) = response.body else {
        return Err("no program's answer".into()); // INVARIANT: programs answer so
    };
    let mut producer = output.producer;
    // The whole output is kept, in the buffer that the head was read into.
    while !producer.has_output_ended() {
        let event = producer.next_event(request.client).await;
        event.map_err(|fault| fault.to_string())?;
    }
    producer.pending_output().join_parts();
    let text = producer.pending_output().first_part().to_vec();
    let took = request.began.elapsed();
    let (exit, stderr) = producer.post_mortem(false).await;
    let parts = [
        response.status.to_string().into_bytes(),
        field_lines(&response.fields),
        text,
        stderr.into_bytes(),
        describe_exit(exit).into_bytes(),
    ];
    Ok(Answered {
        parts,
        took,
        fault: None,
    })
}

fn field_lines(fields: &Fields) -> Vec<u8> {
    let line = |(name, value): (&[u8], &[u8])| [name, b": ", value, b"\n"].concat();
    fields.iter().flat_map(line).collect()
}

fn describe_exit(exit: Option<Exit>) -> String {
    exit.map(|e| describe_status(e.status)).unwrap_or_default()
}

fn to_byte_parts(parts: [&str; 5]) -> [Vec<u8>; 5] {
    parts.map(|part| part.as_bytes().to_vec())
}
