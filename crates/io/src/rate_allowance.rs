//! How long a client may keep us waiting: a total allowance that grows with every byte it moves.
//!
//! There are two. The one of `min_rate` ends whoever uses it up. The one of `busy_rate` ends who holds a permit that others
//! wait for. What a client reads is what its kernel has acknowledged: our own takes in megabytes of an answer at once, and has
//! room for more seconds later, however steadily they are read.

use std::{
    fmt::Debug,
    future::poll_fn,
    io::{self, ErrorKind},
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::{tick, transport::Transport, turn};

/// What a wait ends with when the client is slower than `busy_rate` and others wait for its permit.
pub const GIVES_WAY: ErrorKind = ErrorKind::ResourceBusy;
/// How often it is looked at what a client has read, at most.
const LOOK: Duration = Duration::from_secs(1);

/// How slow a client may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Slowest acceptable client, bytes a second, measured over `grace`; 0: any.
    pub least: u64,
    /// The slowest client that keeps its permit while others wait for one, likewise.
    pub busy: u64,
    /// How long a client may be slower.
    pub grace: Duration,
}

/// A permit that others may wait for.
pub trait HeldPermit: Debug + Send + Sync {
    /// Whether its holder, whose client is slow, must give way to a request that waits. Asked again and again.
    fn gives_way(&self, slow_for_long: bool) -> bool;
}

/// The permit that a request may have, for who waits for its client.
#[derive(Debug, Clone, Default)]
pub struct Holding(Option<Weak<dyn HeldPermit>>);

impl Holding {
    /// That permit, for as long as it is held.
    pub fn of<P: HeldPermit + 'static>(permit: &Arc<P>) -> Self {
        let permit: Weak<P> = Arc::downgrade(permit);
        Self(Some(permit))
    }

    /// Whether there is a permit.
    pub fn is_held(&self) -> bool {
        self.0.as_ref().is_some_and(|p| p.strong_count() > 0)
    }

    /// Whether there is one, and its holder must give way.
    pub fn gives_way(&self, slow_for_long: bool) -> bool {
        let permit = self.0.as_ref().and_then(Weak::upgrade);
        permit.is_some_and(|permit| permit.gives_way(slow_for_long))
    }
}

/// The allowances of one client in one direction. Only time spent waiting for the client counts.
#[derive(Debug)]
pub struct RateAllowance {
    /// By `min_rate`.
    least: Allowance,
    /// By `busy_rate`.
    busy: Allowance,
    /// Of both, at most.
    grace: u64,
    /// Since when the client is waited for. It outlives a wait that is given up for something more
    /// urgent, so that the clock cannot be reset by causing events elsewhere.
    since: Option<Instant>,
    /// Wakes the task when it is time to look at that.
    timer: Option<Pin<Box<Sleep>>>,
    /// When it is asked whether the permit is wanted.
    tick: tick::Wait,
    /// The permit it may have to give up.
    permit: Holding,
    reader: Option<ReadingClient>,
}

/// Time that is left, in nanoseconds: every request counts with it.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    /// [`ENDLESS`]: it is never used up.
    left: u64,
    per_byte: u64,
}

const ENDLESS: u64 = u64::MAX;

/// A client that reads.
#[derive(Debug)]
struct ReadingClient {
    sock: Rc<Transport>,
    /// What it had not acknowledged when that was looked at last, in this wait.
    unread: Option<usize>,
    /// Bytes that have been counted before they were written: it has acknowledged as many since nothing fits.
    ahead: usize,
    /// Others write to that socket, too.
    shared: bool,
}

impl Allowance {
    fn new(grace: u64, rate: u64) -> Self {
        Self {
            left: if rate > 0 { grace } else { ENDLESS },
            per_byte: 1_000_000_000 / rate.max(1),
        }
    }

    fn set(&mut self, left: u64) {
        if self.left != ENDLESS {
            self.left = left;
        }
    }

    fn spend(&mut self, time: u64) {
        self.set(self.left.saturating_sub(time));
    }

