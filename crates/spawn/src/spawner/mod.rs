//! The process that keeps root's rights. It makes helpers, ends the processes that they leave behind, and starts the server
//! that takes the place of its own server.
//!
//! One thread does all of this, so it waits only for its sockets and its children. Another process does the work that may take
//! long (`Errand`).

mod configured;
mod fork;
mod made;
mod successor;
#[cfg(test)]
pub(crate) mod tests;
mod untold;

pub use successor::SpawnerBackend;

use crate::{
    NamelessListener,
    claims::MarkRange,
    helper::{
        self,
        errand::{self, Errand, ErrandEvent, ErrandKind},
    },
    leftover::{children, mark_of},
    owners::{Layout, Remit, cgroups::Cgroups, coded},
    remote::{
        deadline::{Deadline, to_timespec},
        message::{Order, OrderAnswer},
        shortage::{is_short, pause_for_shortage},
    },
    sandbox::kernel,
    spawner::{
        configured::ConfiguredRemits,
        fork::fork_process,
        made::{HelperProcess, MadeHelpers, reap_by_pid},
        successor::Upgrade,
        untold::{UntoldAnswer, UntoldAnswers},
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, recv},
    process::{
        DumpableBehavior, Pid, Signal, getpid, getppid, kill_process, set_child_subreaper,
        set_dumpable_behavior,
    },
};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

/// Interval for checking whether killed processes are gone, and number of such checks after the server's end.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
const LAST_LOOKS: u32 = 250;

/// Makes helpers until the server has gone, and then ends them. Needs a process of its own, with one thread, that was executed
/// for this. `host` is the program of this process.
///
/// # Errors
/// An error of the kernel, as a sentence for the log.
pub fn run_spawner(socket: OwnedFd, mut host: impl SpawnerBackend) -> Result<(), String> {
    let closed = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    closed.map_err(|e| format!("cannot close the spawner's memory: {e}"))?;
    // Leftover processes of a helper that has ended become children of this process.
    let heir = set_child_subreaper(Some(getpid()));
    heir.map_err(|e| format!("cannot adopt the leftover processes of helpers: {e}"))?;
    // Probe the kernel before the first helper. A later refusal is then an error, and does not silently weaken sandboxes.
    kernel();
    let mut spawner = SpawnerProcess {
        socket,
        remits: ConfiguredRemits::default(),
        helpers: MadeHelpers::new(),
        // The server has started this process, and does not end before it.
        marks: MarkRange::for_server(getppid().map_or(0, Pid::as_raw_pid)),
        made: 0,
        cgroups: Cgroups::default(),
        upgrade: Upgrade::default(),
        errands: Vec::new(),
        untold: UntoldAnswers::default(),
        strays: false,
    };
    let served = spawner.serve_orders(&mut host);
    spawner.kill_all();
    served
}

/// The result of an order: descriptors if it is done at once, `None` if an errand works on it.
type OrderOutcome = Result<Option<Vec<OwnedFd>>, OrderAnswer>;

struct SpawnerProcess {
    socket: OwnedFd,
    remits: ConfiguredRemits,
    helpers: MadeHelpers,
    /// The marks of the server and its helpers. `made` is the number of processes made so far.
    marks: MarkRange,
    made: u64,
    cgroups: Cgroups,
    upgrade: Upgrade,
    errands: Vec<Errand>,
    untold: UntoldAnswers,
    /// There may be children that are no helpers, because a helper has ended and has left them behind.
    strays: bool,
}

