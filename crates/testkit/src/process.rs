//! Processes, as proc(5) shows them.

use std::{fs, io, path::Path};

use rustix::process::Pid;

use crate::wait::wait_until;

/// Converts a process id for system calls.
pub fn pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// Returns the ids of all processes.
pub fn pids() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
}

/// Returns the state of a process, and its parent; `None` if the process is gone.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut behind = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = behind.next()?.chars().next()?;
    Some((state, behind.next()?.parse().ok()?))
}

/// Returns the parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|(_, parent)| parent)
}

/// Waits until a process is gone, or is a zombie that only waits for its parent.
#[track_caller]
pub fn assert_gone(pid: u32) {
    wait_until(&format!("the end of process {pid}"), || {
        stat(pid).is_none_or(|(state, _)| matches!(state, 'Z' | 'X'))
    });
}

/// Returns the number of open descriptors of a process; 0 for a server whose descriptors only root may see.
pub fn descriptors(pid: u32) -> usize {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => 0,
        listing => listing.unwrap().count(),
    }
}

/// Returns a figure of `/proc/PID/status`.
pub fn figure(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(name)).unwrap();
    let figure = line.split_whitespace().nth(1).unwrap();
    figure.parse().unwrap()
}

/// Returns a figure of `/proc/PID/status` in bytes.
pub fn memory(pid: u32, name: &str) -> u64 {
    figure(pid, name) << 10
}

/// Returns whether all threads of a process are in this state of proc_pid_stat(5). `S`: they wait. `T`: SIGSTOP has stopped
/// them, including those on other processors.
pub fn all_threads_are(state: char, pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let is = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let after_the_name = stat.rsplit(") ").next();
        after_the_name.is_some_and(|rest| rest.starts_with(state))
    };
    threads.flatten().all(is)
}

/// Returns the children of a process. Exited children are included, but children that wait for a request are not.
pub fn children(of: u32) -> Vec<u32> {
    let own = |pid: &u32| parent(*pid) == Some(of) && !waits_for_a_request(*pid);
    pids().filter(own).collect()
}

/// Whether this is a program kept loaded, or a child of such a program that waits for a request. Both have a socket to the
/// server, which is closed before any code of a request runs.
pub fn waits_for_a_request(pid: u32) -> bool {
    let socket = |fd: fs::DirEntry| {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        let target = target.as_os_str().as_encoded_bytes();
        target.starts_with(b"socket:")
    };
    let environ = match fs::read(format!("/proc/{pid}/environ")) {
        // These are the only children of the server whose environment the server's user may not read.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return true,
        environ => environ.unwrap_or_default(),
    };
    has(&environ, b"GALGO_TEMPLATE=", b"")
        && fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|fds| fds.flatten().any(socket))
}

/// Whether an environment has a variable `name` whose value begins with `start`.
fn has(environ: &[u8], name: &[u8], start: &[u8]) -> bool {
    let starts = |v: &[u8]| v.strip_prefix(name).is_some_and(|v| v.starts_with(start));
    environ.split(|&b| b == 0).any(starts)
}

/// Returns the processes whose SCRIPT_FILENAME is in `site`, and the processes that were forked from a template and execute a
/// file of `site`.
pub fn of_site(site: &Path) -> Vec<u32> {
    let site = site.as_os_str().as_encoded_bytes();
    let inside = |pid: &u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let exe = || fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let inside = || exe().as_os_str().as_encoded_bytes().starts_with(site);
        has(&environ, b"SCRIPT_FILENAME=", site)
            || has(&environ, b"GALGO_TEMPLATE=", b"") && inside() && !waits_for_a_request(*pid)
    };
    pids().filter(inside).collect()
}

/// Returns the processes with the variable `NAME=value` in their environment.
pub fn with_variable(variable: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&b| b == 0).any(|v| v == variable.as_bytes())
    };
    pids().filter(has).collect()
}

/// Returns the command line of a process, with a space after each word.
pub fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}
