//! Processes, as proc(5) shows them.

use std::{fs, io, path::Path};

use rustix::process::Pid;

use crate::wait::wait_until;

/// A process id as system calls take it.
pub fn pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// All processes.
pub fn pids() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
}

/// The state of a process, and its parent; `None`: it is gone.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut behind = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = behind.next()?.chars().next()?;
    Some((state, behind.next()?.parse().ok()?))
}

/// The parent of a process.
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

/// Open descriptors of a process; 0 of a server, where that is not root's to see.
pub fn descriptors(pid: u32) -> usize {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => 0,
        listing => listing.unwrap().count(),
    }
}

/// A figure of `/proc/PID/status`.
pub fn figure(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(name)).unwrap();
    let figure = line.split_whitespace().nth(1).unwrap();
    figure.parse().unwrap()
}

/// A figure of `/proc/PID/status` in bytes.
pub fn memory(pid: u32, name: &str) -> u64 {
    figure(pid, name) << 10
}

/// Whether all threads of a process are in that state of proc_pid_stat(5): `S`, they wait; `T`, SIGSTOP has stopped them, also
/// those on another processor.
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

/// Children of a process, exited ones among them, but none that waits for a request.
pub fn children(of: u32) -> Vec<u32> {
    let own = |pid: &u32| parent(*pid) == Some(of) && !waits_for_a_request(*pid);
    pids().filter(own).collect()
}

/// A program kept loaded, or a child of one that waits: it has a socket to the server, which is
/// closed before anything of a request runs.
pub fn waits_for_a_request(pid: u32) -> bool {
    let socket = |fd: fs::DirEntry| {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        let target = target.as_os_str().as_encoded_bytes();
        target.starts_with(b"socket:")
    };
    let environ = match fs::read(format!("/proc/{pid}/environ")) {
        // Of the server's children these alone are closed to the server's user.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return true,
        environ => environ.unwrap_or_default(),
    };
    has(&environ, b"GALGO_TEMPLATE=", b"")
        && fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|fds| fds.flatten().any(socket))
}

/// Whether an environment has a variable whose value begins so.
fn has(environ: &[u8], name: &[u8], start: &[u8]) -> bool {
    let starts = |v: &[u8]| v.strip_prefix(name).is_some_and(|v| v.starts_with(start));
    environ.split(|&b| b == 0).any(starts)
}

/// Processes with `site` in their environment, SCRIPT_FILENAME; or that were forked from a template
/// and execute a file of it.
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

/// Processes with the variable `NAME=value` in their environment.
pub fn with_variable(variable: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|&b| b == 0).any(|v| v == variable.as_bytes())
    };
    pids().filter(has).collect()
}

/// Its command line, the words with a space behind each.
pub fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}
