//! The processes of a request, found by a variable that only they have.

use std::{fs, path::Path, time::Instant};

use crate::PATIENCE;

/// The variable.
pub(crate) const MARK: &str = "GALGO_TEST_MARK";

/// A value for [`MARK`] that nobody else uses.
pub(crate) fn mark(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// The command lines of the processes whose environment holds the mark.
pub(crate) fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        // Processes end while they are looked at.
        let Ok(environment) = fs::read(entry.path().join("environ")) else {
            continue;
        };
        if environment
            .split(|&b| b == 0)
            .any(|v| v == wanted.as_bytes())
            && !waits_for_a_request(&entry.path(), &environment)
        {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}

/// A program kept loaded, or a child of one that waits: it has a socket to the server, which is
/// closed before anything of a request runs.
fn waits_for_a_request(process: &Path, environment: &[u8]) -> bool {
    let template = |v: &[u8]| v.starts_with(b"GALGO_TEMPLATE=");
    let socket = |fd: fs::DirEntry| {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        target
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(b"socket:")
    };
    environment.split(|&b| b == 0).any(template)
        && fs::read_dir(process.join("fd")).is_ok_and(|fds| fds.flatten().any(socket))
}

/// Waits until `reached` says so.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
