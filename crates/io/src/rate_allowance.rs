//! Time that a client may keep us waiting: a total allowance that grows with every byte that the client moves.
//!
//! There are two allowances. A client that uses up the allowance of `min_rate` is disconnected. A client that uses up the
//! allowance of `busy_rate` loses its permit, if other requests wait for one. A client has read as much as its kernel has
//! acknowledged. Our own kernel is no measure: it takes megabytes of an answer at once, and has room for more only seconds
//! later, however steadily the client reads.

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

/// The error of a wait that ends because the client is slower than `busy_rate` and other requests wait for its permit.
pub const GIVES_WAY: ErrorKind = ErrorKind::ResourceBusy;
/// The longest time between two looks at how much a client has read.
const LOOK: Duration = Duration::from_secs(1);

/// Limits on how slow a client may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Slowest acceptable client, in bytes a second, measured over `grace`; 0: a client may be as slow as it likes.
    pub least: u64,
    /// Slowest client that keeps its permit while other requests wait for one, measured likewise.
    pub busy: u64,
    /// Time for which a client may be slower.
    pub grace: Duration,
}

/// A permit that other requests may wait for.
pub trait HeldPermit: Debug + Send + Sync {
    /// Returns whether the holder, which has a slow client, must give way to a request that waits. May be called repeatedly.
    fn must_give_way(&self, slow_for_long: bool) -> bool;
}

/// A weak reference to the permit that a request may have, for the code that waits for the request's client.
#[derive(Debug, Clone, Default)]
pub struct Holding(Option<Weak<dyn HeldPermit>>);

impl Holding {
    /// Refers to `permit` for as long as the request holds it.
    pub fn from_permit<P: HeldPermit + 'static>(permit: &Arc<P>) -> Self {
        let permit: Weak<P> = Arc::downgrade(permit);
        Self(Some(permit))
    }

    /// Returns whether a permit is held.
    pub fn is_held(&self) -> bool {
        self.0.as_ref().is_some_and(|p| p.strong_count() > 0)
    }

    /// Returns whether a permit is held and its holder must give way.
    pub fn must_give_way(&self, slow_for_long: bool) -> bool {
        let permit = self.0.as_ref().and_then(Weak::upgrade);
        permit.is_some_and(|permit| permit.must_give_way(slow_for_long))
    }
}

/// The allowances of one client in one direction. Only time spent waiting for the client counts.
#[derive(Debug)]
pub struct RateAllowance {
    /// Time left by `min_rate`.
    least: Allowance,
    /// Time left by `busy_rate`.
    busy: Allowance,
    /// The most that either allowance can hold, in nanoseconds.
    grace: u64,
    /// Start of the current wait for the client. The start outlives a wait that is given up for something more urgent, so that
    /// a client cannot reset the clock by causing other events.
    since: Option<Instant>,
    /// Wakes the task for the next look at the allowances.
    timer: Option<Pin<Box<Sleep>>>,
    /// The wait for the tick at which the task asks whether its permit is wanted.
    tick: tick::Wait,
    /// The permit that the request may have to give up.
    permit: Holding,
    reader: Option<ReadingClient>,
}

/// Time that is left, in nanoseconds. A plain number, because every request computes with it.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    /// Nanoseconds, or [`ENDLESS`] if the allowance is never used up.
    left: u64,
    per_byte: u64,
}

const ENDLESS: u64 = u64::MAX;

/// A client that reads a response.
#[derive(Debug)]
struct ReadingClient {
    sock: Rc<Transport>,
    /// Bytes that the client had not acknowledged at the last look, in this wait.
    unread: Option<usize>,
    /// Bytes that were counted in advance, because the client acknowledged them while the next write waited for room. As many
    /// bytes of later writes are not counted again.
    ahead: usize,
    /// Whether others write to the same socket, too.
    shared: bool,
}

impl Allowance {
    fn new(grace: u64, rate: u64) -> Self {
        Self {
            left: if rate > 0 { grace } else { ENDLESS },
            per_byte: 1_000_000_000 / rate.max(1),
        }
    }

    fn set_remaining(&mut self, left: u64) {
        if self.left != ENDLESS {
            self.left = left;
        }
    }

