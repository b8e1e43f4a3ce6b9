//! Turns: how much a connection may do before the event loop looks at the others.
//!
//! A client that always has more to say never makes its task wait. So the task of a connection has a turn of about
//! `LONGEST`. After that, everything that could go on without waiting waits instead, until the other tasks have run and the
//! kernel was asked for news ([`poll_turn`]). Reads and writes of [`crate::sock`] do this by themselves; whatever else costs time
//! is reported by [`spend_units`].
//!
//! A connection with one request at a time reads no clock for this: the clock is read once per `LOOK` units.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// A turn ends at the first look at the clock after this long.
const LONGEST: Duration = Duration::from_millis(1);
/// Units between two looks at the clock: some 50 µs.
const LOOK: u32 = 512;
/// A turn that moved at least this many bytes belonged to a transfer, and not to a flood of small things.
const BULK: usize = 256 << 10;

/// Units of one system call.
const CALL: u32 = 8;
/// Units of one request: parsing its head, finding its route, and making its response.
pub const REQUEST: u32 = 64;
/// Units of one chunk, frame or record.
pub const PIECE: u32 = 2;

thread_local! {
    static TURN: Turn = const { Turn::new() };
}

/// The turn of the task that runs.
#[derive(Debug)]
struct Turn {
    /// Flags of the turn: [`RUNS`] and so on. They are one word, because each poll of a connection sets and reads them.
    state: Cell<u32>,
    /// Units until the next look at the clock.
    left: Cell<u32>,
    /// Time of the first look at the clock in this turn, if it has [`LOOKED`].
    since: Cell<Option<Instant>>,
    /// Bytes moved in this turn.
    moved: Cell<usize>,
}

/// The task of a connection is running.
const RUNS: u32 = 1;
/// The clock was read in this turn.
const LOOKED: u32 = 2;
/// The turn is used up.
const OVER: u32 = 4;
/// Set by [`mark_flood`].
const FLOODS: u32 = 8;

/// The reason why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// The task waits for something else.
    Waits,
    /// A transfer of many bytes has used the turn up.
    Transfers,
    /// Many small things have used the turn up.
    Busy,
    /// The client sends so many small things that they have to wait for a while.
    Floods,
}

impl Turn {
    const fn new() -> Self {
        Self {
            state: Cell::new(0),
            left: Cell::new(LOOK),
            since: Cell::new(None),
            moved: Cell::new(0),
        }
    }

    fn begin(&self) {
        self.state.set(RUNS);
        self.left.set(LOOK);
        self.moved.set(0);
    }

    fn end(&self) -> Went {
        let state = self.state.replace(0);
        match (state & FLOODS != 0, state & OVER != 0) {
            (false, false) => Went::Waits,
            (true, _) => Went::Floods,
            (false, true) if self.moved.get() < BULK => Went::Busy,
            (false, true) => Went::Transfers,
        }
    }

    fn has_flag(&self, flag: u32) -> bool {
        self.state.get() & flag != 0
    }

    fn add_flag(&self, flag: u32) {
        self.state.set(self.state.get() | flag);
    }

    #[inline]
    fn spend_units(&self, units: u32) {
        match self.left.get().checked_sub(units) {
            Some(left) => self.left.set(left),
            None => self.check_clock(),
        }
    }

    #[cold]
    fn check_clock(&self) {
        self.left.set(LOOK);
        let now = Instant::now();
        let since = self
            .since
            .get()
            .filter(|_| self.has_flag(LOOKED))
            .unwrap_or(now);
        self.since.set(Some(since));
        self.add_flag(LOOKED);
        if self.has_flag(RUNS) && now - since >= LONGEST {
            self.add_flag(OVER);
        }
    }
}

/// Runs one poll of a connection's task in a new turn, and returns how the turn ended.
pub fn run_turn<T>(poll: impl FnOnce() -> T) -> (T, Went) {
    TURN.with(Turn::begin);
    let polled = poll();
    (polled, TURN.with(Turn::end))
}

/// Counts `units` of work that was done.
#[inline]
pub fn spend_units(units: u32) {
    TURN.with(|turn| turn.spend_units(units));
}

/// Counts a system call that moved this many bytes.
#[inline]
pub(crate) fn count_call(bytes: usize) {
    TURN.with(|turn| {
        turn.moved.set(turn.moved.get().wrapping_add(bytes));
        turn.spend_units(CALL);
    });
}

/// Returns whether the turn is used up.
#[inline]
pub fn is_used_up() -> bool {
    TURN.with(|turn| turn.has_flag(OVER))
}

/// Ends the turn, so that other tasks run first.
pub fn end_turn() {
    TURN.with(|turn| turn.add_flag(if turn.has_flag(RUNS) { OVER } else { 0 }));
}

/// Notes that the client of this turn sends a flood.
pub fn mark_flood() {
    TURN.with(|turn| turn.add_flag(FLOODS));
}

/// Ready while the turn lasts. Once it is used up the task is polled again after the others, and after the kernel was asked
/// for news.
#[inline]
pub fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    if is_used_up() {
        defer_task(cx)
    } else {
        Poll::Ready(())
    }
}

#[cold]
fn defer_task(cx: &mut Context<'_>) -> Poll<()> {
    // Unlike wake_by_ref, yield_now wakes the task only after the event loop has looked for events. Its first poll does that.
    let _deferred = pin!(tokio::task::yield_now()).poll(cx);
    Poll::Pending
}

/// Waits until [`poll_turn`] is ready.
pub async fn wait_for_turn() {
    poll_fn(poll_turn).await;
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn on_a_loop<T>(run: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let local = tokio::task::LocalSet::new();
        runtime.unwrap().block_on(local.run_until(run))
    }

    /// Spends units until the turn is over.
    fn use_up() {
        while !is_used_up() {
            spend_units(REQUEST);
        }
    }

    #[test]
    fn others_run_and_the_kernel_is_asked_between_two_turns() {
        on_a_loop(async {
            let done = Rc::new(Cell::new(false));
            let busy = tokio::task::spawn_local({
                let done = done.clone();
                async move {
                    let mut busy = pin!(async {
                        let mut turns = 0;
                        while !done.get() {
                            use_up();
                            wait_for_turn().await;
                            turns += 1;
                        }
                        turns
                    });
                    poll_fn(|cx| run_turn(|| busy.as_mut().poll(cx)).0).await
                }
            });
            // Only the kernel can announce this end of file.
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let sock = crate::sock::Sock::new(ours.into());
            tokio::task::spawn_local(async move {
                wait_for_turn().await;
                drop(theirs);
            });
            sock.wait_until_readable().await.unwrap();
            done.set(true);
            assert!(busy.await.unwrap() > 0);
        });
    }

    #[test]
    fn what_a_turn_went_for_is_told() {
        assert_eq!(run_turn(|| spend_units(REQUEST)).1, Went::Waits);
        assert_eq!(run_turn(use_up).1, Went::Busy);
        let bulk = || {
            count_call(BULK);
            use_up();
        };
        assert_eq!(run_turn(bulk).1, Went::Transfers);
        assert_eq!(run_turn(mark_flood).1, Went::Floods);
        assert!(!is_used_up());
        // Work outside of a turn is never put off.
        let began = Instant::now();
        while began.elapsed() < 3 * LONGEST {
            spend_units(LOOK);
        }
        assert!(!is_used_up());
    }
}
