//! Limits for all programs of a route and user together. Their helpers share a control group (cgroups(7), version 2) below the
//! group of this process, if a service manager has delegated that group.

use super::known::HelperKey;
use crate::Limits;
use rustix::fs::{Access, access, getxattr};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

/// Number of passes for moving all processes out of a group. The processes may start others meanwhile.
const LOOKS: usize = 100;

/// Tasks of `pids.max` that each helper itself takes: its threads.
const OWN_TASKS: u64 = 2;

/// Controllers that set the limits of the helpers' groups.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The group for all processes except helpers and their programs.
const SERVER: &str = "server";

/// The period for `cpu.max`, in microseconds: the kernel's default.
const PERIOD: u64 = 100_000;

/// Whether limits apply to all programs of a helper together. The first call looks this up, and must come before the process
/// gives up root's rights.
pub fn are_delegated() -> bool {
    delegated_group().is_some()
}

/// Returns the control group that this process may divide.
fn delegated_group() -> Option<&'static Path> {
    static DELEGATED: OnceLock<Option<PathBuf>> = OnceLock::new();
    DELEGATED.get_or_init(find_delegated).as_deref()
}

fn find_delegated() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // proc_pid_mountinfo(5): root and mount point, and after the dash the type of the file system.
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

/// Returns the delegated group of a process in `own`: `own` itself, or its parent if an earlier server has divided the parent.
fn delegated_of(own: &Path, is_delegated: impl Fn(&Path) -> bool) -> Option<&Path> {
    let divided = own.parent().filter(|_| own.ends_with(SERVER));
    [Some(own), divided]
        .into_iter()
        .flatten()
        .find(|path| is_delegated(path))
}

fn is_delegated(path: &Path) -> bool {
    // systemd.resource-control(5), Delegate=: systemd marks a delegated group with an attribute. A group without
    // the attribute is not this service's alone.
    let told = ["user.delegate", "trusted.delegate"];
    let is_told = |name: &&str| {
        let mut value = [0; 4];
        getxattr(path, *name, &mut value[..]).is_ok_and(|n| value[..n] == *b"1")
    };
    let may = access(path.join("cgroup.subtree_control"), Access::WRITE_OK).is_ok();
    let there = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
    may && has_all_controllers(&there) && told.iter().any(is_told)
}

/// Whether a group has all controllers for the limits. `Delegate=memory` leaves the others to the manager, and so do control
/// groups of version 1 that are in use beside these.
fn has_all_controllers(controllers: &str) -> bool {
    let there = |name: &&str| controllers.split_ascii_whitespace().any(|one| one == *name);
    CONTROLLERS.iter().all(there)
}

/// The control groups that the spawner has made.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    /// The controllers are enabled for the groups below.
    ready: bool,
    made: u64,
    groups: Vec<HelperGroup>,
    /// Groups of helpers that have ended. They are removed once they are empty.
    ended: Vec<PathBuf>,
}

/// The group for the helpers that start the same programs.
#[derive(Debug)]
struct HelperGroup {
    key: HelperKey,
    path: PathBuf,
    /// The limit `processes`, as configured.
    processes: Option<u64>,
    helpers: u64,
}

impl HelperGroup {
    /// Sets the limit of processes such that the programs alone have the configured number.
    fn set_processes(&self) -> io::Result<()> {
        let write = |count| fs::write(self.path.join("pids.max"), format!("{count}"));
        let most = self.processes.map(|count| count + OWN_TASKS * self.helpers);
        most.map_or(Ok(()), write)
    }
}

impl Cgroups {
    /// Returns the group with these limits, for one more helper to enter; `None` if there are no limits or no groups.
    ///
    /// # Errors
    /// The kernel refuses the group. The error is a sentence for the log.
    pub(crate) fn add_helper(
        &mut self,
        key: HelperKey,
        limits: &Limits,
    ) -> Result<Option<PathBuf>, String> {
        let base = delegated_group().filter(|_| limits.are_of_groups());
        base.map(|base| self.add_helper_below(base, key, limits))
            .transpose()
    }