    fn spend_time(&mut self, time: u64) {
        self.set_remaining(self.left.saturating_sub(time));
    }

    fn credit_bytes(&mut self, bytes: usize, most: u64) {
        let earned = self.per_byte.saturating_mul(bytes as u64);
        self.set_remaining(self.left.saturating_add(earned).min(most));
    }

    fn is_used_up(self) -> bool {
        self.left == 0
    }
}

impl ReadingClient {
    /// Returns how many bytes the client has acknowledged since the last call. Since then only others may have written to the
    /// socket.
    fn count_acknowledged(&mut self) -> usize {
        let now = self.sock.unacknowledged_bytes();
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

    /// Returns how many of `n` written bytes have not been counted yet.
    fn count_written(&mut self, n: usize) -> usize {
        self.unread = None;
        let counted = n.min(self.ahead);
        self.ahead -= counted;
        n - counted
    }
}

impl RateAllowance {
    /// Creates the allowance of a client that may be as slow as it likes.
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

    /// Creates the allowance of a client, as configured. The client has `grace` of waiting, and each byte that it moves earns
    /// `1 / least` seconds more, up to `grace`. A rate of 0 allows any wait.
    pub fn from_rates(rates: &Rates) -> Self {
        let mut allowance = Self::endless();
        allowance.begin_request(rates);
        allowance
    }

    /// Creates the same allowance, for data that the client reads from `sock`.
    #[must_use]
    pub fn for_reader(rates: &Rates, sock: &Rc<Transport>) -> Self {
        let reader = ReadingClient {
            sock: sock.clone(),
            unread: None,
            ahead: 0,
            shared: false,
        };
        Self {
            reader: Some(reader),
            ..Self::from_rates(rates)
        }
    }

    /// Creates the same allowance for an answer that shares `sock` with other answers, and waits until the client lets it go
    /// on. All that the client reads from the socket counts for `min_rate`. For `busy_rate`, and so for the permit, only the
    /// bytes of this answer count.
    #[must_use]
    pub fn for_shared_reader(rates: &Rates, sock: &Rc<Transport>) -> Self {
        let mut allowance = Self::for_reader(rates, sock);
        if let Some(reader) = &mut allowance.reader {
            reader.shared = true;
        }
        allowance
    }

    /// Begins a new request, with the rates that are configured now.
    pub fn begin_request(&mut self, rates: &Rates) {
        self.grace = saturating_nanos(rates.grace);
        self.least = Allowance::new(self.grace, rates.least);
        self.busy = Allowance::new(self.grace, rates.busy);
        self.since = None;
        self.timer = None;
        self.permit = Holding::default();
        if let Some(reader) = &mut self.reader {
            (reader.unread, reader.ahead) = (None, 0);
        }
    }

    /// Restores the whole grace.
    pub fn restore_grace(&mut self) {
        for allowance in [&mut self.least, &mut self.busy] {
            allowance.set_remaining(self.grace);
        }
        self.since = None;
    }

    /// Sets the permit of the client's request, which other requests may wait for.
    pub fn set_permit(&mut self, permit: Holding) {
        self.permit = permit;
    }

    /// Waits for `io`, which returns how many bytes it moved, within the allowance. Fails with `TimedOut` if the allowance of
    /// `min_rate` is used up, and with [`GIVES_WAY`] if other requests wait for the permit. Pin `io` before you pass it: then
    /// this future holds only one copy of it instead of two.
    pub async fn wait_for_io(
        &mut self,
        io: impl Future<Output = io::Result<usize>>,
    ) -> io::Result<usize> {
        let mut io = pin!(io);
        poll_fn(|cx| self.poll_io(cx, |cx| io.as_mut().poll(cx))).await
    }

    /// Does the same as [`RateAllowance::wait_for_io`], as a poll function.
    pub fn poll_io(
        &mut self,
        cx: &mut Context<'_>,
        io: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // While other tasks have their turn, no time of the client's is counted.
        ready!(turn::poll_turn(cx));
        // Most calls are ready at once, so they read no clock.
        let Poll::Ready(done) = io(cx) else {
            return self.poll_exhausted(cx).map(Err);
        };
        if let Some(since) = self.since.take() {
            self.spend_time(since.elapsed());
            self.timer = None;
        }
        Poll::Ready(done.inspect(|&n| self.credit_bytes(n)))
    }

