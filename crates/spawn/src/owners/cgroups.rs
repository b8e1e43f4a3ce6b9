//! Limits of all programs of a route and user together: a control group for each helper (cgroups(7), version 2), where a
//! service manager has delegated the one that this process is in.

use crate::Limits;
use rustix::fs::{Access, access, getxattr};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

/// Looks of those that empty a group of processes, which may start others meanwhile.
const LOOKS: usize = 100;

/// What a helper itself takes of `pids.max`: its threads.
const OWN_TASKS: u64 = 2;

/// What the groups of helpers have limits by.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The group of all processes but helpers and what they start.
const SERVER: &str = "server";

/// The period that `cpu.max` is about, microseconds: the kernel's default.
const PERIOD: u64 = 100_000;

/// Whether limits of a helper's programs hold for all of them together. Looked at by the first call, which must come before
/// the process gives up root's rights.
pub fn are_delegated() -> bool {
    delegated().is_some()
}

/// The control group that is this process's to divide.
fn delegated() -> Option<&'static Path> {
    static DELEGATED: OnceLock<Option<PathBuf>> = OnceLock::new();
    DELEGATED.get_or_init(find).as_deref()
}

fn find() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // proc_pid_mountinfo(5): root and mount point, and behind the dash the kind of file system.
    let mount = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (kind.starts_with("cgroup2 ") && root == "/").then_some(point)
    })?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = Path::new(mount).join(own);
    delegated_of(&path, is_delegated).map(Path::to_owned)
}

/// The group that was delegated to whoever is in `own`: this one, or the one that the server before this one has divided.
fn delegated_of(own: &Path, is_delegated: impl Fn(&Path) -> bool) -> Option<&Path> {
    let divided = own.parent().filter(|_| own.ends_with(SERVER));
    [Some(own), divided]
        .into_iter()
        .flatten()
        .find(|path| is_delegated(path))
}

fn is_delegated(path: &Path) -> bool {
    // systemd.resource-control(5), Delegate=: a service that may divide its group is told so. A group that was not delegated is others' too.
    let told = ["user.delegate", "trusted.delegate"];
    let is_told = |name: &&str| {
        let mut value = [0; 4];
        getxattr(path, *name, &mut value[..]).is_ok_and(|n| value[..n] == *b"1")
    };
    let may = access(path.join("cgroup.subtree_control"), Access::WRITE_OK).is_ok();
    let there = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
    may && has_all(&there) && told.iter().any(is_told)
}

/// Whether a group may divide what the limits are about. `Delegate=memory` leaves the rest to others, as do control groups of
/// version 1 beside these.
fn has_all(controllers: &str) -> bool {
    let there = |name: &&str| controllers.split_ascii_whitespace().any(|one| one == *name);
    CONTROLLERS.iter().all(there)
}

/// Those that the spawner has made.
#[derive(Debug, Default)]
pub(super) struct Cgroups {
    /// The controllers are there for the groups below.
    ready: bool,
    made: u64,
    /// Groups of helpers that have ended, until they are empty.
    ended: Vec<PathBuf>,
}

impl Cgroups {
    /// A group with these limits, to be entered by a helper; `None`: there are none, or no limits.
    ///
    /// # Errors
    /// The kernel refuses it, in words.
    pub(super) fn make(&mut self, limits: &Limits) -> Result<Option<PathBuf>, String> {
        let Some(base) = delegated().filter(|_| limits.are_of_groups()) else {
            return Ok(None);
        };
        let words = |e: io::Error| format!("a control group in {}: {e}", base.display());
        if !self.ready {
            divide(base).map_err(words)?;
            self.ready = true;
        }
        self.made += 1;
        // The server before this one may have groups still.
        let own = process::id();
        let group = base.join(format!("helper-{own}-{}", self.made));
        fs::create_dir(&group).map_err(words)?;
        let set = set(&group, limits);
        if set.is_err() {
            let _ = fs::remove_dir(&group);
        }
        set.map_err(words)?;
        Ok(Some(group))
    }

    /// Ends all that is left in the group of a helper that has ended, and removes the group once it is empty.
    pub(super) fn remove(&mut self, group: PathBuf) {
        // Linux 5.14; before, the spawner ends what has become its child.
        let _ = fs::write(group.join("cgroup.kill"), "1");
        self.ended.push(group);
        self.look();
    }

    /// Whether some are not empty yet.
    pub(super) fn look(&mut self) -> bool {
        self.ended.retain(|group| match fs::remove_dir(group) {
            Err(e) => e.kind() == io::ErrorKind::ResourceBusy,
            Ok(()) => false,
        });
        !self.ended.is_empty()
    }
}

/// Has this process enter a group.
pub(super) fn enter(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Makes a group of all processes that there are, for only a group without processes can have groups with limits.
fn divide(base: &Path) -> io::Result<()> {
    let all = base.join(SERVER);
    match fs::create_dir(&all) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    for _ in 0..LOOKS {
        let pids = fs::read_to_string(base.join("cgroup.procs"))?;
        if pids.is_empty() {
            break;
        }
        for pid in pids.lines() {
            // One that has ended meanwhile is none.
            let _ = fs::write(all.join("cgroup.procs"), pid);
        }
    }
    let all = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    fs::write(base.join("cgroup.subtree_control"), all)
}

fn set(group: &Path, limits: &Limits) -> io::Result<()> {
    let write = |name: &str, value: String| fs::write(group.join(name), value);
    if let Some(bytes) = limits.memory {
        write("memory.max", bytes.to_string())?;
        // Where there is swap: what is beyond the limit does not go there.
        let _ = write("memory.swap.max", "0".into());
    }
    if let Some(count) = limits.processes {
        write("pids.max", (count + OWN_TASKS).to_string())?;
    }
    match limits.cpu_percent {
        Some(percent) => write(
            "cpu.max",
            format!("{} {PERIOD}", u64::from(percent) * PERIOD / 100),
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_controllers_must_be_there() {
        assert!(has_all("cpuset cpu io memory hugetlb pids rdma misc\n"));
        for some in ["memory pids\n", "", "cpuset io memory pids", "cpu memory"] {
            assert!(!has_all(some), "{some}");
        }
    }

    #[test]
    fn what_a_server_has_divided_is_the_next_ones() {
        let base = Path::new("/sys/fs/cgroup/system.slice/galgo.service");
        let is_base = |path: &Path| path == base;
        let server = base.join(SERVER);
        assert_eq!(delegated_of(base, is_base), Some(base));
        assert_eq!(delegated_of(&server, is_base), Some(base));
        assert_eq!(delegated_of(&base.join("helper-7-1"), is_base), None);
        assert_eq!(delegated_of(&server.join("more"), is_base), None);
        // Its own comes first.
        assert_eq!(delegated_of(&server, |_| true), Some(&*server));
    }
}
