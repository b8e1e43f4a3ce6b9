//! Watches a process without blocking.

use std::{
    future::poll_fn,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use galgo_io::{sock::register, tick};
use galgo_service::{
    admission::{Crowding, Permit},
    fault::Fault,
};
use galgo_spawn::{Child, Exit, Priority, Status, words::describe_status};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, sleep_until},
};

/// A process, registered with the event loop only when the server has to wait for its exit.
#[derive(Debug)]
pub(super) struct Process {
    state: ProcessState,
    /// Time since which the process is known to have exited and nothing was printed.
    quiet: Option<Instant>,
    /// Permit to run, until it is given back. `priority` tells how far the process runs behind the programs of other clients.
    pub(super) permit: Option<Permit>,
    priority: Priority,
    /// Tick of the next check of the priority.
    tick: tick::Wait,
}

#[derive(Debug)]
enum ProcessState {
    Idle(Child),
    /// The descriptor's number comes before the process, because the event loop must forget the descriptor before it is closed.
    Watched(AsyncFd<RawFd>, Child),
    /// The process was reaped, and may have left other processes behind.
    Left(Child),
    Gone,
}

impl ProcessState {
    /// Returns the process until it is reaped.
    fn unreaped_child(&self) -> Option<&Child> {
        match self {
            Self::Idle(child) | Self::Watched(_, child) => Some(child),
            Self::Left(_) | Self::Gone => None,
        }
    }

    async fn await_exit(&mut self) {
        *self = match std::mem::replace(self, Self::Gone) {
            Self::Idle(child) => match register(child.as_raw_fd(), Interest::READABLE) {
                Ok(fd) => Self::Watched(fd, child),
                Err(_) => Self::Idle(child),
            },
            other => other,
        };
        match self {
            // Once readable, a pidfd stays readable.
            Self::Watched(fd, child) if !child.is_remote() => drop(fd.readable().await),
            // A helper reports other things first, and may have reported the end along with the start.
            Self::Watched(fd, child) => {
                while !child.has_exited().unwrap_or(true) {
                    let Ok(mut ready) = fd.readable().await else {
                        return;
                    };
                    ready.clear_ready();
                }
            }
            // The event loop has no room for the process: check it with every tick.
            Self::Idle(child) => {
                while !child.has_exited().unwrap_or(true) {
                    tick::next().await;
                }
            }
            Self::Left(_) | Self::Gone => {}
        }
    }
}

impl Process {
    pub(super) fn new(child: Child, permit: Permit) -> Self {
        Self {
            state: ProcessState::Idle(child),
            quiet: None,
            priority: at_start(&permit),
            permit: Some(permit),
            tick: tick::Wait::default(),
        }
    }

    /// Waits until the process has exited and nothing was [printed](Self::record_output) for `grace`. Most processes exit before they
    /// need to be watched, and are never registered with the event loop. A caller may drop this future and call again: the wait
    /// goes on where it was.
    pub(super) async fn await_silent_exit(&mut self, grace: Duration) {
        if let ProcessState::Idle(_) = self.state {
            tick::next().await;
        }
        while self.priority < Priority::IdleLeavingOne {
            let Self { state, tick, .. } = self;
            tokio::select! {
                () = state.await_exit() => break,
                () = poll_fn(|cx| tick.poll(cx)) => self.update_priority(),
            }
        }
        self.await_exit().await;
        let since = *self.quiet.get_or_insert_with(Instant::now);
        sleep_until(since + grace).await;
    }

    /// Lowers the priority of the process if its client's address has come to crowd other clients.
    fn update_priority(&mut self) {
        let Some(permit) = &self.permit else { return };
        let priority = priority(permit.current_crowding());
        if priority <= self.priority {
            return;
        }
        self.priority = priority;
        if let Some(child) = self.state.unreaped_child() {
            child.lower_priority(priority);
        }
    }

