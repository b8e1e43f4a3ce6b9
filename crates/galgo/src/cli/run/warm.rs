//! `galgo check --warm`: each program cold and warm, side by side, and what differs.
//!
//! 1. load it; what stays cold is not run  2. one cold request: does it work at all?  3. the same requests to two
//!    routes that differ in `start` alone  4. compare the answers; what varies from one cold start to the next is no
//!    difference

mod answered;
mod findings;
mod pair;
mod progress;

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use super::{
    caller::{Caller, event_loop},
    signals::{CommandSignals, INTERRUPTED},
    site::{Owner, ProgramPlace},
};
use crate::{
    cli::{
        identity, programs,
        screen::{lines, near},
        site::SiteArgs,
    },
    config::{Config, LogTo},
    tick,
};
use findings::Findings;
use pair::{Cold, Endless, ProgramPair, TRIAL};
use progress::Progress;

/// Times that each way is measured by GET, and asked by POST; and once more where something differs.
const TIMES: usize = 7;
const POSTS: usize = 2;
const AGAIN: usize = 3;
/// Later by this much, a clock that shows seconds shows another one.
const LATER: Duration = Duration::from_millis(1100);

/// Of what a failing program said, so many lines are printed.
const LAST: usize = 3;

/// A program to be compared.
struct Candidate {
    /// For a person.
    name: String,
    /// On its two routes, or why it would fail.
    pair: Result<ProgramPair, String>,
}

/// What became of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WarmVerdict {
    Fine,
    /// It differs, or fails.
    Wrong,
}

/// Compares one program, or all of a site.
pub(crate) fn check(site: &SiteArgs, program: Option<&Path>) -> Result<ExitCode, String> {
    let place = program.map(|p| ProgramPlace::of(p, site.config.as_deref()));
    let (mut config, one) = match place.transpose()? {
        Some(ProgramPlace { config, route }) => (config, Some(route)),
        None => (site.load()?, None),
    };
    identity::assume(&config)?;
    let candidates = match one {
        Some(owner) => vec![Candidate {
            name: near(program.unwrap_or(Path::new(""))),
            pair: ProgramPair::of(&owner),
        }],
        None => all(&config),
    };
    config.templates.wait = true;
    let runtime = event_loop()?;
    let local = tokio::task::LocalSet::new();
    let _entered = runtime.enter();
    let mut signals = CommandSignals::watch()?;
    let caller = Caller::new(config, LogTo::File("/dev/null".into()), None)?;
    let verdict = local.block_on(&runtime, async {
        tokio::select! {
            done = compare_all(&caller, &candidates) => Some(done),
            () = signals.any() => None,
            () = tick::run() => None, // never: it drives the clocks
        }
    });
    Ok(match verdict {
        None => ExitCode::from(INTERRUPTED),
        Some(Ok(WarmVerdict::Wrong)) => ExitCode::FAILURE,
        // Who closes the pipe has read enough.
        Some(Ok(WarmVerdict::Fine) | Err(_)) => ExitCode::SUCCESS,
    })
}

/// Every program of a site.
fn all(config: &Config) -> Vec<Candidate> {
    let mut all = Vec::new();
    for route in &config.routes {
        let Some(cgi) = route.programs() else {
            continue;
        };
        for seen in programs::all(config, route, cgi) {
            let programs::FileState::Program(found) = seen.state else {
                continue;
            };
            let owner = Owner {
                route: route.clone(),
                cgi: cgi.clone(),
                url: seen.url,
            };
            let failing = found.iter().find(|finding| finding.fails);
            all.push(Candidate {
                name: near(&seen.path),
                pair: match failing {
                    Some(finding) => Err(finding.to_string()),
                    None => ProgramPair::of(&owner),
                },
            });
        }
    }
    all
}

async fn compare_all(caller: &Caller, candidates: &[Candidate]) -> io::Result<WarmVerdict> {
    let mut progress = Progress::new(candidates.len());
    let mut worst = WarmVerdict::Fine;
    for Candidate { name, pair } in candidates {
        progress.begin(name);
        let (said, verdict) = match pair {
            Ok(pair) => match compare(caller, name, pair, &mut progress).await {
                Ok(compared) => compared,
                Err(Endless) => {
                    let words =
                        format!("{name}: not compared: its answer has no end within {TRIAL:?}");
                    (words, WarmVerdict::Fine)
                }
            },
            Err(why) => (format!("{name}: fails: {why}"), WarmVerdict::Wrong),
        };
        progress.clear();
        writeln!(io::stdout(), "{}", lines(said))?;
        if verdict == WarmVerdict::Wrong {
            worst = verdict;
        }
    }
    Ok(worst)
}

/// What is said of a program.
async fn compare(
    caller: &Caller,
    name: &str,
    pair: &ProgramPair,
    progress: &mut Progress,
) -> Result<(String, WarmVerdict), Endless> {
    let mut step = |what: &str| progress.step(what);
    step("loading");
    let loaded = pair.load(caller).await;
    if let Err(Cold::Unfit(why)) = &loaded {
        return Ok((format!("{name}: stays cold: {why}"), WarmVerdict::Fine));
    }
    step("cold");
    let first = pair.ask(caller, &pair.cold, "GET").await?;
    if let Some(fault) = first.fault {
        let mut words = format!("{name}: fails: {fault}");
        let said = String::from_utf8_lossy(&first.parts[3]).into_owned();
        let said: Vec<_> = said.lines().filter(|l| !l.trim().is_empty()).collect();
        for line in &said[said.len().saturating_sub(LAST)..] {
            words.push_str(&format!("\n    it said: {line}"));
        }
        return Ok((words, WarmVerdict::Wrong));
    }
    if let Err(Cold::Failed(why)) = loaded {
        return Ok((format!("{name}: stays cold: {why}"), WarmVerdict::Fine));
    }
    step("settling");
    let parked = match pair.settle(caller).await? {
        Ok(parked) => parked,
        Err(obstacle) => return Ok((format!("{name}: stays cold: {obstacle}"), WarmVerdict::Fine)),
    };
    let mut findings = Findings::default();
    let gets = pair.rounds(caller, "GET", TIMES, &mut step).await?;
    confirm(caller, pair, "GET", &gets, &mut findings, &mut step).await?;
    let posts = pair.rounds(caller, "POST", POSTS, &mut step).await?;
    confirm(caller, pair, "POST", &posts, &mut findings, &mut step).await?;
    let (mut said, differs) = findings.said(name, &gets, pair.is_set);
    let about = caller.shared.warm.about(&pair.warm, pair.owner, &pair.file);
    let left = about.map(|about| about.left).unwrap_or_default();
    if !left.is_empty() {
        let names = left.join(", ");
        said.push_str(&format!(
            "\n    loaded by each request, for they do more than load, or fail: {names}"
        ));
    }
    if let Some(why) = parked {
        said.push_str(&format!(
            "\n    parked, a process for each request, for it cannot be forked: it {why}"
        ));
    }
    let verdict = if differs {
        WarmVerdict::Wrong
    } else {
        WarmVerdict::Fine
    };
    Ok((said, verdict))
}

/// Asks again, later, where something differs.
async fn confirm(
    caller: &Caller,
    pair: &ProgramPair,
    method: &str,
    rounds: &findings::Rounds,
    findings: &mut Findings,
    step: &mut dyn FnMut(&str),
) -> Result<(), Endless> {
    let again = match rounds.is_suspicious() {
        true => {
            tokio::time::sleep(LATER).await;
            Some(pair.rounds(caller, method, AGAIN, step).await?)
        }
        false => None,
    };
    findings.note(method, rounds, again.as_ref());
    Ok(())
}
