//! Checks whether a stopped program can be used: it must have the expected descriptors, share nothing and run nothing. If it is
//! to be forked, it must have one thread. Node has three more threads, which wait for work and hold nothing, and the
//! descriptors of its event loops; its children replace those descriptors (node_loop.c). Ruby may have one more thread, and
//! replaces it itself.

use super::reports::LoadedTemplate;
use crate::{
    FileId,
    template_kind::{TemplateKind, Uses},
};
use rustix::fs::OFlags;
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// The highest descriptor that a template has: the standard ones and its socket.
const EXPECTED: i32 = 3;

/// Adds the files that `pid` has mapped, the memory that it holds, and the obstacle to using it, unless the program has
/// reported an obstacle itself.
pub(super) fn examine(
    pid: i32,
    kind: TemplateKind,
    uses: Uses,
    streams: &[FileId; 3],
    loaded: &mut LoadedTemplate,
) -> io::Result<()> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let shared = add_mapped_files(&proc, loaded)?;
    loaded.memory = held_memory(&proc);
    if loaded.obstacle.is_none() {
        let threads = match uses {
            Uses::Many => check_threads(&proc, pid, kind)?,
            Uses::Once => None,
        };
        loaded.obstacle = threads
            .or(check_streams(&proc, streams)?)
            .or(check_descriptors(&proc, kind)?)
            .or(shared)
            .or(check_timers(&proc, kind)?)
            .or(check_children(&proc, pid)?);
    }
    Ok(())
}

/// Adds the mapped files. A shared writable mapping is an obstacle, because all children would share it.
fn add_mapped_files(proc: &Path, loaded: &mut LoadedTemplate) -> io::Result<Option<String>> {
    let mut obstacle = None;
    for line in fs::read_to_string(proc.join("maps"))?.lines() {
        let mut words = line.splitn(6, ' ');
        let mode = words.nth(1).unwrap_or_default();
        let path = words.nth(3).unwrap_or_default().trim_start();
        if mode.starts_with("rw") && mode.ends_with('s') {
            obstacle = Some(format!("shares memory with other processes ({path})"));
        }
        if !path.starts_with('/') || path.starts_with("/memfd:") {
            continue;
        }
        match path.strip_suffix(" (deleted)") {
            None => loaded.files.insert(path.into()),
            // The file was replaced; or the program has removed a file that no other process was to see.
            Some(file) => Path::new(file).is_file() && loaded.files.insert(file.into()),
        };
    }
    Ok(obstacle)
}

