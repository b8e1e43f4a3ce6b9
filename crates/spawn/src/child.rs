//! A running program.

use crate::{
    claims::ProcessMark,
    exit::Exit,
    own_child::{self, OwnChild},
    remote::child::RemoteChild,
    start::Priority,
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

/// A running process, head of its own process group. Dropping it kills the group and reaps the process.
///
/// The descriptor ([`AsFd`]) becomes readable when the process has exited. A process that left the group (setsid(2),
/// setpgid(2)) is out of reach; [`end_orphans`](crate::end_orphans) ends it.
#[derive(Debug)]
pub struct Child(ChildHandle);

#[derive(Debug)]
enum ChildHandle {
    /// A child that this process started.
    Own(OwnChild),
    /// A child that a helper started, as another user.
    Remote(Box<RemoteChild>),
}

/// Calls the child of this process or the helper's.
macro_rules! either {
    ($whose:expr, $child:ident => $own:expr, $remote:expr) => {
        match $whose {
            ChildHandle::Own($child) => $own,
            ChildHandle::Remote($child) => $remote,
        }
    };
}

impl Child {
    /// Wraps a child of this process; `launch_number`: the child may not have executed its program yet.
    pub(crate) fn new(
        pidfd: OwnedFd,
        pid: i32,
        mark: Option<ProcessMark>,
        launch_number: Option<u64>,
    ) -> Self {
        let child = OwnChild::new(pidfd, pid, mark, launch_number);
        Self(ChildHandle::Own(child))
    }

    /// Marks the process: processes that it starts from now on may run as long as `mark` exists.
    pub(crate) fn set_mark(&mut self, mark: ProcessMark) {
        if let ChildHandle::Own(child) = &mut self.0 {
            child.set_mark(mark);
        }
    }

    /// Returns whether processes that the child starts are marked.
    pub(crate) fn is_marked(&self) -> bool {
        matches!(&self.0, ChildHandle::Own(child) if child.mark.is_some())
    }

    /// Ends all processes with the child's mark, except the child itself.
    pub(crate) fn drop_mark(&mut self) {
        if let ChildHandle::Own(child) = &mut self.0 {
            child.mark = None;
        }
    }

    /// Wraps a child that a helper starts.
    pub(crate) fn from_remote(child: RemoteChild) -> Self {
        Self(ChildHandle::Remote(Box::new(child)))
    }

    /// Returns the number of the launch, if it was not waited for.
    pub(crate) fn launch_number(&self) -> Option<u64> {
        match &self.0 {
            ChildHandle::Own(child) => child.launch_number,
            ChildHandle::Remote(_) => None,
        }
    }

    /// Returns the child if a helper starts it.
    pub(crate) fn as_remote(&self) -> Option<&RemoteChild> {
        match &self.0 {
            ChildHandle::Own(_) => None,
            ChildHandle::Remote(child) => Some(child),
        }
    }

    /// Returns whether a helper has started the child, or is to. Until the start is known, the child's descriptor reports it.
    pub fn is_remote(&self) -> bool {
        self.as_remote().is_some()
    }

    /// Returns the process id, for logs; also the id of its process group.
    pub fn pid(&self) -> i32 {
        either!(&self.0, child => child.pid, child.pid())
    }

    /// Returns whether the process has exited. This neither reaps it nor touches its group, so leftover processes may still
    /// write: for a short grace, until [`try_wait`](Self::try_wait).
    pub fn has_exited(&self) -> io::Result<bool> {
        either!(&self.0, child => child.has_exited(), Ok(child.read_exit().is_some()))
    }

    /// Returns whether the process is on its way out. Then it will do nothing more, but the kernel may take a while until
    /// [`has_exited`](Self::has_exited) is true, and closes its files in between. False if that cannot be seen. True if a
    /// helper has not reported the process yet, because the helper would report a running process.
    pub fn is_exiting(&self) -> bool {
        /// `PF_EXITING` among the flags in proc_pid_stat(5).
        const EXITING: u32 = 4;
        let remote = self.as_remote();
        if remote.is_some_and(RemoteChild::is_unheard_of) {
            return true;
        }
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // The name, in parentheses, may hold any character.
        let fields = stat.rsplit(|&b| b == b')').next().unwrap_or_default();
        let flags = fields.split(|&b| b == b' ').nth(7);
        let flags = flags.and_then(|f| std::str::from_utf8(f).ok()?.parse::<u32>().ok());
        let known = either!(&self.0, child => child.is_known(), child.is_known());
        !known && flags.is_some_and(|f| f & EXITING != 0)
    }

    /// Returns the exit of the process, or `None` while it runs. Kills the rest of its group first. Later calls return the same
    /// answer.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        either!(&mut self.0, child => child.try_wait(), Ok(child.read_exit()))
    }

    /// Does the same as [`try_wait`](Self::try_wait), but lets the rest of the group run.
    /// [`group_remains`](Self::group_remains) tells whether there is any, [`signal_group`](Self::signal_group) still reaches
    /// them, and dropping the [`Child`] ends them. Before Linux 6.9 only a number names a group, so there the rest of the group
    /// is ended.
    pub fn try_wait_alone(&mut self) -> io::Result<Option<Exit>> {
        either!(&mut self.0, child => child.try_wait_alone(), Ok(child.read_exit()))
    }

    /// Does the same as [`try_wait_alone`](Self::try_wait_alone) for a child whose descriptor has become readable. Also returns
    /// whether processes with the child's mark are left, in any group; false for a child that a helper started.
    pub(crate) fn reap_and_find_others(&mut self) -> io::Result<(Exit, bool)> {
        either!(&mut self.0, child => child.reap_and_find_others(), Ok((child.wait(), false)))
    }

    /// Returns whether the group had other processes when [`try_wait_alone`](Self::try_wait_alone) reaped the child.
    pub fn has_left_others(&self) -> bool {
        either!(&self.0, child => child.remains, child.has_left_others())
    }

    /// Returns whether the group still has other processes.
    pub fn group_remains(&mut self) -> bool {
        either!(&mut self.0, child => child.group_remains(), child.group_remains())
    }

    /// Returns whether [`try_wait_alone`](Self::try_wait_alone) lets the rest of the group run.
    pub fn leaves_its_group(&self) -> bool {
        either!(&self.0, _child => own_child::groups_by_pidfd(), true)
    }

    /// Does the same as [`try_wait`](Self::try_wait), but waits for the end.
    pub fn wait(&mut self) -> io::Result<Exit> {
        either!(&mut self.0, child => child.wait(), Ok(child.wait()))
    }

    /// Sends a signal to every process of the group. The error is ESRCH if the process was reaped already.
    pub fn signal_group(&self, signal: i32) -> io::Result<()> {
        either!(&self.0, child => child.signal_group(signal), child.signal_group(signal))
    }

    /// Lowers the process, and all that it starts from now on, to this priority. Processes that it has started before get the
    /// highest nice value: a policy is set for each thread, a nice value for the group. No priority can be taken back without
    /// privileges (sched(7)).
    pub fn lower_priority(&self, to: Priority) {
        either!(&self.0, child => child.lower_priority(to), child.lower_priority(to));
    }

    /// If [`Limits::may_stay`](crate::Limits::may_stay) allows it, leftover processes outside of the group go on after this is
    /// dropped; with `false`, they are ended after all.
    pub fn let_leftovers_stay(&mut self, stay: bool) {
        either!(&mut self.0, child => child.leftovers_stay = stay, child.let_leftovers_stay(stay));
    }

    /// Drops the [`Child`] but lets the process run, if [`Limits::may_stay`](crate::Limits::may_stay) allows that. If the
    /// process ends before its parent does, it is reaped as a stranger ([`end_orphans`](crate::end_orphans)).
    pub fn let_go(self) {
        either!(self.0, child => child.disown(), drop(child));
    }

    /// Reaps a child that is on its way out before it executed anything.
    pub(crate) fn reap_failed(&mut self) {
        if let ChildHandle::Own(child) = &mut self.0 {
            let _ = child.reap();
        }
    }
}

impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        either!(&self.0, child => child.as_fd(), child.as_fd())
    }
}

impl AsRawFd for Child {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Returns the processes of a group that have not ended: their ids, and the names that they give themselves. For logs.
pub fn group_members(group: i32) -> Vec<(i32, Vec<u8>)> {
    let listing = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let member = |pid: i32| {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold any character.
        let from = stat.iter().position(|&b| b == b'(')?;
        let to = stat.iter().rposition(|&b| b == b')')?;
        let mut fields = stat.get(to + 2..)?.split(|&b| b == b' ');
        let ended = matches!(fields.next()?, b"Z" | b"X");
        let of = std::str::from_utf8(fields.nth(1)?).ok()?.parse();
        (of == Ok(group) && !ended).then(|| (pid, stat[from + 1..to].to_vec()))
    };
    pids.filter_map(member).collect()
}
