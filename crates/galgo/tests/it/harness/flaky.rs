//! A second try for a test that failed, where CI asks for it: three in a whole run, and each is reported. Nothing that guards
//! secrets, rights or data is tried again.

use std::{any::Any, env, fs, io::Write, sync::Mutex};

/// Names the file that lists tests that failed once; it is empty when a run of CI begins.
const FILE: &str = "GALGO_TEST_FLAKY";

/// As many failures of a whole run are tried again.
const MOST: usize = 3;

/// Tests of clocks, of shares, and of processes that come and go: a machine that stands still for a while can fail these.
const MODULES: [&str; 16] = [
    "acme::",
    "cgi::clocks::",
    "faults::fair::",
    "faults::limits::",
    "faults::many::",
    "faults::slow::",
    "faults::upstreams::",
    "framing::clocks::",
    "handshakes::",
    "reload::",
    "server::",
    "upgrade::",
    "warm::faults::",
    "warm::parked::",
    "warm::unheard::",
    "websocket::",
];

static LOCK: Mutex<()> = Mutex::new(());

/// Runs `test` again after it has failed with `thrown`, if that is allowed. Returns its second result, or the first.
pub fn try_again<T>(
    name: &str,
    thrown: Box<dyn Any + Send>,
    test: impl Fn() -> Result<T, Box<dyn Any + Send>>,
) -> Result<T, Box<dyn Any + Send>> {
    let Some(file) = env::var_os(FILE) else {
        return Err(thrown);
    };
    let is_listed = MODULES.iter().any(|module| name.starts_with(module));
    let listed = || fs::read_to_string(&file).unwrap_or_default();
    if !is_listed || listed().lines().count() >= MOST {
        return Err(thrown);
    }
    let done = test()?;
    let line = format!("FLAKY {name}: {}", said(&*thrown).replace('\n', " "));
    eprintln!("{line}");
    let _one = LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut list = fs::File::options()
        .create(true)
        .append(true)
        .open(&file)
        .unwrap();
    writeln!(list, "{line}").unwrap();
    Ok(done)
}

/// Returns the message of a panic.
fn said(thrown: &(dyn Any + Send)) -> String {
    let text = thrown.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| thrown.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