    /// Ready once the wait for the client has lasted too long.
    fn poll_exhausted(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if [self.least, self.busy].iter().all(|a| a.left == ENDLESS) {
            return Poll::Pending;
        }
        if let Some(reader) = self.reader.as_mut().filter(|r| r.unread.is_none()) {
            reader.count_acknowledged();
        }
        loop {
            let since = *self.since.get_or_insert_with(Instant::now);
            let look = since
                + self
                    .look_interval()
                    .min(Duration::from_nanos(self.least.left));
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(sleep_until(look)));
            if timer.deadline() != look {
                timer.as_mut().reset(look);
            }
            if timer.as_mut().poll(cx).is_pending() {
                break;
            }
            if let Err(e) = self.update_allowances() {
                return Poll::Ready(e);
            }
        }
        while self.is_slow() && self.tick.poll(cx).is_ready() {
            if self.permit.must_give_way(self.busy.is_used_up()) {
                return Poll::Ready(GIVES_WAY.into());
            }
        }
        Poll::Pending
    }

    /// Returns the longest time until the next look at the allowances.
    fn look_interval(&self) -> Duration {
        let quarter = Duration::from_nanos(self.grace / 4);
        quarter.clamp(Duration::from_millis(1), LOOK)
    }

    /// Returns whether the client may have to give up its permit, because it has lost more than the time between two looks.
    fn is_slow(&self) -> bool {
        let enough = self
            .grace
            .saturating_sub(saturating_nanos(self.look_interval()));
        self.busy.left <= enough && self.permit.is_held()
    }

    /// Updates both allowances, and fails with `TimedOut` if the allowance of `min_rate` is used up.
    fn update_allowances(&mut self) -> io::Result<()> {
        if let Some(since) = self.since.replace(Instant::now()) {
            self.spend_time(since.elapsed());
        }
        if let Some(reader) = &mut self.reader {
            let read = reader.count_acknowledged();
            self.least.credit_bytes(read, self.grace);
            if !reader.shared {
                self.busy.credit_bytes(read, self.grace);
            }
        }
        if self.least.is_used_up() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Moves `len` bytes by calls of `some`, which is told how many bytes are left and returns how many it moved.
    pub async fn move_all(
        &mut self,
        len: usize,
        mut some: impl AsyncFnMut(usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let mut left = len;
        while left > 0 {
            match self.wait_for_io(pin!(some(left))).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => left -= n,
            }
        }
        Ok(())
    }

    fn spend_time(&mut self, time: Duration) {
        self.least.spend_time(saturating_nanos(time));
        self.busy.spend_time(saturating_nanos(time));
    }

    /// Counts bytes that moved outside of [`RateAllowance::wait_for_io`].
    pub fn credit_bytes(&mut self, bytes: usize) {
        let bytes = match &mut self.reader {
            Some(reader) => reader.count_written(bytes),
            None => bytes,
        };
        self.least.credit_bytes(bytes, self.grace);
        self.busy.credit_bytes(bytes, self.grace);
    }
}

/// Returns a duration in nanoseconds, or `u64::MAX` if the number is larger than that.
pub fn saturating_nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Polls `f` once; `Pending` if `f` is not ready.
pub async fn poll_once<F: Future>(mut f: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(f.as_mut().poll(cx))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance(grace: Duration, least: u64) -> RateAllowance {
        RateAllowance::from_rates(&Rates {
            least,
            busy: 0,
            grace,
        })
    }

    #[test]
    fn bytes_earn_time_up_to_the_grace() {
        let mut p = allowance(Duration::from_secs(10), 1000);
        p.spend_time(Duration::from_secs(20));
        p.credit_bytes(2000);
        assert_eq!(p.least.left, 2_000_000_000);
        p.credit_bytes(1 << 30);
        assert_eq!(p.least.left, 10_000_000_000);
        p.spend_time(Duration::from_secs(20));
        p.restore_grace();
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
            let late = p.wait_for_io(std::future::pending()).await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            assert_eq!(p.wait_for_io(async { Ok(5) }).await.unwrap(), 5);
        });
    }
}
