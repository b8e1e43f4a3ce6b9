//! A process, watched without being waited for.

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
use galgo_spawn::{Child, Exit, Priority, Status, words::how};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, sleep_until},
};

/// A process, registered with the event loop only when it has to be waited for.
#[derive(Debug)]
pub(super) struct Process {
    state: ProcessState,
    /// Since when it is known to have exited, and nothing has been printed.
    quiet: Option<Instant>,
    /// Its permit to run, until it is given back; and how far it runs behind the programs of others.
    pub(super) permit: Option<Permit>,
    priority: Priority,
    /// When it is looked at how far it should.
    tick: tick::Wait,
}

#[derive(Debug)]
enum ProcessState {
    Idle(Child),
    /// The number of its descriptor, before it: the event loop must forget it before that is closed.
    Watched(AsyncFd<RawFd>, Child),
    /// It was reaped, and may have left others behind.
    Left(Child),
    Gone,
}

impl ProcessState {
    /// The process, until it was reaped.
    fn child(&self) -> Option<&Child> {
        match self {
            Self::Idle(child) | Self::Watched(_, child) => Some(child),
            Self::Left(_) | Self::Gone => None,
        }
    }

    async fn exited(&mut self) {
        *self = match std::mem::replace(self, Self::Gone) {
            Self::Idle(child) => match register(child.as_raw_fd(), Interest::READABLE) {
                Ok(fd) => Self::Watched(fd, child),
                Err(_) => Self::Idle(child),
            },
            other => other,
        };
        match self {
            // Readiness of a pidfd does not go away.
            Self::Watched(fd, child) if !child.is_remote() => drop(fd.readable().await),
            // A helper tells other things first, and may have told of the end with the start.
            Self::Watched(fd, child) => {
                while !child.has_exited().unwrap_or(true) {
                    let Ok(mut ready) = fd.readable().await else {
                        return;
                    };
                    ready.clear_ready();
                }
            }
            // The event loop has no room for it: it is looked at with every tick.
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

    /// Waits until the process has exited and nothing was [printed](Self::printed) for `grace`. Most exit before they need to be
    /// watched, and are never registered with the event loop. Given up and begun again it goes on where it was.
    pub(super) async fn exited_for(&mut self, grace: Duration) {
        if let ProcessState::Idle(_) = self.state {
            tick::next().await;
        }
        while self.priority < Priority::IdleLeavingOne {
            let Self { state, tick, .. } = self;
            tokio::select! {
                () = state.exited() => break,
                () = poll_fn(|cx| tick.poll(cx)) => self.look_around(),
            }
        }
        self.exited().await;
        let since = *self.quiet.get_or_insert_with(Instant::now);
        sleep_until(since + grace).await;
    }

    /// Has it run behind the programs of others, if its address crowds them by now.
    fn look_around(&mut self) {
        let Some(permit) = &self.permit else { return };
        let priority = priority(permit.crowds_now());
        if priority <= self.priority {
            return;
        }
        self.priority = priority;
        if let Some(child) = self.state.child() {
            child.lower(priority);
        }
    }

    /// Output has come: of those that the process has left running, if it has exited.
    pub(super) fn printed(&mut self) {
        if let Some(since) = &mut self.quiet {
            *since = Instant::now();
        }
    }

    /// Whether those that it leaves behind in its group go on as it is reaped.
    pub(super) fn leaves_its_group(&self) -> bool {
        self.state.child().is_none_or(Child::leaves_its_group)
    }

    /// Whether a helper tells how it ends.
    pub(super) fn is_remote(&self) -> bool {
        self.state.child().is_some_and(Child::is_remote)
    }

    /// Whether the process will do nothing more, though it has not exited yet.
    pub(super) fn is_exiting(&self) -> bool {
        self.state.child().is_some_and(Child::is_exiting)
    }

    /// Waits until the process has exited; it is not reaped by this.
    pub(super) async fn exited(&mut self) {
        self.state.exited().await;
    }

    /// Reaps the process where it has exited. What is left of its group goes on until it is signalled, or this is dropped.
    pub(super) fn reap(&mut self) -> Option<Exit> {
        let exit = match &mut self.state {
            ProcessState::Idle(child) | ProcessState::Watched(_, child) => child.try_wait_alone(),
            ProcessState::Left(_) | ProcessState::Gone => return None,
        };
        let exit = exit.transpose()?;
        self.state = match std::mem::replace(&mut self.state, ProcessState::Gone) {
            // What it has left running is known by that, also outside of its group.
            ProcessState::Idle(child) | ProcessState::Watched(_, child) => {
                ProcessState::Left(child)
            }
            state => state,
        };
        exit.ok()
    }

    /// Whether it was reaped and has left others of its group behind.
    pub(super) fn left_others(&self) -> bool {
        matches!(&self.state, ProcessState::Left(child) if child.left_others())
    }

    /// The group of a process that was reaped, while those it has left behind are in it; 0 where only its helper knows that.
    pub(super) fn group(&mut self) -> Option<i32> {
        let ProcessState::Left(child) = &mut self.state else {
            return None;
        };
        if child.group_remains() {
            return Some(child.pid());
        }
        self.state = ProcessState::Gone;
        None
    }

    pub(super) fn signal(&self, signal: i32) {
        // It fails only where the group has ended already.
        let _ = match &self.state {
            ProcessState::Idle(child)
            | ProcessState::Watched(_, child)
            | ProcessState::Left(child) => child.signal_group(signal),
            ProcessState::Gone => Ok(()),
        };
    }
}

/// What is wrong with a response whose output has ended, by how its program did: nothing, where that exited by itself.
pub(crate) fn unfinished(exit: Exit) -> Option<Fault> {
    match exit.status {
        Status::Code(_) => None,
        status @ Status::Signal(_) => Some(Fault::Script(format!(
            "the program did not finish its response: it was ended {}",
            how(status)
        ))),
    }
}

/// How a program stands to those of others at its start. Only one that runs for longer has to leave a processor to them.
pub(crate) fn at_start(permit: &Permit) -> Priority {
    priority(permit.crowds()).min(Priority::Idle)
}

/// How the programs of an address stand to those of others.
fn priority(crowds: Crowding) -> Priority {
    match crowds {
        Crowding::None => Priority::Normal,
        Crowding::Some => Priority::Idle,
        Crowding::Most => Priority::IdleLeavingOne,
    }
}