/// Returns the bytes that a process holds in memory, including its share of memory that it shares with others.
fn held_memory(proc: &Path) -> u64 {
    let text = fs::read_to_string(proc.join("smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("Pss:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Threads of Node besides its main one: one waits for delayed tasks, one (`--v8-pool-size=1`) for work, one for a signal that
/// starts the debugger.
const NODE_THREADS: usize = 3;

/// Since 3.3, Ruby has a thread that waits for timers. The shim has checked that the further thread is this one (ruby.c).
const RUBY_THREADS: usize = 1;

fn check_threads(proc: &Path, pid: i32, kind: TemplateKind) -> io::Result<Option<String>> {
    let (mut names, mut busy) = (Vec::new(), 0);
    for task in fs::read_dir(proc.join("task"))? {
        let task = task?;
        let name = fs::read_to_string(task.path().join("comm"))?;
        if task.file_name() != *pid.to_string() && !waits_for_work(&task.path(), name.trim_end()) {
            busy += 1;
        }
        names.push(name.trim_end().to_owned());
    }
    let expected = match kind {
        TemplateKind::Node if busy == 0 => 1 + NODE_THREADS,
        TemplateKind::Ruby if busy == 0 => 1 + RUBY_THREADS,
        _ => 1,
    };
    let many = names.len() > expected;
    Ok(many.then(|| format!("runs {} threads ({})", names.len(), names.join(", "))))
}

/// Returns whether a thread belongs to the harmless threads of Node, by its name and by the system call in which it sleeps.
/// Before Node 22 these threads have no names of their own, but the program's name.
fn waits_for_work(task: &Path, name: &str) -> bool {
    // The shim stops the worker in sleep(3).
    const SLEEPS: [i64; 2] = [libc::SYS_futex, libc::SYS_clock_nanosleep];
    #[cfg(target_arch = "x86_64")]
    const POLLS: [i64; 2] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
    #[cfg(not(target_arch = "x86_64"))]
    const POLLS: [i64; 1] = [libc::SYS_epoll_pwait];
    let call = fs::read_to_string(task.join("syscall")).unwrap_or_default();
    let call: i64 = call
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(-1);
    let other = name.starts_with("libuv") || name.starts_with("Inspector");
    !other && (SLEEPS.contains(&call) || POLLS.contains(&call))
}

/// Checks the standard streams. Each child has the request's streams there, so a stream that the program has put there would be
/// lost.
fn check_streams(proc: &Path, streams: &[FileId; 3]) -> io::Result<Option<String>> {
    let names = ["input", "output", "error"];
    let mut all = (0..).zip(names.iter().zip(streams));
    let about = |number: i32| rustix::fs::stat(proc.join(format!("fd/{number}")));
    let is_replaced = |now: rustix::fs::Stat, then| !FileId::from_stat(&now).is_same_file(then);
    let replaced = all
        .find(|(number, (_, stream))| about(*number).map_or(true, |now| is_replaced(now, stream)));
    let Some((_, (name, _))) = replaced else {
        return Ok(None);
    };
    // A process that was killed meanwhile has no descriptors at all.
    about(EXPECTED).map_err(|_| ErrorKind::UnexpectedEof)?;
    Ok(Some(format!(
        "closes or replaces its standard {name} while loading: do that below the first line, or keep the program cold"
    )))
}

/// Returns whether a descriptor only names a file (O_PATH): children then share nothing through it.
fn is_path_only(proc: &Path, number: i32) -> io::Result<bool> {
    let about = read_proc_file(&proc.join(format!("fdinfo/{number}")))?;
    let flags = about.lines().find_map(|l| l.strip_prefix("flags:"));
    let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    Ok(flags.is_some_and(|flags| OFlags::from_bits_retain(flags).contains(OFlags::PATH)))
}

fn check_descriptors(proc: &Path, kind: TemplateKind) -> io::Result<Option<String>> {
    for entry in fs::read_dir(proc.join("fd"))? {
        let entry = entry?;
        let number: i32 = entry.file_name().to_string_lossy().parse().unwrap_or(-1);
        if number <= EXPECTED || is_path_only(proc, number)? {
            continue;
        }
        let target = fs::read_link(entry.path())?.display().to_string();
        // libuv keeps this descriptor to be able to refuse a connection when there are no descriptors left.
        if kind == TemplateKind::Node && target == "/dev/null" {
            continue;
        }
        let what = match target.split_once(':') {
            Some(("anon_inode", "[eventpoll]" | "[eventfd]") | ("pipe", _))
                if matches!(kind, TemplateKind::Node | TemplateKind::Ruby) =>
            {
                continue;
            }
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

/// Checks for timers of timer_create(2); the kernel shows them if it can save and restore processes.
///
/// Ruby has a timer of its own, and replaces it in each child.
fn check_timers(proc: &Path, kind: TemplateKind) -> io::Result<Option<String>> {
    let own = usize::from(kind == TemplateKind::Ruby);
    let timers = read_proc_file(&proc.join("timers"))?;
    let many = timers.lines().filter(|l| l.starts_with("ID:")).count() > own;
    Ok(many.then(|| "sets a timer while loading".to_owned()))
}

/// Checks for processes that the program started while loading and that still run.
fn check_children(proc: &Path, pid: i32) -> io::Result<Option<String>> {
    let pids = read_proc_file(&proc.join(format!("task/{pid}/children")))?;
    let some = !pids.trim().is_empty();
    Ok(some.then(|| "starts a process while loading that still runs".to_owned()))
}

/// Reads a file of /proc; the text is empty if this kernel has no such file.
fn read_proc_file(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_gone_has_closed_nothing() {
        let proc = tempfile::tempdir().unwrap();
        let check = || check_streams(proc.path(), &[FileId::default(); 3]);
        assert_eq!(check().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        fs::create_dir(proc.path().join("fd")).unwrap();
        fs::write(proc.path().join("fd/3"), "").unwrap();
        assert!(check().unwrap().unwrap().contains("standard input"));
    }
}