    fn add_helper_below(
        &mut self,
        base: &Path,
        key: HelperKey,
        limits: &Limits,
    ) -> Result<PathBuf, String> {
        let words = |e: io::Error| format!("a control group in {}: {e}", base.display());
        let at = match self.groups.iter().position(|group| group.key == key) {
            Some(at) => at,
            None => {
                let group = self.make_group(base, key, limits).map_err(words)?;
                self.groups.push(group);
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        group.helpers += 1;
        let path = group.path.clone();
        let set = group.set_processes();
        if set.is_err() {
            self.remove_helper(&path);
        }
        set.map(|()| path).map_err(words)
    }

    fn make_group(
        &mut self,
        base: &Path,
        key: HelperKey,
        limits: &Limits,
    ) -> io::Result<HelperGroup> {
        if !self.ready {
            divide_group(base)?;
            self.ready = true;
        }
        self.made += 1;
        // Groups of the previous server may still exist.
        let own = process::id();
        let path = base.join(format!("helper-{own}-{}", self.made));
        fs::create_dir(&path)?;
        set_limits(&path, limits).inspect_err(|_| drop(fs::remove_dir(&path)))?;
        Ok(HelperGroup {
            key,
            path,
            processes: limits.processes,
            helpers: 0,
        })
    }

    /// Notes that a helper of the group has ended. After the last helper, kills all processes left in the group, and removes it
    /// once it is empty.
    pub(crate) fn remove_helper(&mut self, group: &Path) {
        let Some(at) = self.groups.iter().position(|one| one.path == group) else {
            return;
        };
        self.groups[at].helpers -= 1;
        if self.groups[at].helpers > 0 {
            // On failure programs may merely have some more processes.
            let _ = self.groups[at].set_processes();
            return;
        }
        let group = self.groups.swap_remove(at).path;
        // cgroup.kill needs Linux 5.14. Before that, the spawner kills leftover processes that become its children.
        let _ = fs::write(group.join("cgroup.kill"), "1");
        self.ended.push(group);
        self.remove_empty_groups();
    }

    /// Removes empty groups. Returns whether some are not empty yet.
    pub(crate) fn remove_empty_groups(&mut self) -> bool {
        self.ended.retain(|group| match fs::remove_dir(group) {
            Err(e) => e.kind() == io::ErrorKind::ResourceBusy,
            Ok(()) => false,
        });
        !self.ended.is_empty()
    }
}

/// Moves this process into a group.
pub(crate) fn enter_group(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

/// Moves all processes into a subgroup, because only a group without processes can have subgroups with limits.
fn divide_group(base: &Path) -> io::Result<()> {
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
            // A process that has ended meanwhile need not be moved.
            let _ = fs::write(all.join("cgroup.procs"), pid);
        }
    }
    let all = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    fs::write(base.join("cgroup.subtree_control"), all)
}

fn set_limits(group: &Path, limits: &Limits) -> io::Result<()> {
    let write = |name: &str, value: String| fs::write(group.join(name), value);
    if let Some(bytes) = limits.memory {
        write("memory.max", bytes.to_string())?;
        // If there is swap, memory beyond the limit must not go there.
        let _ = write("memory.swap.max", "0".into());
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
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn all_controllers_must_be_there() {
        assert!(has_all_controllers(
            "cpuset cpu io memory hugetlb pids rdma misc\n"
        ));
        for some in ["memory pids\n", "", "cpuset io memory pids", "cpu memory"] {
            assert!(!has_all_controllers(some), "{some}");
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
        // The server's own group comes first.
        assert_eq!(delegated_of(&server, |_| true), Some(&*server));
    }

    /// Uses a plain folder instead of the kernel's, to see which files are written.
    #[test]
    fn helpers_of_one_user_share_a_group() {
        let base = std::env::temp_dir().join(format!("galgo-groups-{}", process::id()));
        fs::create_dir(&base).unwrap();
        let mut groups = Cgroups {
            ready: true,
            ..Cgroups::default()
        };
        let limits = Limits {
            memory: Some(1 << 20),
            processes: Some(10),
            ..Limits::default()
        };
        let join =
            |groups: &mut Cgroups, key| groups.add_helper_below(&base, key, &limits).unwrap();
        let [one, same, other] = [(1, 1), (1, 1), (1, 2)].map(|key| join(&mut groups, key));
        assert!(one == same && one != other);
        let most = |group: &Path| fs::read_to_string(group.join("pids.max")).unwrap();
        assert_eq!([most(&one), most(&other)], ["14", "12"]);
        let killed = one.join("cgroup.kill");
        groups.remove_helper(&same);
        assert!(most(&one) == "12" && !killed.exists());
        groups.remove_helper(&one);
        assert!(killed.exists());
        // A later request gets another group.
        assert_ne!(join(&mut groups, (1, 1)), one);
        fs::remove_dir_all(&base).unwrap();
    }
}