    fn grow(&mut self, bytes: usize, most: u64) {
        let earned = self.per_byte.saturating_mul(bytes as u64);
        self.set(self.left.saturating_add(earned).min(most));
    }

    fn is_used_up(self) -> bool {
        self.left == 0
    }
}

impl ReadingClient {
    /// Bytes that were acknowledged since it was last looked at; nothing was written meanwhile, or only by others.
    fn read(&mut self) -> usize {
        let now = self.sock.unacknowledged();
        let read = match (self.unread, now) {
            (Some(before), Some(now)) => before.saturating_sub(now),
            _ => 0,
        };
        self.unread = now;
        if !self.shared {
            self.ahead += read;
        }
        read
    }

    /// How many of `n` bytes that were written have not been counted yet.
    fn written(&mut self, n: usize) -> usize {
        self.unread = None;
        let counted = n.min(self.ahead);
        self.ahead -= counted;
        n - counted
    }
}

impl RateAllowance {
    /// The allowance of a client that may be as slow as it likes.
    pub fn endless() -> Self {
        Self {
            least: Allowance::new(0, 0),
            busy: Allowance::new(0, 0),
            grace: 0,
            since: None,
            timer: None,
            tick: tick::Wait::default(),
            permit: Holding::default(),
            reader: None,
        }
    }

    /// The allowance of a client, as configured: `grace` of waiting is free, and each byte moved earns `1 / least` seconds more,
    /// up to `grace`. With a rate of 0 all of it is.
    pub fn of(rates: &Rates) -> Self {
        let mut allowance = Self::endless();
        allowance.begin(rates);
        allowance
    }

    /// The same, for what the client reads from `sock`.
    #[must_use]
    pub fn reading(rates: &Rates, sock: &Rc<Transport>) -> Self {
        let reader = ReadingClient {
            sock: sock.clone(),
            unread: None,
            ahead: 0,
            shared: false,
        };
        Self {
            reader: Some(reader),
            ..Self::of(rates)
        }
    }

    /// The same, for one of several answers that share `sock`, and waits until the client lets it go on. What the client reads
    /// shows that it is there; a permit that others wait for it keeps by what moves for this answer alone.
    #[must_use]
    pub fn sharing(rates: &Rates, sock: &Rc<Transport>) -> Self {
        let mut allowance = Self::reading(rates, sock);
        if let Some(reader) = &mut allowance.reader {
            reader.shared = true;
        }
        allowance
    }

    /// Begins a new request, as configured now.
    pub fn begin(&mut self, rates: &Rates) {
        self.grace = nanos(rates.grace);
        self.least = Allowance::new(self.grace, rates.least);
        self.busy = Allowance::new(self.grace, rates.busy);
        self.since = None;
        self.timer = None;
        self.permit = Holding::default();
        if let Some(reader) = &mut self.reader {
            (reader.unread, reader.ahead) = (None, 0);
        }
    }

    /// The whole grace is there again.
    pub fn reset(&mut self) {
        for allowance in [&mut self.least, &mut self.busy] {
            allowance.set(self.grace);
        }
        self.since = None;
    }

    /// The client's request has a permit that others may wait for.
    pub fn has_permit(&mut self, permit: Holding) {
        self.permit = permit;
    }

    /// Waits for `io`, which says how many bytes it moved, within the allowance.
    /// `TimedOut` when that is used up, [`GIVES_WAY`] where others wait. Whoever pins it outside has one of it in the future
    /// here, and not two.
    pub async fn wait(&mut self, io: impl Future<Output = io::Result<usize>>) -> io::Result<usize> {
        let mut io = pin!(io);
        poll_fn(|cx| self.poll_wait(cx, |cx| io.as_mut().poll(cx))).await
    }

