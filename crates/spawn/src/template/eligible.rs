//! Whether a stopped program can be forked: one thread, the expected descriptors, nothing shared.

use super::Loaded;
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Descriptors a template has: the standard ones and its socket.
const EXPECTED: i32 = 3;

/// Adds the files that `pid` has mapped, and what stands in the way of forking it, unless it said
/// so itself.
pub(super) fn examine(pid: i32, loaded: &mut Loaded) -> io::Result<()> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let shared = mapped(&proc, loaded)?;
    if loaded.obstacle.is_none() {
        loaded.obstacle = threads(&proc)?
            .or(descriptors(&proc)?)
            .or(shared)
            .or(timers(&proc)?)
            .or(children(&proc, pid)?);
    }
    Ok(())
}

/// The mapped files; a shared writable mapping would be one of all children.
fn mapped(proc: &Path, loaded: &mut Loaded) -> io::Result<Option<String>> {
    let mut obstacle = None;
    for line in fs::read_to_string(proc.join("maps"))?.lines() {
        let mut words = line.splitn(6, ' ');
        let mode = words.nth(1).unwrap_or_default();
        let path = words.nth(3).unwrap_or_default().trim_start();
        if mode.starts_with("rw") && mode.ends_with('s') {
            obstacle = Some(format!("shares memory with other processes ({path})"));
        }
        let deleted = path.ends_with(" (deleted)");
        if path.starts_with('/') && !path.starts_with("/memfd:") && !deleted {
            loaded.files.insert(path.into());
        }
    }
    Ok(obstacle)
}

fn threads(proc: &Path) -> io::Result<Option<String>> {
    let mut names = Vec::new();
    for task in fs::read_dir(proc.join("task"))? {
        let name = fs::read_to_string(task?.path().join("comm"))?;
        names.push(name.trim_end().to_owned());
    }
    let many = names.len() > 1;
    Ok(many.then(|| format!("runs {} threads ({})", names.len(), names.join(", "))))
}

fn descriptors(proc: &Path) -> io::Result<Option<String>> {
    for entry in fs::read_dir(proc.join("fd"))? {
        let entry = entry?;
        let number: i32 = entry.file_name().to_string_lossy().parse().unwrap_or(-1);
        if number <= EXPECTED {
            continue;
        }
        let target = fs::read_link(entry.path())?.display().to_string();
        let what = match target.split_once(':') {
            Some(("socket", _)) => "a socket".to_owned(),
            Some(("pipe", _)) => "a pipe".to_owned(),
            _ => target,
        };
        return Ok(Some(format!(
            "opens {what} while loading: open it below the first line, or keep the program cold"
        )));
    }
    Ok(None)
}

/// timer_create(2); the kernel shows them where it can save and restore processes.
fn timers(proc: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(proc.join("timers")) {
        Ok(timers) if !timers.is_empty() => Ok(Some("sets a timer while loading".to_owned())),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(None),
    }
}

/// Processes it started while loading and that still run.
fn children(proc: &Path, pid: i32) -> io::Result<Option<String>> {
    match fs::read_to_string(proc.join(format!("task/{pid}/children"))) {
        Ok(pids) if !pids.trim().is_empty() => Ok(Some(
            "starts a process while loading that still runs".to_owned(),
        )),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(None),
    }
}
