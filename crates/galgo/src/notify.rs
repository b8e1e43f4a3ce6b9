//! Messages to a service manager (sd_notify(3)): the server is ready, reads its configuration, ends, or is alive.

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use galgo_front::shared_by_loops::{Handle, all_caught_up};
use rustix::{
    process::getpid,
    time::{ClockId, clock_gettime},
};
use tokio::{
    sync::oneshot,
    time::{Interval, MissedTickBehavior, interval},
};

/// Time limit for the service manager to read a message.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of messages to the watchdog within its interval.
const FEEDINGS: u32 = 3;

/// The service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// The longest silence that the watchdog allows.
    watchdog: Option<Duration>,
}

impl Notify {
    /// Reads NOTIFY_SOCKET and WATCHDOG_USEC.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let failed = |e| format!("cannot tell the service manager at NOTIFY_SOCKET={name:?}: {e}");
        Ok(Self {
            to: Some(open_socket(&name).map_err(failed)?),
            watchdog: watchdog_interval(),
        })
    }

    /// Whether a service manager listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.to.is_some()
    }

    /// Sends lines of `NAME=value`. Errors are ignored, because the service manager may have stopped listening.
    pub(crate) fn send_lines(&self, lines: &str) {
        if let Some((socket, to)) = &self.to {
            let _ = socket.send_to_addr(lines.as_bytes(), to);
        }
    }

    pub(crate) fn report_ready(&self) {
        self.send_lines("READY=1\nSTATUS=serving");
    }

    pub(crate) fn report_reloading(&self, status: &str) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = Duration::try_from(now).unwrap_or_default().as_micros();
        self.send_lines(&format!(
            "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS={status}"
        ));
    }

    pub(crate) fn report_stopping(&self) {
        self.send_lines("STOPPING=1\nSTATUS=requests may finish");
    }
}

fn open_socket(name: &OsString) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => {
            return Err(io::Error::other(
                "it is neither a path nor an abstract name",
            ));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, to))
}

/// Returns the watchdog's interval, as sd_watchdog_enabled(3) does.
fn watchdog_interval() -> Option<Duration> {
    let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
    let own = u64::try_from(getpid().as_raw_pid()).ok();
    let meant = env::var_os("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == own;
    let most = number("WATCHDOG_USEC").filter(|&usec| usec > 0 && meant);
    most.map(Duration::from_micros)
}

/// Feeds the watchdog of the service manager, as long as every event loop runs.
#[derive(Debug)]
pub(crate) struct Watchdog {
    every: Option<Interval>,
    /// Resolves, with an error, when all event loops have answered the probe.
    probed: Option<oneshot::Receiver<()>>,
}

impl Watchdog {
    /// Must be called within a runtime.
    pub(crate) fn from_notify(notify: &Notify) -> Self {
        let every = notify.watchdog.map(|most| {
            let mut every = interval((most / FEEDINGS).max(Duration::from_millis(1)));
            every.set_missed_tick_behavior(MissedTickBehavior::Delay);
            every
        });
        Self {
            every,
            probed: None,
        }
    }

    /// Resolves when the watchdog is to be fed again. If an event loop hangs, never resolves.
    pub(crate) async fn all_run<S>(&mut self, loops: &[Handle<S>]) {
        let Some(every) = &mut self.every else {
            return std::future::pending().await;
        };
        loop {
            if let Some(probed) = &mut self.probed {
                let _ = probed.await;
                self.probed = None;
                return;
            }
            every.tick().await;
            self.probed = Some(all_caught_up(loops));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use galgo_front::shared_by_loops::Handed;
    use tokio::sync::mpsc::UnboundedReceiver;

    use crate::notify::*;

    /// Returns the last probe of an event loop, if any.
    fn last(given: &mut UnboundedReceiver<Handed<()>>) -> Option<Handed<()>> {
        given.try_recv().ok()
    }

    #[tokio::test]
    async fn it_is_fed_when_every_event_loop_has_come_to_the_probe() {
        let mut watchdog = Watchdog::from_notify(&Notify {
            to: None,
            watchdog: Some(Duration::from_millis(3)),
        });
        let (loops, mut given): (Vec<_>, Vec<_>) = (0..2).map(|_| Handle::<()>::new()).unzip();
        for _ in 0..2 {
            let mut fed = std::pin::pin!(watchdog.all_run(&loops));
            let mut polled =
                async || std::future::poll_fn(|cx| Poll::Ready(fed.as_mut().poll(cx))).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(polled().await.is_pending());
            // An event loop hangs, however long that takes.
            drop(last(&mut given[0]));
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert!(polled().await.is_pending());
            assert!(last(&mut given[0]).is_none(), "one probe at a time");
            drop(last(&mut given[1]));
            assert!(polled().await.is_ready());
        }
    }
}
