//! `galgo check --warm`: each program cold and warm, side by side, and what differs.
//!
//! 1. the same requests to two routes that differ in `start` alone  2. compare the answers; what
//!    varies from one cold start to the next is no difference  3. say it in one line

use std::{
    cell::RefCell,
    ffi::CString,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use galgo_proto::Fields;
use galgo_spawn::Exit;
use tokio::time::Instant;

use super::{
    request,
    site::{Owner, Place},
};
use crate::{
    body::{Body, Response},
    cli::{self, Site, programs},
    config::{Cgi, CgiOptions, CgiRoot, Config, Handler, Handover, LogTo, Route, Sight, StartMode},
    conn::{
        Request,
        input::{Input, RequestBody},
    },
    handler::{self, Answer, cgi},
    log::access::Entry,
    route, tick,
    worker::Worker,
};

/// Times that each way is measured.
const TIMES: usize = 7;
/// How long a program may take to have two templates that know all its modules.
const SETTLES: Duration = Duration::from_secs(5);
/// The body of POST: a form that no program expects.
const FORM: &[u8] = b"galgo=check";

/// Compares one program, or all of a site.
pub(in crate::cli) fn check(site: &Site, program: Option<&Path>) -> Result<ExitCode, String> {
    let (mut config, owners) = match program {
        Some(program) => {
            let place = Place::of(program, site.config.as_deref())?;
            (place.config, vec![place.route])
        }
        None => {
            let config = site.load()?;
            let owners = all(&config);
            (config, owners)
        }
    };
    cli::assume(&config)?;
    config.templates.wait = true;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("starting the event loop: {e}"))?;
    let local = tokio::task::LocalSet::new();
    let _entered = runtime.enter();
    let worker = super::worker(config, LogTo::File("/dev/null".into()))?;
    let differ = local.block_on(&runtime, async {
        tokio::select! {
            done = compare_all(&worker, &owners) => done,
            () = tick::run() => Ok(false), // never: it drives the clocks
        }
    });
    // Who closes the pipe has read enough.
    Ok(match differ {
        Ok(true) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Every program of a site that would not fail.
fn all(config: &Config) -> Vec<Owner> {
    let mut owners = Vec::new();
    for route in &config.routes {
        let Handler::Cgi(cgi) = &route.handler else {
            continue;
        };
        let fine = |seen: &programs::Seen| seen.verdict() <= programs::Verdict::Warns;
        let program = |seen: &programs::Seen| matches!(seen.state, programs::State::Program(_));
        let seen = programs::all(config, route, cgi);
        owners.extend(seen.filter(|s| program(s) && fine(s)).map(|seen| Owner {
            route: route.clone(),
            url: seen.url,
        }));
    }
    owners
}

/// Whether one differs.
async fn compare_all(worker: &Rc<Worker>, owners: &[Owner]) -> io::Result<bool> {
    let mut differ = false;
    for owner in owners {
        let (said, differs) = compare(worker, owner).await;
        differ |= differs;
        writeln!(io::stdout(), "{said}")?;
    }
    Ok(differ)
}

/// What is said of a program, and whether it differs.
async fn compare(worker: &Rc<Worker>, owner: &Owner) -> (String, bool) {
    let Some(pair) = Pair::of(owner) else {
        let url = String::from_utf8_lossy(&owner.url).into_owned();
        return (format!("{url}: is gone"), false);
    };
    let file = pair.file.to_string_lossy().into_owned();
    let name = cli::near(Path::new(&file));
    let _ = pair.ask(worker, &pair.warm, "GET").await; // loads it, and teaches
    let parked = match pair.settle(worker).await {
        Ok(parked) => parked,
        Err(obstacle) => return (format!("{name}: stays cold: {obstacle}"), false),
    };
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        cold.push(pair.ask(worker, &pair.cold, "GET").await);
        warm.push(pair.ask_ready(worker, "GET").await);
    }
    let mut findings = Findings::default();
    findings.note("GET", &cold, &warm[0]);
    let posted = pair.ask_ready(worker, "POST").await;
    let mut posts = Vec::new();
    // Two suffice where nothing differs; what does may vary from one cold start to the next.
    while posts.len() < 2 || posts.len() < TIMES && !posted.is_as(&posts) {
        posts.push(pair.ask(worker, &pair.cold, "POST").await);
    }
    findings.note("POST", &posts, &posted);
    let set = pair.is_set;
    let (mut said, differs) = findings.said(&name, median(&cold), median(&warm), set);
    let about = worker.server.warm.about(&pair.warm, &pair.file);
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
    (said, differs)
}

/// A program on two routes.
struct Pair {
    cold: Arc<Route>,
    warm: Arc<Route>,
    url: Vec<u8>,
    /// SCRIPT_FILENAME.
    file: CString,
    /// It starts warm already.
    is_set: bool,
}

/// An answer, taken apart.
#[derive(Debug, Clone)]
struct Answered {
    /// Status, headers, body, stderr, exit status: named in [`PARTS`].
    parts: [Vec<u8>; 5],
    took: Duration,
}

impl Answered {
    /// Each part is as one of the others has it.
    fn is_as(&self, others: &[Self]) -> bool {
        let seen = |(at, part)| others.iter().any(|o| &o.parts[at] == part);
        self.parts.iter().enumerate().all(seen)
    }
}

const PARTS: [&str; 5] = ["status", "headers", "body", "stderr", "exit status"];

impl Pair {
    fn of(owner: &Owner) -> Option<Self> {
        let cgi = owner.cgi()?;
        let found = route::program(cgi, &owner.route.path, &owner.url).ok()?;
        let route = |start| -> Option<Arc<Route>> {
            let options = CgiOptions {
                start,
                ..cgi.options.clone()
            };
            Some(Arc::new(Route {
                host: owner.route.host.clone(),
                path: owner.route.path.clone(),
                authorizer: None,
                handler: Handler::Cgi(Cgi {
                    root: CgiRoot::open(cgi.root.path()).ok()?,
                    document_root: cgi.document_root.clone(),
                    env: cgi.env.clone(),
                    interpreters: cgi.interpreters.clone(),
                    // Modules start as they do, and a file handed over is the server's to send.
                    handover: Handover::default(),
                    sight: Sight::default(),
                    options,
                }),
            }))
        };
        Some(Self {
            cold: route(StartMode::Cold)?,
            warm: route(StartMode::Warm)?,
            url: owner.url.clone(),
            file: found.script_filename.clone(),
            is_set: cgi.options.start == StartMode::Warm,
        })
    }

    /// Waits until nothing more is learned and all processes are there; why it is parked, where it is.
    ///
    /// # Errors
    /// Why it is not warm.
    async fn settle(&self, worker: &Rc<Worker>) -> Result<Option<String>, String> {
        let began = Instant::now();
        let longest = worker.server.warm.patience(SETTLES);
        loop {
            let warm = &worker.server.warm;
            let Some(about) = warm.about(&self.warm, &self.file) else {
                return Err("templates are switched off, or there is no inotify".into());
            };
            if let Some(obstacle) = about.obstacle {
                return Err(obstacle);
            }
            if about.settled || began.elapsed() > longest {
                return Ok(about.parked);
            }
            // A process that is parked would be gone with the answer.
            if about.parked.is_none() {
                let _ = self.ask(worker, &self.warm, "GET").await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks the warm one, when all its processes are there.
    async fn ask_ready(&self, worker: &Rc<Worker>, method: &str) -> Answered {
        let _ = self.settle(worker).await; // it is no other by now
        self.ask(worker, &self.warm, method).await
    }

    async fn ask(&self, worker: &Rc<Worker>, route: &Arc<Route>, method: &str) -> Answered {
        let began = Instant::now();
        let mut answered = match self.answer(worker, route, method).await {
            Ok(answered) => answered,
            Err(why) => Answered {
                parts: [b"none".to_vec(), vec![], why.into_bytes(), vec![], vec![]],
                took: Duration::ZERO,
            },
        };
        if answered.took.is_zero() {
            answered.took = began.elapsed();
        }
        answered
    }

    async fn answer(
        &self,
        worker: &Rc<Worker>,
        route: &Arc<Route>,
        method: &str,
    ) -> Result<Answered, String> {
        let body = if method == "POST" { FORM } else { b"" };
        let site = worker.site();
        let request::Made { head, body, link } =
            request::plain(&site.config, route, &self.url, method, body)?;
        let mut input = Input::whole(body, &site.config.http);
        let mut body = RequestBody::new(head.body);
        let entry = Entry::new(worker.ids.next(), link.remote.clone(), Some(head.clone()));
        let entry = Rc::new(RefCell::new(entry));
        let mut request = Request {
            last: true,
            ..Request::new(head.clone(), &site, &link, &mut input, &mut body, entry)
        };
        let Handler::Cgi(cgi) = &route.handler else {
            return Err("no program".into());
        };
        let answer = match route::program(cgi, &route.path, head.target.path()) {
            Ok(script) => cgi::answer(worker, &mut request, &head, route, cgi, script).await,
            Err(refusal) => Err(handler::refused(refusal)),
        };
        let parts = match answer {
            Ok(Answer::Response(response)) => return taken(&mut request, response).await,
            Ok(Answer::Local(to)) => [b"200".to_vec(), vec![], to.into_bytes(), vec![], vec![]],
            Err(fault) => [
                fault.status().to_string().into_bytes(),
                vec![],
                fault.to_string().into_bytes(),
                request.stderr.clone().into_bytes(),
                ended(request.entry.borrow().exit),
            ],
        };
        let took = request.began.elapsed();
        Ok(Answered { parts, took })
    }
}

/// Reads a response to its end.
async fn taken(request: &mut Request<'_>, response: Response) -> Result<Answered, String> {
    let Body::Program(output) = response.body else {
        return Err("no program's answer".into()); // INVARIANT: programs answer so
    };
    let mut program = output.program;
    // All of it is kept, in the buffer that the head was read into.
    while !program.output_ended() {
        let turn = program.turn(request.input, request.body).await;
        turn.map_err(|fault| fault.to_string())?;
    }
    program.out().join();
    let text = program.out().front().to_vec();
    let took = request.began.elapsed();
    let (exit, stderr) = program.post_mortem(false).await;
    let parts = [
        response.status.to_string().into_bytes(),
        lines(&response.fields),
        text,
        stderr.into_bytes(),
        ended(exit),
    ];
    Ok(Answered { parts, took })
}

fn lines(fields: &Fields) -> Vec<u8> {
    let line = |(name, value): (&[u8], &[u8])| [name, b": ", value, b"\n"].concat();
    fields.iter().flat_map(line).collect()
}

fn ended(exit: Option<Exit>) -> Vec<u8> {
    let status = exit.map(|e| format!("{:?}", e.status));
    status.unwrap_or_default().into_bytes()
}

fn median(answers: &[Answered]) -> f64 {
    let mut all: Vec<_> = answers.iter().map(|a| a.took).collect();
    all.sort_unstable();
    all[all.len() / 2].as_secs_f64() * 1e3
}

#[derive(Debug, Default)]
struct Findings {
    differences: Vec<String>,
    /// Parts that vary from one cold start to the next.
    vary: Vec<String>,
}

impl Findings {
    fn note(&mut self, method: &str, cold: &[Answered], warm: &Answered) {
        for (at, part) in PARTS.iter().enumerate() {
            let of = |a: &Answered| a.parts[at].clone();
            let first = of(&cold[0]);
            if cold.iter().any(|c| of(c) != first) {
                self.vary.push(format!("{part} of {method}"));
            } else if of(warm) != first {
                let (cold, warm) = differing(&first, &of(warm));
                let said = format!("{part} of {method}: cold {cold:?}, warm {warm:?}");
                self.differences.push(said);
            }
        }
    }

    /// The lines that are printed, and whether something differs.
    fn said(&self, name: &str, cold: f64, warm: f64, is_set: bool) -> (String, bool) {
        let differs = !self.differences.is_empty();
        let verdict = match () {
            () if differs => "differs; keep start = \"cold\"",
            () if is_set => "identical; start = \"warm\" is set",
            () if warm >= cold => "identical; nothing is gained",
            () => "identical; set start = \"warm\"",
        };
        let mut said = format!("{name}: cold {cold:.1} ms, warm {warm:.1} ms, {verdict}");
        for difference in &self.differences {
            said.push_str(&format!("\n    {difference}"));
        }
        if !self.vary.is_empty() {
            let vary = self.vary.join(", ");
            said.push_str(&format!("\n    varies when cold, too: {vary}"));
        }
        (said, differs)
    }
}

/// The first lines that are not the same.
fn differing(cold: &[u8], warm: &[u8]) -> (String, String) {
    let line = |text: &[u8], at: usize| {
        let line = text.split(|&b| b == b'\n').nth(at).unwrap_or_default();
        String::from_utf8_lossy(line).chars().take(80).collect()
    };
    let mut pairs = cold.split(|&b| b == b'\n').zip(warm.split(|&b| b == b'\n'));
    let same = pairs.position(|(c, w)| c != w);
    let at = same.unwrap_or_else(|| {
        let lines = |text: &[u8]| memchr::memchr_iter(b'\n', text).count() + 1;
        lines(cold).min(lines(warm))
    });
    (line(cold, at), line(warm, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(body: &str) -> Answered {
        Answered {
            parts: [vec![], vec![], body.into(), vec![], vec![]],
            took: Duration::from_millis(36),
        }
    }

    #[test]
    fn what_varies_anyway_is_no_difference() {
        let mut findings = Findings::default();
        findings.note("GET", &[answered("1"), answered("2")], &answered("3"));
        findings.note(
            "POST",
            &[answered("a\nb"), answered("a\nb")],
            &answered("a\nb"),
        );
        let (said, differs) = findings.said("p", 36.12, 4.0, false);
        assert!(!differs);
        assert_eq!(
            said,
            "p: cold 36.1 ms, warm 4.0 ms, identical; set start = \"warm\"\n    \
             varies when cold, too: body of GET"
        );
        findings.note(
            "POST",
            &[answered("a\nb"), answered("a\nb")],
            &answered("a\nc"),
        );
        let (said, differs) = findings.said("p", 1.0, 2.0, true);
        assert!(differs);
        assert!(
            said.contains("\n    body of POST: cold \"b\", warm \"c\""),
            "{said}"
        );
    }
}
