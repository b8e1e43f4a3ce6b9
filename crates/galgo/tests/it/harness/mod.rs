//! What every test here is made of: a [`Site`] becomes a running [`Server`], a [`Client`] speaks raw
//! bytes to it, and [`child`] is the program that answers.
//!
//! A module of tests ends with `list![name, other_name];`, and `main` lists the module.

pub mod child;
pub mod client;
pub mod disk;
pub mod inject;
pub mod server;
pub mod upstream;
pub mod watch;

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use libtest_mimic::{Completion, Failed, Trial};

pub use client::{Client, End, Reply};
pub use server::{Server, Site, compile};

/// A test: its name and what it does.
#[derive(Clone)]
pub struct Test {
    name: String,
    run: Arc<dyn Fn() + Send + Sync>,
}

impl Test {
    /// A test of the module `module`.
    pub fn new(module: &str, name: &str, run: impl Fn() + Send + Sync + 'static) -> Self {
        let module = module.strip_prefix("it::").unwrap_or(module);
        Self {
            name: format!("{module}::{name}"),
            run: Arc::new(run),
        }
    }
}

thread_local! {
    /// GALGO_TEST_OUTPUT of the servers that this thread's test starts.
    static OUTPUT: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// How the server of the running test must move what programs print.
pub fn output() -> Option<&'static str> {
    OUTPUT.get()
}

/// The same tests three times: with output moved as the server likes, always copied, always spliced.
pub fn both_ways(tests: Vec<Test>) -> Vec<Test> {
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

/// Nothing that a test waits for takes longer, on the slowest machine.
pub const LONG: Duration = Duration::from_secs(180);

/// Lists the tests of a module.
macro_rules! list {
    ($($name:ident),* $(,)?) => {
        /// The tests of this module.
        pub fn tests() -> Vec<$crate::harness::Test> {
            vec![$($crate::harness::Test::new(module_path!(), stringify!($name), $name)),*]
        }
    };
}
pub(crate) use list;

/// Ends a test that this machine cannot run; it is counted and reported with the reason.
macro_rules! skip {
    ($($why:tt)*) => { std::panic::panic_any($crate::harness::Skipped(format!($($why)*))) };
}
#[allow(unused_imports)]
pub(crate) use skip;

/// Thrown by [`skip!`].
#[derive(Debug)]
pub struct Skipped(pub String);

/// Ends a test of which the user who runs it has too few rights: the server and what it keeps loaded are closed to all but root.
pub fn needs_root() {
    if !rustix::process::geteuid().is_root() {
        skip!("it needs root");
    }
}

/// Makes trials of tests.
pub fn trials(tests: Vec<Test>) -> Vec<Trial> {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<Skipped>() {
            quiet(info);
        }
    }));
    let trial = |test: Test| Trial::ignorable_test(test.name, move || run(&*test.run));
    tests.into_iter().map(trial).collect()
}

fn run(test: &dyn Fn()) -> Result<Completion, Failed> {
    match catch_unwind(AssertUnwindSafe(test)) {
        Ok(()) => Ok(Completion::Completed),
        Err(thrown) => match thrown.downcast::<Skipped>() {
            Ok(skipped) => Ok(Completion::ignored_with(skipped.0)),
            Err(thrown) => resume_unwind(thrown),
        },
    }
}

/// Waits until `state` is there; fails with `what` when it does not come.
pub fn eventually<T>(what: &str, mut state: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LONG;
    loop {
        if let Some(found) = state() {
            return found;
        }
        assert!(Instant::now() < until, "never came: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The soft limit of descriptors up to the hard one: tests hold thousands of connections.
pub fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let to = |most: Option<u64>| Rlimit {
        current: most,
        maximum: most,
    };
    // Only root may raise the hard limit; what both are too low for says so when it runs.
    if setrlimit(Resource::Nofile, to(Some(1 << 16))).is_err() {
        let _ = setrlimit(Resource::Nofile, to(now.maximum));
    }
}

/// Percent-encodes what may not stand in a query, or means something to [`child`].
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

/// The eight points hold where nothing goes wrong.
fn the_harness_itself() {
    let server = Site::new().start();
    let watch = server.watch();
    let reply = server.get("/cgi-bin/t?head&out=hello");
    assert_eq!((reply.status, reply.text()), (200, "hello".into()));
    watch.after(&["ok"]);
}
