//! How long a client may keep us waiting: a total allowance that grows with every byte it moves.

use std::{
    io,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use tokio::time::Instant;

use crate::config::Http;

/// The allowance of one client in one direction. Only time spent waiting for the client counts.
#[derive(Debug, Clone)]
pub struct Pace {
    left: Duration,
    most: Duration,
    per_byte: Duration,
    /// Since when the client is waited for. It outlives a wait that is given up for something more
    /// urgent, so that the clock cannot be reset by causing events elsewhere.
    since: Option<Instant>,
}

impl Pace {
    /// `grace` of waiting is free, and each byte moved earns `1 / min_rate` seconds more, up to `grace`.
    /// A rate of 0 earns the whole grace again with every byte.
    pub fn new(grace: Duration, min_rate: u64) -> Self {
        let per_byte = if min_rate == 0 {
            grace
        } else {
            Duration::from_secs(1) / clamp(min_rate)
        };
        Self {
            left: grace,
            most: grace,
            per_byte,
            since: None,
        }
    }

    /// The allowance of a client, as configured.
    pub fn of(http: &Http) -> Self {
        Self::new(http.rate_grace, http.min_rate)
    }

    /// Begins a new request: the whole grace is there again.
    pub fn reset(&mut self) {
        self.left = self.most;
        self.since = None;
    }

    /// Waits for `io`, which says how many bytes it moved, within the allowance.
    /// `TimedOut` when that is used up. Whoever pins it outside has one of it in the future here, and not two.
    pub async fn wait(&mut self, io: impl Future<Output = io::Result<usize>>) -> io::Result<usize> {
        let mut io = pin!(io);
        // Most calls are ready at once: no clock is read for them.
        let done = match poll_once(io.as_mut()).await {
            Poll::Ready(done) => done,
            Poll::Pending => {
                let since = *self.since.get_or_insert_with(Instant::now);
                match tokio::time::timeout_at(since + self.left, io).await {
                    Ok(done) => done,
                    Err(_elapsed) => return Err(io::ErrorKind::TimedOut.into()),
                }
            }
        };
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        done.inspect(|&n| self.earn(n))
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

    /// Bytes were moved otherwise than by what [`Pace::wait`] waited for.
    pub fn earn(&mut self, bytes: usize) {
        self.left = self
            .per_byte
            .saturating_mul(clamp(bytes as u64))
            .saturating_add(self.left);
        self.left = self.left.min(self.most);
    }
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Polls `f` once; `Pending` if it is not ready.
pub async fn poll_once<F: Future>(mut f: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(f.as_mut().poll(cx))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_earn_time_up_to_the_grace() {
        let mut p = Pace::new(Duration::from_secs(10), 1000);
        p.left = Duration::ZERO;
        p.earn(2000);
        assert_eq!(p.left, Duration::from_secs(2));
        p.earn(1 << 30);
        assert_eq!(p.left, Duration::from_secs(10));
    }

    #[test]
    fn the_allowance_runs_out() {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        rt.block_on(async {
            let mut p = Pace::new(Duration::from_millis(1), 1);
            let late = p.wait(std::future::pending()).await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::TimedOut);
            assert_eq!(p.wait(async { Ok(5) }).await.unwrap(), 5);
        });
    }
}
