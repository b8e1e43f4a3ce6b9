//! The helpers that the spawner has made, and their limits.
//!
//! The server asks for helpers. It needs at most one for each processor, remit and user, keeps 256 that have nothing to do
//! (`known`), and has programs in others up to `max_running`. A server under an attacker's control asks for as many as it
//! likes. Each costs memory, descriptors and a process id, so beyond these limits the answer is "not now", as in a shortage.

use crate::{exit::ENDED, helper::IDLE, owners::known::HelperKey};
use rustix::process::{Pid, Signal, WaitId, kill_process, waitid};
use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    thread::available_parallelism,
    time::{Duration, Instant},
};

/// A helper that gets an order within its first seconds stays at least for this time.
const YOUNG: Duration = IDLE;

/// The limits of helpers.
#[derive(Debug, Clone, Copy)]
struct MostHelpers {
    /// The limit of all helpers.
    all: usize,
    /// The limit of helpers for one remit and user that were made within [`YOUNG`].
    young: usize,
}

impl MostHelpers {
    /// Returns the limits for a machine with this number of processors.
    fn for_processors(processors: usize) -> Self {
        Self {
            // Twice the number of idle helpers, and one for each program that runs at once by default.
            all: 512 + 8 * processors,
            // Two generations, because the first may still have programs, and some helpers that have refused all starts and are
            // about to end.
            young: 16 + 2 * processors,
        }
    }
}

/// A running helper.
#[derive(Debug)]
pub(crate) struct HelperProcess {
    pub(crate) key: HelperKey,
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) group: Option<PathBuf>,
    pub(crate) since: Instant,
}

/// The running helpers.
#[derive(Debug)]
pub(crate) struct MadeHelpers {
    running: Vec<HelperProcess>,
    most: MostHelpers,
}

impl MadeHelpers {
    pub(crate) fn new() -> Self {
        Self {
            running: Vec::new(),
            most: MostHelpers::for_processors(available_parallelism().map_or(1, usize::from)),
        }
    }

    /// Checks whether there may be another helper with this key. `begun` lists the keys of helpers that are still being made.
    ///
    /// # Errors
    /// There are too many helpers. The error is a sentence for the log.
    pub(crate) fn check_limits(
        &self,
        key: HelperKey,
        begun: impl Iterator<Item = HelperKey>,
        now: Instant,
    ) -> Result<(), String> {
        let running = self.running.iter();
        let young = running.filter(|helper| now.saturating_duration_since(helper.since) < YOUNG);
        let (mut all, mut own) = (
            self.running.len(),
            young.filter(|helper| helper.key == key).count(),
        );
        for other in begun {
            all += 1;
            own += usize::from(other == key);
        }
        let (count, which) = match (all >= self.most.all, own >= self.most.young) {
            (true, _) => (all, "in all".to_owned()),
            (false, true) => {
                let (seconds, uid) = (YOUNG.as_secs(), key.1);
                let words = format!("of one route and the user {uid}, made within {seconds} s");
                (own, words)
            }
            (false, false) => return Ok(()),
        };
        Err(format!(
            "too many helpers run, {count} {which}: wait until one of them ends"
        ))
    }

    pub(crate) fn add_helper(&mut self, helper: HelperProcess) {
        self.running.push(helper);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &HelperProcess> {
        self.running.iter()
    }

    /// Reaps helpers that have ended. Returns their control groups.
    pub(crate) fn reap_ended(&mut self) -> Vec<PathBuf> {
        let ended = self
            .running
            .extract_if(.., |helper| reap_by_pid(helper.pid));
        ended.filter_map(|helper| helper.group).collect()
    }

    /// Kills all helpers. Returns their control groups.
    pub(crate) fn kill_all(&mut self) -> Vec<PathBuf> {
        let killed = self.running.drain(..).inspect(|helper| {
            let _ = kill_process(helper.pid, Signal::KILL);
        });
        killed.filter_map(|helper| helper.group).collect()
    }
}

/// Reaps a child that has ended. Returns whether it is gone.
pub(crate) fn reap_by_pid(pid: Pid) -> bool {
    !matches!(waitid(WaitId::Pid(pid), ENDED), Ok(None))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::spawner::made::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::iter;

    fn helper(key: HelperKey, since: Instant) -> HelperProcess {
        HelperProcess {
            key,
            pid: getpid(),
            pidfd: pidfd_open(getpid(), PidfdFlags::empty()).unwrap(),
            group: None,
            since,
        }
    }

    #[test]
    fn one_key_has_few_young_ones_and_all_together_have_a_bound() {
        let now = Instant::now();
        let mut made = MadeHelpers {
            running: Vec::new(),
            most: MostHelpers { all: 6, young: 3 },
        };
        let (one, other) = ((1, 1), (1, 2));
        let check = |made: &MadeHelpers, key, begun: &[HelperKey], now| {
            made.check_limits(key, begun.iter().copied(), now)
        };
        made.add_helper(helper(one, now));
        made.add_helper(helper(one, now));
        assert!(check(&made, one, &[], now).is_ok());
        let refused = check(&made, one, &[one], now).unwrap_err();
        assert!(
            refused.contains("3 of one route and the user 1"),
            "{refused}"
        );
        assert!(check(&made, other, &[one], now).is_ok());
        // Helpers that are no longer young count only toward the limit of all.
        let later = now + YOUNG;
        assert!(check(&made, one, &[one, other], later).is_ok());
        let refused = check(&made, one, &[other; 4], later).unwrap_err();
        assert!(refused.contains("6 in all"), "{refused}");
    }

    #[test]
    fn an_honest_server_is_refused_none() {
        for processors in [1, 2, 64, 1024] {
            let most = MostHelpers::for_processors(processors);
            assert!(most.young >= 2 * processors && most.all > 256 + 8 * processors);
        }
        assert!(
            MadeHelpers::new()
                .check_limits((1, 1), iter::empty(), Instant::now())
                .is_ok()
        );
    }
}
