//! The tools of every test here, beside `galgo_testkit`: [`new_site`] makes the site, [`child`] is the program that answers,
//! [`watch`] checks the points that must hold after every fault.
//!
//! A module of tests ends with `list![name, other_name];`, and `main` lists the module.

pub mod child;
pub mod disk;
mod flaky;
pub mod inject;
pub mod over_http2;
pub mod over_tls;
pub mod upstream;
pub mod watch;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind},
    path::Path,
    sync::Arc,
};

use galgo_testkit::{Site, Spoken};
use libtest_mimic::{Completion, Failed, Trial};

/// A test: its name and the function that runs it.
#[derive(Clone)]
pub struct Test {
    name: String,
    run: Arc<dyn Fn() + Send + Sync>,
}

impl Test {
    /// Makes a test of the module `module`.
    pub fn new(module: &str, name: &str, run: impl Fn() + Send + Sync + 'static) -> Self {
        let module = module.strip_prefix("it::").unwrap_or(module);
        Self {
            name: format!("{module}::{name}"),
            run: Arc::new(run),
        }
    }
}

thread_local! {
    /// GALGO_TEST_OUTPUT for the servers that this thread's test starts.
    static OUTPUT: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// The configuration of every site here, unless its test says otherwise.
const USUAL: &str = r#"
listen = ["127.0.0.1:0"]
access_log = "access.log"
log_format = "json"
# Longer than a machine stands still: what is no test of these clocks does not meet them.
head_timeout = "2m"
queue_wait = "2m"
shutdown_grace = "2m"
[defaults]
[[route]]
path = "/health"
respond = { type = "text/plain", body = "fine" }
[[route]]
path = "/cgi-bin/"
cgi = "cgi-bin"
[[route]]
path = "/"
files = "public"
"#;

/// Returns the usual site: programs at `/cgi-bin/`, where `t` is [`child`], files at `/`, a constant answer at `/health`.
pub fn new_site() -> Site {
    // The folder is beside the test binary, so that programs can be links to the binary.
    let beside = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let site = Site::within(beside, env!("CARGO_BIN_EXE_galgo"));
    for folder in ["public", "marks"] {
        std::fs::create_dir(site.path(folder)).unwrap();
    }
    let site = site.config(USUAL).waiting().probe("/health");
    let site = match OUTPUT.get() {
        Some(way) => site.env("GALGO_TEST_OUTPUT", way),
        None => site,
    };
    site.own_binary("cgi-bin/t")
}

/// Checks that `galgo check` refuses this configuration with `words`. Returns its whole output.
#[track_caller]
pub fn check_refuses(site: &Site, config: &str, words: &str) -> String {
    site.write("galgo.toml", config);
    let done = site.galgo(&["check"]);
    let said = done.out + &done.err;
    assert!(
        done.code != 0 && said.contains(words),
        "{config}\nwanted: {words}\n{said}"
    );
    said
}

/// Returns the tests three times: with output moved as the server likes, always copied, always spliced. Over HTTP/2 output is
/// always copied, so each test is there once.
pub fn both_ways(tests: Vec<Test>) -> Vec<Test> {
    if Spoken::asked() == Some(Spoken::Http2) {
        return tests;
    }
    let way = |test: &Test, way: &'static str| {
        let run = test.run.clone();
        Test {
            name: format!("{}_{way}", test.name),
            run: Arc::new(move || {
                OUTPUT.set(Some(way));
                let done = catch_unwind(AssertUnwindSafe(|| run()));
                OUTPUT.set(None);
                if let Err(thrown) = done {
                    resume_unwind(thrown);
                }
            }),
        }
    };
    let forced: Vec<_> = tests
        .iter()
        .flat_map(|test| [way(test, "copied"), way(test, "spliced")])
        .collect();
    [tests, forced].concat()
}

/// Lists the tests of a module.
macro_rules! list {
    ($($name:ident),* $(,)?) => {
        /// Returns the tests of this module.
        pub fn tests() -> Vec<$crate::harness::Test> {
            vec![$($crate::harness::Test::new(module_path!(), stringify!($name), $name)),*]
        }
    };
}
pub(crate) use list;

/// Ends a test that this machine cannot run. The test is counted and reported with the reason.
macro_rules! skip {
    ($($why:tt)*) => { std::panic::panic_any($crate::harness::Skipped(format!($($why)*))) };
}
#[allow(unused_imports)]
pub(crate) use skip;

/// Thrown by [`skip!`].
#[derive(Debug)]
pub struct Skipped(pub String);

/// Makes the tests of these names report why they do not run. A name that ends with `*` stands for all names that begin like it.
pub fn leave_out(tests: &mut [Test], names: &'static [(&str, &str)]) {
    for &(name, why) in names {
        let is_it = |test: &&mut Test| match name.strip_suffix('*') {
            Some(begin) => test.name.starts_with(begin),
            None => test.name == name,
        };
        let named = tests.iter_mut().filter(is_it).map(|test| {
            test.run = Arc::new(move || panic_any(Skipped(why.to_owned())));
        });
        assert!(named.count() > 0, "no test is named {name}");
    }
}

/// Ends a test if its user has too few rights: the server and the programs that it keeps loaded are closed to all users but
/// root.
pub fn needs_root() {
    if !rustix::process::geteuid().is_root() {
        skip!("it needs root");
    }
}

/// Turns tests into trials.
pub fn trials(tests: Vec<Test>) -> Vec<Trial> {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Skipped>() {
            quiet(info);
        }
    }));
    let trial = |test: Test| {
        let name = test.name.clone();
        Trial::ignorable_test(test.name, move || run(&name, &*test.run))
    };
    tests.into_iter().map(trial).collect()
}

fn run(name: &str, test: &dyn Fn()) -> Result<Completion, Failed> {
    let once = || match catch_unwind(AssertUnwindSafe(test)) {
        Ok(()) => Ok(Completion::Completed),
        Err(thrown) => match thrown.downcast::<Skipped>() {
            Ok(skipped) => Ok(Completion::ignored_with(skipped.0)),
            Err(thrown) => Err(thrown),
        },
    };
    match once().or_else(|thrown| flaky::try_again(name, thrown, once)) {
        Ok(completion) => Ok(completion),
        Err(thrown) => resume_unwind(thrown),
    }
}

/// Raises the soft limit of descriptors up to the hard limit, because tests hold thousands of connections.
pub fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let to = |most: Option<u64>| Rlimit {
        current: most,
        maximum: most,
    };
    // Only root may raise the hard limit. A test for which both limits are too low says so when it runs.
    if setrlimit(Resource::Nofile, to(Some(1 << 16))).is_err() {
        let _ = setrlimit(Resource::Nofile, to(now.maximum));
    }
}

/// Percent-encodes bytes that may not stand in a query, or that mean something to [`child`].
pub fn encode(text: impl AsRef<[u8]>) -> String {
    let byte = |&b: &u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'/' | b':' => {
            char::from(b).to_string()
        }
        b => format!("%{b:02X}"),
    };
    text.as_ref().iter().map(byte).collect()
}

list![the_harness_itself];

/// The eight points hold if nothing goes wrong.
fn the_harness_itself() {
    let server = new_site().start();
    let watch = watch::Watch::begin(&server);
    let reply = server.get("/cgi-bin/t?head&out=hello");
    assert_eq!((reply.status, reply.text()), (200, "hello".into()));
    watch.after(&["ok"]);
}