    /// As [`RateAllowance::wait`], polled.
    pub fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        io: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // The client is not waited for while others have their turn.
        ready!(turn::poll_left(cx));
        // Most calls are ready at once: no clock is read for them.
        let Poll::Ready(done) = io(cx) else {
            return self.poll_slow(cx).map(Err);
        };
        if let Some(since) = self.since.take() {
            self.spend(since.elapsed());
            self.timer = None;
        }
        Poll::Ready(done.inspect(|&n| self.grow(n)))
    }

    /// Ready once the client has been waited for too long.
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if [self.least, self.busy].iter().all(|a| a.left == ENDLESS) {
            return Poll::Pending;
        }
        if let Some(reader) = self.reader.as_mut().filter(|r| r.unread.is_none()) {
            reader.read();
        }
        loop {
            let since = *self.since.get_or_insert_with(Instant::now);
            let look = since + self.step().min(Duration::from_nanos(self.least.left));
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(look)));
            if timer.deadline() != look {
                timer.as_mut().reset(look);
            }
            if timer.as_mut().poll(cx).is_pending() {
                break;
            }
            if let Err(e) = self.look() {
                return Poll::Ready(e);
            }
        }
        while self.is_slow() && self.tick.poll(cx).is_ready() {
            if self.permit.gives_way(self.busy.is_used_up()) {
                return Poll::Ready(GIVES_WAY.into());
            }
        }
        Poll::Pending
    }

    /// How long until it is looked at what has become of the allowances, at most.
    fn step(&self) -> Duration {
        let quarter = Duration::from_nanos(self.grace / 4);
        quarter.clamp(Duration::from_millis(1), LOOK)
    }

    /// Whether the client may have to give up its permit: it has lost more than one look's time.
    fn is_slow(&self) -> bool {
        let enough = self.grace.saturating_sub(nanos(self.step()));
        self.busy.left <= enough && self.permit.is_held()
    }

    /// Looks at what has become of the allowances.
    fn look(&mut self) -> io::Result<()> {
        if let Some(since) = self.since.replace(Instant::now()) {
            self.spend(since.elapsed());
        }
        if let Some(reader) = &mut self.reader {
            let read = reader.read();
            self.least.grow(read, self.grace);
            if !reader.shared {
                self.busy.grow(read, self.grace);
            }
        }
        if self.least.is_used_up() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Moves `len` bytes by calls of `some`, which is told how many are left and says how many it moved.
    pub async fn move_all(
        &mut self,
        len: usize,
        mut some: impl AsyncFnMut(usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut left = len;
        while left > 0 {
            match self.wait(pin!(some(left))).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => left -= n,
            }
        }
        Ok(())
    }

    fn spend(&mut self, time: Duration) {
        self.least.spend(nanos(time));
        self.busy.spend(nanos(time));
    }

    /// Bytes were moved otherwise than by what [`RateAllowance::wait`] waited for.
    pub fn grow(&mut self, bytes: usize) {
        let bytes = match &mut self.reader {
            Some(reader) => reader.written(bytes),
            None => bytes,
        };
        self.least.grow(bytes, self.grace);
        self.busy.grow(bytes, self.grace);
    }
}

/// The nanoseconds of a duration, as many as a number holds.
pub fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Polls `f` once; `Pending` if it is not ready.
pub async fn poll_once<F: Future>(mut f: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(f.as_mut().poll(cx))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance(grace: Duration, least: u64) -> RateAllowance {
        RateAllowance::of(&Rates {
            least,
            busy: 0,
            grace,
        })
    }

    #[test]
    fn bytes_earn_time_up_to_the_grace() {
        let mut p = allowance(Duration::from_secs(10), 1000);
        p.spend(Duration::from_secs(20));
        p.grow(2000);
        assert_eq!(p.least.left, 2_000_000_000);
        p.grow(1 << 30);
        assert_eq!(p.least.left, 10_000_000_000);
        p.spend(Duration::from_secs(20));
        p.reset();
        assert_eq!(p.least.left, 10_000_000_000);
    }

    #[test]
    fn the_allowance_runs_out() {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        rt.block_on(async {
            let mut p = allowance(Duration::from_millis(1), 1);
            let late = p.wait(std::future::pending()).await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            assert_eq!(p.wait(async { Ok(5) }).await.unwrap(), 5);
        });
    }
}
