//! `galgo run`: one program, by the server's own code, without a socket.
//!
//! 1. find the site and the route the program belongs to  2. make the request  3. have it answered
//! 4. print the response as it comes  5. say what was wrong

mod print;
mod request;
mod site;
pub(super) mod warm;

use std::{cell::RefCell, ffi::OsString, path::PathBuf, process::ExitCode, rc::Rc, sync::Arc};

use clap::ValueEnum;
use galgo_spawn::Spawner;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::Instant,
};

use super::screen::lines;
use crate::{
    client::Whole,
    config::{Config, LogTo},
    handler::{self, Answer, Context, cgi, status},
    id::Ids,
    log::{Logs, access::Entry},
    phase::Phase,
    request::Request,
    resources::Resources,
    site::Site,
    tick,
    warm::Warm,
};
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
    let (phase, one) = Alone::in_phase(config, LogTo::Stderr)?;
    let printer = Printer::new(args.output == Show::Body, args.time);
    let code = tokio::select! {
        code = exchange(&one, &route, made, printer) => code,
        () = tick::run() => INTERRUPTED, // never: it drives the clocks
        () = signals.any() => INTERRUPTED,
    };
    // Templates are not kept for a request that does not come.
    let _ = phase.send(Phase::Draining);
    one.logs.flush();
    Ok(code)
}

/// What answers requests without a server: handlers, and an event loop without clients.
struct Alone {
    resources: Rc<Resources>,
    site: Site,
    ids: Ids,
    logs: Logs,
}

impl Alone {
    fn new(config: Config, errors: LogTo) -> Result<Self, String> {
        Self::in_phase(config, errors).map(|(_phase, one)| one)
    }

    /// The same, and what ends it.
    fn in_phase(mut config: Config, errors: LogTo) -> Result<(watch::Sender<Phase>, Self), String> {
        config.log.access = None;
        config.log.error = errors;
        let logs = Logs::open(&config.log, None).map_err(|e| format!("cannot write a log: {e}"))?;
        let spawner = crate::serve::spawner(&config)
            .map_err(|e| format!("preparing to start programs: {e}"))?;
        let (phase, serving) = watch::channel(Phase::Serving);
        let site = Site::new(config, None, &logs);
        let resources = Resources::new(
            0,
            Spawner::Direct(spawner),
            logs.error.clone(),
            Arc::new(Warm::new(site.config.templates.wait)),
            site.config.templates.clone(),
            serving,
        );
        let one = Self {
            resources: resources.map_err(|e| format!("starting the event loop: {e}"))?,
            site,
            ids: Ids::new(),
            logs,
        };
        Ok((phase, one))
    }

    fn context(&self) -> Context<'_> {
        Context {
            resources: &self.resources,
            site: &self.site,
        }
    }
}

/// The exit code.
async fn exchange(
    one: &Alone,
    route: &site::Owner,
    made: request::Made,
    mut printer: Printer,
) -> u8 {
    let request::Made { head, body, link } = made;
    let mut client = Whole::new(body);
    let entry = Entry::new(one.ids.next(), link.remote.clone(), Some(head.clone()));
    let entry = Rc::new(RefCell::new(entry));
    let mut request = Request {
        last: true,
        ..Request::new(head.clone(), &link, &mut client, entry)
    };
    let cx = one.context();
    let Some(cgi) = route.cgi() else {
        return 1; // INVARIANT: only `cgi` routes own programs
    };
    let (path, route) = (&route.route.path, &route.route);
    let answer = match crate::route::program(cgi, path, head.target.url_path()) {
        Ok(script) => {
            let began = Instant::now();
            let named = script.clone();
            if cgi::load(cx, &mut request, &head, route, cgi, named).await {
                printer.loaded(began.elapsed());
            }
            request.begin();
            cgi::answer(cx, &mut request, &head, route, cgi, script).await
        }
        Err(refusal) => Err(handler::refused(refusal)),
    };
    request.entry.borrow_mut().first_byte = request.began.elapsed();
    let done = match answer {
        Ok(Answer::Response(response)) => printer.response(&mut request, response).await,
        Ok(Answer::Local(location)) => match handler::redirected(&head, &location) {
            Ok(_) => printer.local_redirect(&location),
            Err(fault) => Err(fault.into()),
        },
        Err(fault) => Err(fault.into()),
    };
    one.logs.flush();
    printer.verdict(&request, done, status::hint)
}
