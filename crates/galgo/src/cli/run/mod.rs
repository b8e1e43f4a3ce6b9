//! `galgo run`: one program, by the server's own code, without a socket.
//!
//! 1. find the site and the route the program belongs to  2. make the request  3. have it answered
//! 4. print the response as it comes  5. say what was wrong

mod caller;
mod print;
mod request;
mod site;
pub(super) mod warm;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::ValueEnum;
use galgo_handlers::{context::Answer, program, script, status};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

use super::screen::lines;
use crate::{client::Whole, config::LogTo, dispatch::redirected, phase::Phase, tick};
use caller::Caller;
use print::Printer;
use site::Place;

#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// The program
    program: PathBuf,
    /// The method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// What stands behind the ? of a URL
    #[arg(short, long, value_name = "QUERY", allow_hyphen_values = true)]
    query: Option<String>,
    /// A header field, 'Name: value'; repeatable
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = request::field)]
    headers: Vec<request::Field>,
    /// The request body; @- is standard input
    #[arg(short, long, value_name = "BODY|@FILE", allow_hyphen_values = true)]
    data: Option<OsString>,
    /// PATH_INFO: what follows the name in the URL
    #[arg(long, value_name = "PATH")]
    path_info: Option<String>,
    /// Say how long it took and what it used
    #[arg(long)]
    time: bool,
    /// What to print: response (the default) or body
    #[arg(short, long, value_name = "WHAT", value_enum, hide_possible_values = true, hide_default_value = true, default_value_t = Show::Response)]
    output: Show,
    /// The configuration that has a route for it
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Show {
    /// Status line, header fields and body
    Response,
    /// The body; status line and fields go to standard error
    Body,
}

/// What a shell reports for a process that SIGINT has ended.
const INTERRUPTED: u8 = 130;

/// Runs the program once.
pub(super) fn run(args: &Run) -> Result<ExitCode, String> {
    let place = Place::of(&args.program, args.config.as_deref())?;
    let made = match request::make(args, &place) {
        Ok(made) => made,
        Err(why) => {
            eprintln!("galgo: {}", lines(why));
            return Ok(ExitCode::from(2));
        }
    };
    super::assume(&place.config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| format!("starting the event loop: {e}"))?;
    let local = tokio::task::LocalSet::new();
    let entered = runtime.enter();
    let mut signals = Signals::watch()?;
    let code = local.block_on(&runtime, once(args, place, made, &mut signals));
    let code = match code {
        Ok(code) if code != INTERRUPTED => runtime.block_on(async {
            // What is left of the program gets its grace to end, as in the server.
            tokio::select! {
                () = local => Ok(code),
                () = signals.any() => Ok(INTERRUPTED),
                () = tick::run() => Ok(code), // never
            }
        }),
        code => code,
    };
    drop(entered);
    code.map(ExitCode::from)
}

/// Signals that end a command, and the programs that it runs.
struct Signals {
    int: Signal,
    term: Signal,
}

impl Signals {
    fn watch() -> Result<Self, String> {
        let watch = |kind| signal(kind).map_err(|e| format!("watching for signals: {e}"));
        Ok(Self {
            int: watch(SignalKind::interrupt())?,
            term: watch(SignalKind::terminate())?,
        })
    }

    /// Waits for one.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}

/// Answers one request and prints the response; a signal ends the program's whole group, for
/// dropping the request does.
async fn once(
    args: &Run,
    place: Place,
    made: request::Made,
    signals: &mut Signals,
) -> Result<u8, String> {
    let Place { mut config, route } = place;
    // On a warm route the program is asked when it is loaded, as most requests to a server find it.
    config.templates.wait = true;
    let caller = Caller::new(config, LogTo::Stderr)?;
    let printer = Printer::new(args.output == Show::Body, args.time);
    let code = tokio::select! {
        code = exchange(&caller, &route, made, printer) => code,
        () = tick::run() => INTERRUPTED, // never: it drives the clocks
        () = signals.any() => INTERRUPTED,
    };
    // Templates are not kept for a request that does not come.
    let _ = caller.phase.send(Phase::Draining);
    caller.logs.flush();
    Ok(code)
}

/// The exit code.
async fn exchange(
    caller: &Caller,
    owner: &site::Owner,
    made: request::Made,
    mut printer: Printer,
) -> u8 {
    let request::Made { head, body, link } = made;
    let mut client = Whole::new(body);
    let mut request = caller.request(head.clone(), &link, &mut client);
    let cx = caller.context();
    let Some(cgi) = owner.cgi() else {
        return 1; // INVARIANT: only `cgi` routes own programs
    };
    let answer = match script::program(cgi, &owner.route.path, head.target.url_path()) {
        Ok(script) => {
            let began = Instant::now();
            if program::load(cx, &mut request, &head, cgi, script.clone()).await {
                printer.loaded(began.elapsed());
            }
            request.begin();
            program::answer(cx, &mut request, &head, cgi, None, script).await
        }
        Err(refusal) => Err(refusal.into()),
    };
    request.entry.borrow_mut().first_byte = request.began.elapsed();
    let done = match answer {
        Ok(Answer::Response(response)) => printer.response(&mut request, response).await,
        Ok(Answer::Local(location)) => match redirected(&head, &location) {
            Ok(_) => printer.local_redirect(&location),
            Err(fault) => Err(fault.into()),
        },
        Err(fault) => Err(fault.into()),
    };
    caller.logs.flush();
    printer.verdict(&request, done, status::hint)
}