    /// Notes that output has come. If the process has exited, it comes from processes that it left running.
    pub(super) fn record_output(&mut self) {
        if let Some(since) = &mut self.quiet {
            *since = Instant::now();
        }
    }

    /// Returns whether the rest of the process's group goes on after the process is reaped.
    pub(super) fn leaves_its_group(&self) -> bool {
        self.state
            .unreaped_child()
            .is_none_or(Child::leaves_its_group)
    }

    /// Returns whether a helper reports the end of the process.
    pub(super) fn is_remote(&self) -> bool {
        self.state.unreaped_child().is_some_and(Child::is_remote)
    }

    /// Returns whether the process will do nothing more, though it has not exited yet.
    pub(super) fn is_exiting(&self) -> bool {
        self.state.unreaped_child().is_some_and(Child::is_exiting)
    }

    /// Waits until the process has exited, without reaping it.
    pub(super) async fn await_exit(&mut self) {
        self.state.await_exit().await;
    }

    /// Reaps the process if it has exited. The rest of its group goes on until it is signalled, or until this is dropped.
    pub(super) fn reap(&mut self) -> Option<Exit> {
        let exit = match &mut self.state {
            ProcessState::Idle(child) | ProcessState::Watched(_, child) => child.try_wait_alone(),
            ProcessState::Left(_) | ProcessState::Gone => return None,
        };
        let exit = exit.transpose()?;
        self.state = match std::mem::replace(&mut self.state, ProcessState::Gone) {
            // The child identifies the processes that it left running, even outside its group.
            ProcessState::Idle(child) | ProcessState::Watched(_, child) => {
                ProcessState::Left(child)
            }
            state => state,
        };
        exit.ok()
    }

    /// Returns whether the process was reaped and has left others of its group behind.
    pub(super) fn left_others(&self) -> bool {
        matches!(&self.state, ProcessState::Left(child) if child.has_left_others())
    }

    /// Returns the group of a reaped process while leftover processes are in it; 0 if only the helper knows the group.
    pub(super) fn leftover_group(&mut self) -> Option<i32> {
        let ProcessState::Left(child) = &mut self.state else {
            return None;
        };
        if child.group_remains() {
            return Some(child.pid());
        }
        self.state = ProcessState::Gone;
        None
    }

    /// See [`Child::let_leftovers_stay`].
    pub(super) fn let_leftovers_stay(&mut self, stay: bool) {
        match &mut self.state {
            ProcessState::Idle(child)
            | ProcessState::Watched(_, child)
            | ProcessState::Left(child) => child.let_leftovers_stay(stay),
            ProcessState::Gone => {}
        }
    }

    pub(super) fn signal(&self, signal: i32) {
        // Signalling fails only if the group has already ended.
        let _ = match &self.state {
            ProcessState::Idle(child)
            | ProcessState::Watched(_, child)
            | ProcessState::Left(child) => child.signal_group(signal),
            ProcessState::Gone => Ok(()),
        };
    }
}

/// Returns the fault of a response whose output has ended: none if the program exited by itself.
pub(crate) fn unfinished(exit: Exit) -> Option<Fault> {
    match exit.status {
        Status::Code(_) => None,
        status @ Status::Signal(_) => Some(Fault::Script(format!(
            "the program did not finish its response: it was killed {}",
            describe_status(status)
        ))),
    }
}

/// Returns the priority of a program at its start, relative to programs of other clients. Only a program that runs longer has to
/// leave a processor to those.
pub(crate) fn at_start(permit: &Permit) -> Priority {
    priority(permit.initial_crowding()).min(Priority::Idle)
}

/// Returns the priority of an address's programs, relative to programs of other clients.
fn priority(crowds: Crowding) -> Priority {
    match crowds {
        Crowding::None => Priority::Normal,
        Crowding::Some => Priority::Idle,
        Crowding::Most => Priority::IdleLeavingOne,
    }
}
