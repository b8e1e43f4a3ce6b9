//! `galgo run`: runs one program with the server's own code, without a socket.
//!
//! 1. Find the site and the route that the program belongs to.
//! 2. Make the request.
//! 3. Have the program answer.
//! 4. Print the response as it comes.
//! 5. Report errors.

// See `cli`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub(crate) mod args;
pub(crate) mod caller;
mod own_cache;
mod print;
mod program_route;
mod request;
mod signals;
pub(crate) mod warm;

use std::{os::unix::ffi::OsStrExt, process::ExitCode};

use galgo_handlers::{context::Answer, program, script, steps::redirect};
use galgo_io::tick;
use galgo_service::{client::Whole, phase::Phase};
use galgo_spawn::sandbox::Prepared;
use tokio::time::Instant;

use crate::{
    command::screen::escape_lines,
    config::{Cgi, LogTo},
};
use args::{RunArgs, Show};
use caller::{Caller, confined_spawner, event_loop};
use own_cache::OwnCache;
use print::Printer;
use program_route::ProgramPlace;
use signals::{CommandSignals, INTERRUPTED};

/// Runs the program once.
pub(crate) fn run_program(args: &RunArgs) -> Result<ExitCode, String> {
    let mut place = ProgramPlace::locate(&args.program, args.config.as_deref())?;
    let made = match request::build_request(args, &place) {
        Ok(made) => made,
        Err(why) => {
            eprintln!("galgo: {}", escape_lines(why));
            return Ok(ExitCode::from(2));
        }
    };
    let cgi = &place.route.cgi;
    let prepared = prepare(cgi)?;
    crate::command::identity::assume_identity_for(&place.config, cgi, &args.program)?;
    let path = args.program.as_os_str().as_bytes();
    let _cache = OwnCache::create_if_needed(&mut place.config, cgi, path)?;
    let runtime = event_loop()?;
    let local = tokio::task::LocalSet::new();
    let _entered = runtime.enter();
    let mut signals = CommandSignals::register()?;
    let mut code = local.block_on(
        &runtime,
        answer_request(args, place, made, prepared, &mut signals),
    )?;
    if code != INTERRUPTED {
        code = runtime.block_on(async {
            // The program's leftover processes get their grace to end, as in the server.
            tokio::select! {
                () = local => code,
                () = signals.wait_for_any() => INTERRUPTED,
                () = tick::run_clock() => code, // never
            }
        });
    }
    Ok(code.into())
}

/// Prepares a strict sandbox before the command becomes another user. No helper starts the program here, so the command itself
/// enters the program's sandbox. Enters namespaces now, if that is allowed, and prepares the rest.
fn prepare(cgi: &Cgi) -> Result<Option<Prepared>, String> {
    let interpreters = cgi.interpreters.iter().map(|(_, path)| path.as_path());
    let interpreters: Vec<_> = interpreters.collect();
    let strict = cgi.options.strict.as_ref();
    let prepared = strict.map(|strict| strict.prepare(cgi.root.path(), &interpreters, None));
    let prepared = prepared.transpose();
    prepared.map_err(|e| format!("cannot confine the program: {e}"))
}

/// Answers one request and prints the response. A signal ends the program's whole process group, because dropping the request
/// does.
async fn answer_request(
    args: &RunArgs,
    place: ProgramPlace,
    made: request::LocalRequest,
    prepared: Option<Prepared>,
    signals: &mut CommandSignals,
) -> Result<u8, String> {
    let ProgramPlace {
        mut config, route, ..
    } = place;
    // On a warm route, wait until the program is loaded, because most requests to a server find it loaded.
    config.templates.wait = true;
    let caller = Caller::new(config, LogTo::Stderr, |config| {
        Ok((confined_spawner(config, prepared)?, None))
    })?;
    let printer = Printer::new(args.output == Show::Body, args.time);
    let code = tokio::select! {
        code = exchange(&caller, &route, made, printer) => code,
        () = tick::run_clock() => INTERRUPTED, // never: it drives the clocks
        () = signals.wait_for_any() => INTERRUPTED,
    };
    // No further request comes, so templates are not kept.
    let _ = caller.phase.send(Phase::Draining);
    caller.logs.flush();
    Ok(code)
}

/// Answers the request and prints the response. Returns the exit code.
async fn exchange(
    caller: &Caller,
    owner: &program_route::Owner,
    made: request::LocalRequest,
    mut printer: Printer,
) -> u8 {
    let request::LocalRequest { head, body, link } = made;
    let mut client = Whole::new(body);
    let mut request = caller.request(head.clone(), &link, &mut client);
    let cx = caller.context();
    let cgi = &owner.cgi;
    let answer = match script::find_program(cgi, &owner.route.path, head.target.url_path()) {
        Ok(script) => {
            let began = Instant::now();
            if program::load_template(cx, &mut request, &head, cgi, script.clone()).await {
                printer.loaded = Some(began.elapsed());
            }
            request.restart_clock();
            program::answer(cx, &mut request, &head, cgi, None, script, None).await
        }
        Err(refusal) => Err(refusal),
    };
    request.entry.borrow_mut().first_byte = request.began.elapsed();
    let done = match answer {
        Ok(Answer::Response(response)) => printer.print_response(&mut request, response).await,
        Ok(Answer::Local(location)) => match redirect::local_request(&head, &location) {
            Ok(_) => printer.local_redirect(&location),
            Err(fault) => Err(fault.into()),
        },
        Err(fault) => Err(fault.into()),
    };
    caller.logs.flush();
    printer.report_outcome(&request, done)
}
