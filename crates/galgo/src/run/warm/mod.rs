//! `galgo check --warm`: runs each program cold and warm, and reports differences.
//!
//! 1. Load the program. A program that stays cold is not run.
//! 2. Ask it once, cold, to see whether it works at all.
//! 3. Send the same requests to two routes that differ in `start` alone.
//! 4. Compare the answers. A part that varies from one cold start to the next is not a difference.

mod findings;
mod pair;
mod progress;

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use galgo_io::tick;

use crate::{
    command::{identity, screen::escape_lines, site_folder::SiteArgs},
    config::{Cgi, Config, LogTo, Route},
    described::shorten_path,
    programs,
    run::{
        caller::{BlockingCaller, Caller, ProgramSources, confined_spawner, event_loop},
        program_route::{Owner, ProgramPlace},
        signals::{CommandSignals, INTERRUPTED},
    },
    serve::owners::Spawning,
};
use findings::{Findings, Rounds};
use pair::{LONGEST, ProgramPair, TRIAL, Uncompared};
use progress::Progress;

/// Number of times that each way is measured by GET and asked by POST, and asked again if answers differ.
const TIMES: usize = 7;
const POSTS: usize = 2;
const AGAIN: usize = 3;
/// A pause after which a clock that shows seconds shows another second.
const LATER: Duration = Duration::from_millis(1100);

/// Number of lines that are printed from the end of a failing program's standard error.
const LAST: usize = 3;

/// A program to be compared.
struct Candidate {
    /// The program's name, for people.
    name: String,
    /// The program on its two routes, or why it would fail.
    pair: Result<ProgramPair, String>,
}

/// Compares one program, or all programs of a site.
pub(crate) fn check_programs(site: &SiteArgs, program: Option<&Path>) -> Result<ExitCode, String> {
    let place = program.map(|p| ProgramPlace::locate(p, site.config.as_deref()));
    let (mut config, file, one) = match place.transpose()? {
        Some(ProgramPlace {
            config,
            file,
            route,
        }) => (config, file, Some(route)),
        None => (site.load_config()?, site.config_file(), None),
    };
    let spawning = Spawning::start_for_command(&config, file.as_deref())?;
    identity::assume_identity(&config)?;
    let candidates = match one {
        Some(owner) => vec![Candidate {
            name: shorten_path(program.unwrap_or(Path::new(""))),
            pair: ProgramPair::from_owner(&owner),
        }],
        None => list_candidates(&config),
    };
    config.templates.wait = true;
    let runtime = event_loop()?;
    let local = tokio::task::LocalSet::new();
    let _entered = runtime.enter();
    let mut signals = CommandSignals::register()?;
    let caller = Caller::new(config, LogTo::File("/dev/null".into()), |config| {
        program_sources(config, spawning.as_ref())
    })?;
    let wrong = local.block_on(&runtime, async {
        tokio::select! {
            done = compare_all(&caller, &candidates) => Some(done),
            () = signals.wait_for_any() => None,
            () = tick::run_clock() => None, // never: it drives the clocks
        }
    });
    Ok(match wrong {
        None => ExitCode::from(INTERRUPTED),
        Some(Ok(true)) => ExitCode::FAILURE,
        // A reader that closes the pipe has read enough.
        Some(Ok(false) | Err(_)) => ExitCode::SUCCESS,
    })
}

/// Makes what starts the programs: this process, and the helpers of `spawning`.
fn program_sources(config: &Config, spawning: Option<&Spawning>) -> Result<ProgramSources, String> {
    let owners = spawning.map(|spawning| spawning.owners.clone());
    Ok((confined_spawner(config, None)?, owners))
}

/// Loads programs as the server does, without a request.
pub(crate) struct WarmLoader {
    caller: BlockingCaller,
    has_helpers: bool,
}

impl WarmLoader {
    /// Makes a loader for the programs of this configuration.
    pub(crate) fn new(mut config: Config, spawning: Option<&Spawning>) -> Result<Self, String> {
        config.templates.wait = true;
        let sources = |config: &Config| program_sources(config, spawning);
        Ok(Self {
            caller: BlockingCaller::with_spawner(config, sources)?,
            has_helpers: spawning.is_some(),
        })
    }

    /// Whether this user may load the programs of the route.
    pub(crate) fn can_load(&self, cgi: &Cgi) -> bool {
        self.has_helpers || cgi.remit.is_none()
    }

    /// Returns why a program stays cold, and whether it is to blame: it did not load, although programs of its kind do. `None`
    /// if it starts warm.
    pub(crate) fn obstacle(
        &self,
        route: &Arc<Route>,
        cgi: &Arc<Cgi>,
        url: &[u8],
    ) -> Option<(String, bool)> {
        let owner = Owner {
            route: route.clone(),
            cgi: cgi.clone(),
            url: url.to_vec(),
        };
        let pair = ProgramPair::from_owner(&owner);
        let load = async {
            match pair?.load_template(&self.caller.caller).await {
                Ok(obstacle) => Ok(obstacle.map(|why| (why, true))),
                Err(Uncompared::Cold(why) | Uncompared::Fails(why)) => Ok(Some((why, false))),
                Err(Uncompared::Endless | Uncompared::Late) => Ok(None),
            }
        };
        let loaded: Result<_, String> = self.caller.wait_for(load);
        loaded.unwrap_or_else(|why| Some((why, false)))
    }
}

