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

/// A running process, head of its own process group. Dropping it kills the group and reaps the
/// process.
///
/// Its descriptor ([`AsFd`]) becomes readable when the process has exited. A process that left the
/// group (setsid(2), setpgid(2)) is out of reach; [`end_orphans`](crate::end_orphans) ends it.
#[derive(Debug)]
pub struct Child(ChildHandle);

#[derive(Debug)]
enum ChildHandle {
    /// Started by this process.
    Own(OwnChild),
    /// Started for it, as another user.
    Remote(Box<RemoteChild>),
}

/// Asks whichever it is.
macro_rules! either {
    ($whose:expr, $child:ident => $own:expr, $remote:expr) => {
        match $whose {
            ChildHandle::Own($child) => $own,
            ChildHandle::Remote($child) => $remote,
        }
    };
}

impl Child {
    /// A child of this process; `launch_number`: it may not have executed its program yet.
    pub(crate) fn new(
        pidfd: OwnedFd,
        pid: i32,
        mark: Option<ProcessMark>,
        launch_number: Option<u64>,
    ) -> Self {
        let child = OwnChild::new(pidfd, pid, mark, launch_number);
        Self(ChildHandle::Own(child))
    }

    /// Marks the process: what it starts from now on may run as long as this is there.
    pub(crate) fn set_mark(&mut self, mark: ProcessMark) {
        if let ChildHandle::Own(child) = &mut self.0 {
            child.set_mark(mark);
        }
    }

    /// Whether what it starts is marked.
    pub(crate) fn is_marked(&self) -> bool {
        matches!(&self.0, ChildHandle::Own(child) if child.mark.is_some())
    }

    /// Ends all that has its mark, but for the process itself.
    pub(crate) fn drop_mark(&mut self) {
        if let ChildHandle::Own(child) = &mut self.0 {
            child.mark = None;
        }
    }

    /// One that a helper starts.
    pub(crate) fn remote(child: RemoteChild) -> Self {
        Self(ChildHandle::Remote(Box::new(child)))
    }

    /// The number of the launch, where it was not waited for.
    pub(crate) fn launch_number(&self) -> Option<u64> {
        match &self.0 {
            ChildHandle::Own(child) => child.launch_number,
            ChildHandle::Remote(_) => None,
        }
    }

    /// It, where a helper starts it.
    pub(crate) fn remotely_started(&self) -> Option<&RemoteChild> {
        match &self.0 {
            ChildHandle::Own(_) => None,
            ChildHandle::Remote(child) => Some(child),
        }
    }

    /// Whether a helper has started it, or is to: until its start is known its descriptor tells of that.
    pub fn is_remote(&self) -> bool {
        self.remotely_started().is_some()
    }

    /// The process id, for logs; also the id of its process group.
    pub fn pid(&self) -> i32 {
        either!(&self.0, child => child.pid, child.pid())
    }

    /// Whether the process has exited. Neither reaps it nor touches its group, so what it left
    /// running may still write: for a short grace, until [`try_wait`](Self::try_wait).
    pub fn has_exited(&self) -> io::Result<bool> {
        either!(&self.0, child => child.has_exited(), Ok(child.exit().is_some()))
    }

    /// Whether the process is on its way out: it will do nothing more, though it may take the kernel a while until
    /// [`has_exited`](Self::has_exited) is true. Its files are closed in between. False where that cannot be seen. True of one
    /// of which its helper has told nothing yet: it would, if it ran.
    pub fn is_exiting(&self) -> bool {
        /// `PF_EXITING` among the flags in proc_pid_stat(5).
        const EXITING: u32 = 4;
        let remote = self.remotely_started();
        if remote.is_some_and(RemoteChild::is_unheard_of) {
            return true;
        }
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // The name, in parentheses, may hold anything.
        let fields = stat.rsplit(|&b| b == b')').next().unwrap_or_default();
        let flags = fields.split(|&b| b == b' ').nth(7);
        let flags = flags.and_then(|f| std::str::from_utf8(f).ok()?.parse::<u32>().ok());
        let known = either!(&self.0, child => child.is_known(), child.is_known());
        !known && flags.is_some_and(|f| f & EXITING != 0)
    }

    /// How the process ended, or `None` while it runs. Ends what is left of its group first. The same answer when
    /// asked again.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        either!(&mut self.0, child => child.try_wait(), Ok(child.exit()))
    }

    /// As [`try_wait`](Self::try_wait), but the rest of the group goes on: [`group_remains`](Self::group_remains) says
    /// whether there is any, [`signal_group`](Self::signal_group) still reaches them, and dropping the [`Child`] ends
    /// them. Before Linux 6.9, where a group cannot be named but by its number, they are ended.
    pub fn try_wait_alone(&mut self) -> io::Result<Option<Exit>> {
        either!(&mut self.0, child => child.try_wait_alone(), Ok(child.exit()))
    }

    /// As [`try_wait_alone`](Self::try_wait_alone), of one whose descriptor has become readable.
    pub(crate) fn reap_alone(&mut self) -> io::Result<Exit> {
        either!(&mut self.0, child => child.reap_alone(), Ok(child.wait()))
    }

    /// Whether others of the group were there when the process was reaped by [`try_wait_alone`](Self::try_wait_alone).
    pub fn left_others(&self) -> bool {
        either!(&self.0, child => child.remains, child.left_others())
    }

    /// Whether they still are.
    pub fn group_remains(&mut self) -> bool {
        either!(&mut self.0, child => child.group_remains(), child.group_remains())
    }

    /// Whether the rest of the group goes on at [`try_wait_alone`](Self::try_wait_alone).
    pub fn leaves_its_group(&self) -> bool {
        either!(&self.0, _child => own_child::groups_by_pidfd(), true)
    }

    /// As [`try_wait`](Self::try_wait), but waits for the end.
    pub fn wait(&mut self) -> io::Result<Exit> {
        either!(&mut self.0, child => child.wait(), Ok(child.wait()))
    }

    /// Sends a signal to every process of the group. An error ESRCH when the process was reaped
    /// already.
    pub fn signal_group(&self, signal: i32) -> io::Result<()> {
        either!(&self.0, child => child.signal_group(signal), child.signal(signal))
    }

    /// From now on the process, and what it starts, has this priority. What it has started before gets the highest nice value:
    /// a policy is set for each thread, that for the group. No priority can be taken back without privileges (sched(7)).
    pub fn lower(&self, to: Priority) {
        either!(&self.0, child => child.lower(to), child.lower(to));
    }

    /// Lets the process go on when this is gone, where [`Limits::may_stay`](crate::Limits::may_stay) lets it. Where it ends
    /// before its parent does, it is reaped as a stranger ([`end_orphans`](crate::end_orphans)).
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

/// The processes of a group that have not ended: their ids, and their names as they call themselves. For logs.
pub fn group_members(group: i32) -> Vec<(i32, Vec<u8>)> {
    let listing = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let member = |pid: i32| {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let from = stat.iter().position(|&b| b == b'(')?;
        let to = stat.iter().rposition(|&b| b == b')')?;
        let mut fields = stat.get(to + 2..)?.split(|&b| b == b' ');
        let ended = matches!(fields.next()?, b"Z" | b"X");
        let of = std::str::from_utf8(fields.nth(1)?).ok()?.parse();
        (of == Ok(group) && !ended).then(|| (pid, stat[from + 1..to].to_vec()))
    };
    pids.filter_map(member).collect()
}