impl SpawnerProcess {
    fn serve_orders(&mut self, host: &mut impl SpawnerBackend) -> Result<(), String> {
        loop {
            let hears = !self.untold.is_full();
            let orders = if hears {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            let mut fds = vec![PollFd::new(&self.socket, orders)];
            let helpers = self.helpers.iter().map(|h| &h.pidfd);
            let killed = self.errands.iter().filter(|e| e.is_killed);
            let ends = helpers.chain(killed.map(|e| &e.pidfd));
            let others = ends.chain(self.upgrade.descriptors());
            fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::IN)));
            let others = fds.len();
            let waited = self.errands.iter().filter(|e| !e.is_killed);
            fds.extend(waited.map(|e| PollFd::new(&e.socket, PollFlags::IN)));
            let (is_short, asked) = match poll(&mut fds, self.time_left().as_ref()) {
                Err(Errno::INTR) => continue,
                // Check all descriptors after a moment.
                Err(e) if is_short(e) => (true, true),
                Err(e) => return Err(format!("waiting for the server: {e}")),
                Ok(_) => (false, !fds[0].revents().is_empty()),
            };
            self.strays |= is_short || fds[1..others].iter().any(|fd| !fd.revents().is_empty());
            if is_short {
                pause_for_shortage();
            }
            self.strays |= self.upgrade.check_successor(Instant::now());
            self.look_at_errands(host);
            self.untold.send_waiting(self.socket.as_fd());
            if self.strays {
                self.reap_helpers();
                self.strays = self.kill_strays() | self.cgroups.remove_empty_groups();
            }
            if asked && !self.handle_order(host) {
                return Ok(());
            }
        }
    }

    /// Returns the time until there is work to do, even without an event.
    fn time_left(&self) -> Option<Timespec> {
        let waited = self.errands.iter().filter(|e| !e.is_killed);
        let errands = waited.map(|e| to_timespec(e.by.time_left()));
        let looks = (self.strays || !self.untold.is_empty()).then_some(LOOK);
        let all = errands.chain(looks);
        all.chain(self.upgrade.time_left(Instant::now())).min()
    }

    /// Takes one order. Returns whether the server is still there.
    fn handle_order(&mut self, host: &mut impl SpawnerBackend) -> bool {
        // A longer message is no order, but is answered. No descriptors are taken: to close one may take for ever (FUSE).
        let mut buffer = [0; Order::NUMBERED + 1];
        let n = match recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
            Err(Errno::INTR | Errno::AGAIN) => return true,
            Err(e) if is_short(e) => {
                pause_for_shortage();
                return true;
            }
            Err(_) | Ok((0, _)) => return false,
            Ok((n, _)) => n,
        };
        let order = Order::decode_numbered(&buffer[..n]);
        // Skip an order that the server no longer waits for.
        if let Some((number, by, order)) = order.filter(|(_, by, _)| !by.has_passed()) {
            let begun = match order {
                Some(order) => self.begin_order(host, (number, by), order),
                None => Err(OrderAnswer::Denied(
                    "the spawner does not understand the order".into(),
                )),
            };
            match begun {
                Ok(None) => {}
                Ok(Some(fds)) => self.send_answer(number, by, OrderAnswer::Done, fds),
                Err(answer) => self.send_answer(number, by, answer, Vec::new()),
            }
        }
        true
    }

    fn begin_order(
        &mut self,
        host: &mut impl SpawnerBackend,
        asked: (u32, Deadline),
        order: Order<'_>,
    ) -> OrderOutcome {
        match order {
            Order::Reload => self.start_errand(asked, ErrandKind::Reload, false, |socket| {
                let read = host.read_remits().map_err(OrderAnswer::Denied);
                let read = read.and_then(|remits| {
                    coded::write_file(&remits)
                        .map_err(|e| OrderAnswer::NotNow(format!("memory: {e}")))
                });
                match read {
                    Ok(file) => errand::send_answer(&socket, &OrderAnswer::Done, &[&file]),
                    Err(not) => errand::send_answer(&socket, &not, &[]),
                }
            }),
            Order::Listener => self.start_errand(asked, ErrandKind::Listener, false, |socket| {
                match NamelessListener::create() {
                    Ok(made) => errand::send_answer(
                        &socket,
                        &OrderAnswer::Done,
                        &[&made.listener, &made.file],
                    ),
                    Err(e) => {
                        let words = format!("a socket for a worker was not made: {e}");
                        errand::send_answer(&socket, &OrderAnswer::NotNow(words), &[])
                    }
                }
            }),
            Order::Helper {
                digest,
                uid,
                host: name,
            } => {
                let remit = self.find_remit(host, (digest, name), Instant::now());
                let remit = remit.map_err(OrderAnswer::Denied)?;
                self.make_helper(host, asked, &remit, uid)
            }
            Order::Upgrade => self.start_errand(asked, ErrandKind::Upgrade, false, |socket| {
                // If the configuration is wrong, or not root's own, nothing is started.
                let read = host.read_remits().map_err(OrderAnswer::Denied);
                errand::send_answer(&socket, &read.err().unwrap_or(OrderAnswer::Done), &[])
            }),
            Order::EndUpgrade => {
                self.strays = true;
                Err(OrderAnswer::Denied(
                    self.upgrade.end_successor(Instant::now()),
                ))
            }
        }
    }

    fn send_answer(&mut self, number: u32, by: Deadline, answer: OrderAnswer, fds: Vec<OwnedFd>) {
        self.untold.add_answer(UntoldAnswer {
            number,
            by,
            answer,
            fds,
        });
        self.untold.send_waiting(self.socket.as_fd());
    }

    /// Returns the remit that a helper is asked for. For folders of hosts, derives it for the host `name`.
    fn find_remit(
        &mut self,
        host: &mut impl SpawnerBackend,
        (digest, name): (u64, &str),
        now: Instant,
    ) -> Result<Arc<Remit>, String> {
        let remit = self
            .remits
            .get(digest, now)
            .ok_or("the configuration has changed since the server read it: reload galgo")?;
        // Programs below the folder of all hosts are started only by the remit of one host.
        match (remit.terms.layout == Layout::Hosts, name) {
            (false, "") => Ok(remit),
            (true, name) if !name.is_empty() => Ok(Arc::new(host.derive_remit(&remit, name)?)),
            _ => Err("a helper needs exactly one route or one host".to_owned()),
        }
    }

    /// Begins a helper for the user `uid`.
    fn make_helper(
        &mut self,
        host: &mut impl SpawnerBackend,
        asked: (u32, Deadline),
        remit: &Remit,
        uid: u32,
    ) -> OrderOutcome {
        let key = (remit.digest(), uid);
        let begun = self.errands.iter().filter_map(|errand| match errand.kind {
            ErrandKind::Helper(key, _) => Some(key),
            _ => None,
        });
        let checked = self.helpers.check_limits(key, begun, Instant::now());
        checked.map_err(OrderAnswer::NotNow)?;
        let hangs =
            |e: &Errand| e.is_killed && matches!(e.kind, ErrandKind::Helper(k, _) if k == key);
        // A single process that cannot even be killed (NFS) is enough.
        if self.errands.iter().any(hangs) {
            let words =
                format!("the last process for the user {uid} still hangs, and cannot be killed");
            return Err(OrderAnswer::NotNow(words));
        }
        let group = self.cgroups.add_helper(key, &remit.terms.limits);
        let group = group.map_err(OrderAnswer::NotNow)?;
        let kind = ErrandKind::Helper(key, group.clone());
        let begun = self.start_errand(asked, kind, remit.has_own_ids(), |socket| {
            let modules = remit
                .terms
                .modules
                .as_ref()
                .map(|_| host.open_module_host());
            helper::run_helper(remit, uid, (socket, modules), group.as_deref())
                .map_err(|words| format!("a helper of the user {uid} has ended: {words}"))
        });
        if begun.is_err() {
            // The helper never entered the group.
            group
                .iter()
                .for_each(|group| self.cgroups.remove_helper(group));
        }
        begun
    }

    /// Forks an errand. It does its work, and sends the answer over the socket that it is given.
    fn start_errand(
        &mut self,
        (number, by): (u32, Deadline),
        kind: ErrandKind,
        has_own_ids: bool,
        does: impl FnOnce(OwnedFd) -> Result<(), String>,
    ) -> OrderOutcome {
        if self.errands.len() >= errand::MOST {
            return Err(OrderAnswer::NotNow(
                "the spawner has too many orders to carry out".into(),
            ));
        }
        let marks = self.marks.range_for_helper(self.made);
        self.made += 1;
        let forked = fork_process(has_own_ids, marks, does);
        // A process may exist that this list does not know.
        self.strays |= forked.is_err();
        let (pid, pidfd, socket) = forked
            .map_err(|e| OrderAnswer::NotNow(format!("cannot create a helper process: {e}")))?;
        self.errands.push(Errand {
            pid,
            pidfd,
            socket,
            number,
            by,
            kind,
            is_killed: false,
        });
        Ok(None)
    }

    /// Answers the orders whose errands are done or late.
    fn look_at_errands(&mut self, host: &mut impl SpawnerBackend) {
        for mut errand in std::mem::take(&mut self.errands) {
            if errand.is_killed {
                self.errands.push(errand);
                continue;
            }
            let (number, by) = (errand.number, errand.by);
            let answer = match errand.read_answer() {
                ErrandEvent::Goes => {
                    self.errands.push(errand);
                    continue;
                }
                ErrandEvent::Done(fds) => self.finish_errand(host, errand, fds),
                ErrandEvent::Not(answer) => {
                    self.fail_errand(errand);
                    Err(answer)
                }
            };
            match answer {
                Ok(fds) => self.send_answer(number, by, OrderAnswer::Done, fds),
                Err(answer) => self.send_answer(number, by, answer, Vec::new()),
            }
        }
    }

    fn finish_errand(
        &mut self,
        host: &mut impl SpawnerBackend,
        errand: Errand,
        fds: Vec<OwnedFd>,
    ) -> Result<Vec<OwnedFd>, OrderAnswer> {
        let now = Instant::now();
        let Errand {
            pid,
            pidfd,
            socket,
            kind,
            ..
        } = errand;
        // Unless it is a helper, the process has no more work, and is reaped with the strays.
        self.strays = true;
        match kind {
            ErrandKind::Helper(key, group) => {
                self.helpers.add_helper(HelperProcess {
                    key,
                    pid,
                    pidfd,
                    group,
                    since: now,
                });
                Ok(vec![socket])
            }
            ErrandKind::Reload => {
                let remits = fds
                    .into_iter()
                    .next()
                    .and_then(|file| coded::read(file).ok());
                let words = "the process that read the configuration sent an invalid answer";
                let remits = remits.ok_or_else(|| OrderAnswer::NotNow(words.into()))?;
                self.remits.replace(remits, now);
                Ok(Vec::new())
            }
            ErrandKind::Listener => Ok(fds),
            ErrandKind::Upgrade => self
                .upgrade
                .start_successor(host, now)
                .map_err(OrderAnswer::Denied),
        }
    }

    /// Handles an errand that was killed or has ended.
    fn fail_errand(&mut self, errand: Errand) {
        self.strays = true;
        match &errand.kind {
            _ if errand.is_killed => self.errands.push(errand),
            ErrandKind::Helper(_, Some(group)) => self.cgroups.remove_helper(group),
            _ => {}
        }
    }

    /// Reaps helpers that have ended.
    fn reap_helpers(&mut self) {
        let helpers = self.helpers.reap_ended();
        let late = |errand: &mut Errand| errand.is_killed && reap_by_pid(errand.pid);
        let errands = self.errands.extract_if(.., late);
        let errands = errands.filter_map(|errand| match errand.kind {
            ErrandKind::Helper(_, group) => group,
            _ => None,
        });
        for group in helpers.into_iter().chain(errands.collect::<Vec<_>>()) {
            self.cgroups.remove_helper(&group);
        }
    }

    /// Kills leftover processes of helpers. Returns whether there may be more. A process that ends may leave its own children
    /// here after the list was read: only a pass that finds no strays is the last.
    ///
    /// After another server has taken over, its leftover processes become children of this process, too: its spawner, and the
    /// server that took its own place. Neither has a helper's mark.
    fn kill_strays(&mut self) -> bool {
        let mut strays = children();
        strays.retain(|pid| !self.is_known(*pid));
        // Look after the list was read: a successor that serves has said so before it left any process.
        let mut found = self.upgrade.check_successor(Instant::now());
        // Spare processes that a successor has started: they belong to no helper.
        let spares = self.upgrade.is_there();
        for pid in strays {
            // The process is a child that only this function reaps, so its number cannot be reused.
            if !(spares && self.is_of_no_helper(pid)) {
                let _ = kill_process(pid, Signal::KILL);
                found = true;
            }
            reap_by_pid(pid);
        }
        found
    }

    /// Whether a process has no mark of a helper.
    fn is_of_no_helper(&self, pid: Pid) -> bool {
        mark_of(pid.as_raw_pid()).is_some_and(|mark| !self.marks.contains(mark))
    }

    /// Whether a process is a helper, an errand or the successor.
    fn is_known(&self, pid: Pid) -> bool {
        let mut helpers = self.helpers.iter().map(|helper| helper.pid);
        let mut errands = self.errands.iter().map(|errand| errand.pid);
        helpers.any(|known| known == pid)
            || errands.any(|known| known == pid)
            || self.upgrade.is_successor(pid)
    }

    /// Ends the helpers and all that they have started, after the server has gone. A server that has taken its place stays.
    fn kill_all(&mut self) {
        self.upgrade.end_successor(Instant::now());
        for errand in self.errands.drain(..) {
            let _ = kill_process(errand.pid, Signal::KILL);
        }
        for group in self.helpers.kill_all() {
            self.cgroups.remove_helper(&group);
        }
        for _ in 0..LAST_LOOKS {
            if !self.kill_strays() && !self.cgroups.remove_empty_groups() {
                return;
            }
            let _ = poll(&mut [], Some(&LOOK));
        }
    }
}