/// Returns every program of a site.
fn list_candidates(config: &Config) -> Vec<Candidate> {
    let mut all = Vec::new();
    for route in &config.routes {
        let Some(cgi) = route.programs() else {
            continue;
        };
        for seen in programs::examine_all(config, route, cgi) {
            let found = match seen.state {
                programs::FileState::Program(found) => found,
                programs::FileState::Module => Vec::new(),
                programs::FileState::Other(_) => continue,
            };
            let owner = Owner {
                route: route.clone(),
                cgi: cgi.clone(),
                url: seen.url,
            };
            let name = shorten_path(&seen.path);
            let pair = match found.iter().find(|finding| finding.fails) {
                Some(finding) => Err(finding.to_string()),
                None => ProgramPair::from_owner(&owner),
            };
            all.push(Candidate { name, pair });
        }
    }
    all
}

/// Compares programs and prints the results. Returns whether any program differs or fails.
async fn compare_all(caller: &Caller, candidates: &[Candidate]) -> io::Result<bool> {
    let mut progress = Progress::new(candidates.len());
    let mut any_wrong = false;
    for Candidate { name, pair } in candidates {
        progress.begin_program(name);
        let compared = match pair {
            Ok(pair) => {
                let longest = caller.context().starters.warm.patience(LONGEST);
                let compared = compare(caller, name, pair, &progress);
                let compared = tokio::time::timeout(longest, compared).await;
                compared.unwrap_or(Err(Uncompared::Late))
            }
            Err(why) => Err(Uncompared::Fails(why.clone())),
        };
        let (said, wrong) = match compared {
            Ok(compared) => compared,
            Err(Uncompared::Cold(why)) => (format!("{name}: stays cold: {why}"), false),
            Err(Uncompared::Fails(why)) => (format!("{name}: fails: {why}"), true),
            Err(Uncompared::Endless) => {
                let why = format!("its response did not end within {TRIAL:?}");
                (format!("{name}: not compared: {why}"), false)
            }
            Err(Uncompared::Late) => {
                let why = format!("its answers took more than {LONGEST:?} together");
                (format!("{name}: not compared: {why}"), false)
            }
        };
        progress.clear_line();
        writeln!(io::stdout(), "{}", escape_lines(said))?;
        any_wrong |= wrong;
    }
    Ok(any_wrong)
}

/// Compares one program. Returns the report, and whether the program differs.
async fn compare(
    caller: &Caller,
    name: &str,
    pair: &ProgramPair,
    progress: &Progress,
) -> Result<(String, bool), Uncompared> {
    progress.show_step("loading");
    let unloaded = pair.load_template(caller).await?;
    progress.show_step("cold");
    let first = pair.request_answer(caller, &pair.cold, "GET").await?;
    if let Some(mut why) = first.fault {
        let said = String::from_utf8_lossy(&first.parts[3]);
        let said: Vec<_> = said.lines().filter(|l| !l.trim().is_empty()).collect();
        for line in &said[said.len().saturating_sub(LAST)..] {
            why.push_str(&format!("\n    standard error: {line}"));
        }
        return Err(Uncompared::Fails(why));
    }
    if let Some(why) = unloaded {
        return Err(Uncompared::Cold(why));
    }
    progress.show_step("settling");
    let parked = pair.settle(caller).await?;
    let mut findings = Findings::default();
    let gets = pair.run_rounds(caller, "GET", TIMES, progress).await?;
    confirm(caller, pair, "GET", &gets, &mut findings, progress).await?;
    let posts = pair.run_rounds(caller, "POST", POSTS, progress).await?;
    confirm(caller, pair, "POST", &posts, &mut findings, progress).await?;
    let (mut said, differs) = findings.build_report(name, &gets, pair.is_set);
    let left = pair
        .template_state(caller)
        .map_or(Vec::new(), |about| about.left);
    if !left.is_empty() {
        let names = left.join(", ");
        said.push_str(&format!(
            "\n    loaded by each request, because they do more than load, or fail: {names}"
        ));
    }
    if let Some(why) = parked {
        said.push_str(&format!(
            "\n    parked (a process for each request), because it cannot be forked: it {why}"
        ));
    }
    Ok((said, differs))
}

/// Repeats the requests after a pause if answers differ.
async fn confirm(
    caller: &Caller,
    pair: &ProgramPair,
    method: &str,
    rounds: &Rounds,
    findings: &mut Findings,
    progress: &Progress,
) -> Result<(), Uncompared> {
    let mut again = None;
    if rounds.is_suspicious() {
        tokio::time::sleep(LATER).await;
        again = Some(pair.run_rounds(caller, method, AGAIN, progress).await?);
    }
    findings.record_differences(method, rounds, again.as_ref());
    Ok(())
}
