//! Reads the configuration, although folders that it names may be on file systems that hang ([`hanging`]).
//!
//! A process that starts is root, and so must not leave a thread that hangs behind. Another process reads the configuration first,
//! and says which paths hang ([`look_first`]). A user's own file system could answer that process alone. So at the start it counts
//! as hanging, and the server looks at it later, with a user's rights and on a thread.

use std::{
    env,
    io::{self, Write},
    os::{
        fd::AsFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use galgo_spawn::{
    hanging::{self, call_in_time},
    trusted_path::starter,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{config::Config, programs};

/// Reads the configuration.
pub(crate) type Load = dyn Fn() -> Result<Config, String> + Send + Sync;

/// Time limit for a thread to read the configuration, and the files and folders that it names.
const READ: Duration = Duration::from_secs(4);

/// Kinds of file systems that wait for another machine or process, by the beginnings of their names.
const MAY_HANG: [&str; 9] = [
    "fuse", "nfs", "cifs", "smb", "9p", "afs", "autofs", "ceph", "lustre",
];

/// The variable of the process that looks first.
const LOOKS_FIRST: &str = "GALGO_LOOKS_FIRST";
/// The end of its list of paths. Each path ends in a NUL.
const END: &[u8] = b"\0end\0";

/// Reads the configuration in time. Folders that hang are left out with a warning.
pub(crate) fn read_in_time(load: &Arc<Load>) -> Result<Config, String> {
    call_in_time(load, READ).flatten()
}

/// Learns from another process which paths hang: this program, with the same arguments. In that process, never returns. Returns
/// whether users have mounted file systems, which may be looked at only on a thread. `own`: variables of this process alone.
pub(crate) fn look_first(load: Arc<Load>, own: &[&str]) -> bool {
    if env::var_os(LOOKS_FIRST).is_some() {
        // The caller lists programs, too.
        let look = move || {
            if let Ok(config) = load() {
                let programs = config.routes.iter().filter_map(|route| route.programs());
                programs.for_each(|cgi| drop(programs::list_files(&cgi.root)));
            }
        };
        let _ = call_in_time(&Arc::new(look), READ);
        let mut list: Vec<u8> = Vec::new();
        for path in hanging::list_hanging() {
            list.extend(path.as_os_str().as_bytes());
            list.push(0);
        }
        let _ = io::stdout().write_all(&[&list, END].concat());
        std::process::exit(0)
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts.lines().filter_map(|line| line.split_once(" - "));
    let may_hang = |kind: &str| MAY_HANG.iter().any(|name| kind.starts_with(name));
    let mounts: Vec<_> = mounts.filter(|(_, kind)| may_hang(kind)).collect();
    if mounts.is_empty() {
        return false;
    }
    let of_users = mounts.iter().filter_map(|(place, kind)| {
        let (_, uid) = kind.split_once("user_id=")?;
        let uid = uid.split(',').next()?;
        let is_trusted = uid == "0" || uid == starter().to_string();
        let path = place.split(' ').nth(4).filter(|_| !is_trusted)?;
        // Spaces are written as octal numbers (proc_pid_mountinfo(5)).
        Some(PathBuf::from(path.replace("\\040", " ")))
    });
    let of_users: Vec<_> = of_users.collect();
    let has_users = !of_users.is_empty();
    let hanging = ask_other_process(own).unwrap_or_default();
    hanging::set_hanging(hanging.into_iter().chain(of_users));
    has_users
}

fn ask_other_process(own: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut command = Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1)).env(LOOKS_FIRST, "1");
    for own in own {
        command.env_remove(own);
    }
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut other = command.stdout(Stdio::piped()).spawn()?;
    let (ends, mut list) = (Instant::now() + READ + READ / 8, Vec::new());
    // The process cannot end while one of its threads hangs, and holds the pipe open.
    while let (Some(pipe), false) = (&other.stdout, list.ends_with(END)) {
        let left = ends.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut piece = [0; 4096];
        if poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&left))? == 0 {
            break;
        }
        match rustix::io::read(pipe.as_fd(), &mut piece)? {
            0 => break,
            n => list.extend(&piece[..n]),
        }
    }
    let _ = other.kill();
    let _ = other.try_wait();
    let list = list.strip_suffix(END).unwrap_or_default();
    let paths = list.split(|&b| b == 0).filter(|path| !path.is_empty());
    let path = |path: &[u8]| std::ffi::OsString::from_vec(path.to_owned()).into();
    Ok(paths.map(path).collect())
}
