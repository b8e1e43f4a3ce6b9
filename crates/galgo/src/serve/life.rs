//! The main thread while the event loops serve: it handles signals, and informs the service manager.

use std::{pin::Pin, sync::Arc, time::Duration};

use galgo_front::shared_by_loops::all_caught_up;
use galgo_io::tick;
use galgo_service::{
    log::{Level, Logs},
    phase::Phase,
};
use galgo_spawn::Outside;
use rustix::process::Signal as Sent;
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

use super::{
    event_loops::EventLoops,
    owners::{SpawnerRead, Spawning},
    pid_file::PidFile,
    running::{NextSite, NotTaken, RunningServer, Taken},
    signals::{Signals, is_pending, wait_for_either},
    upgrade::{self, Starter, UpgradeOutcome, told_to_stop},
};
use crate::{
    config::Config,
    notify::{Notify, Watchdog},
    reading::{Load, read_in_time},
    serve::invocation::Invocation,
    sockets::{handover::HandoverSocket, inherited::Predecessor},
};

/// The way in which serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum End {
    /// Every request was finished, or ended after the grace period.
    Drained,
    /// A second signal came.
    AtOnce,
}

/// The reason why serving ends.
#[derive(Debug)]
pub(super) enum EndReason {
    /// A signal asked for it.
    Told,
    /// The process with this id accepts the connections now; this socket leads to it.
    HandedOver(i32, HandoverSocket),
    /// The spawner of programs of other users has ended.
    SpawnerEnded,
}

/// Time limit for the event loops to leave the listeners to another process.
const LEAVE: Duration = Duration::from_secs(1);

/// The result of a thread that reads the configuration.
type Reading = oneshot::Receiver<Result<Config, String>>;

/// Time limit for the end after a second signal.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The state of the server on the main thread.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) running: RunningServer,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) notify: Notify,
    pub(super) pid_file: Option<PidFile>,
    pub(super) program: Arc<Invocation>,
    /// Threads outside this process's confinement, which start the next galgo.
    pub(super) outside: Arc<Outside>,
}

/// Operations in progress.
#[derive(Debug, Default)]
struct UnderWay {
    /// A thread reads the configuration.
    config: Option<Reading>,
    /// The event loops switch to a site.
    taken: Option<Taken>,
    /// That site replaces an earlier one: the server serves already.
    again: bool,
    /// The next site for the event loops, once the spawner has read the configuration.
    next: Option<(Box<NextSite>, SpawnerRead)>,
    /// Another process prepares to replace this one.
    successor: Option<oneshot::Receiver<UpgradeOutcome>>,
    /// Logs were opened again since that process started.
    reopened: bool,
    /// If that process is to use a configuration that this one cannot use: the reason why this one cannot.
    reads: Option<String>,
}

impl Life {
    /// Handles signals until the server is to end. `first`: the event loops switch to the first site.
    pub(super) async fn handle_signals(
        &mut self,
        signals: &mut Signals,
        load: Arc<Load>,
        first: Taken,
    ) -> EndReason {
        let mut watchdog = Watchdog::from_notify(&self.notify);
        let mut way = UnderWay {
            taken: Some(first),
            ..UnderWay::default()
        };
        loop {
            // Reloads run one after the other: the next one waits until all event loops have the site of this one.
            let waits = way.next.is_some() || way.config.is_some();
            let reloads = way.taken.is_none() && way.successor.is_none() && !waits;
            tokio::select! {
                _ = signals.reopen.recv(), if !waits => {
                    self.running.shared.logs.reopen_files();
                    way.reopened = true;
                }
                _ = signals.reload.recv(), if reloads => if signals.has_lost_terminal() { return EndReason::Told } else { self.start_reading(&load, &mut way) },
                config = is_read(&mut way.config) => self.reload(config, &mut way),
                _ = settled(&mut way.taken) => self.finish_switch(std::mem::replace(&mut way.again, true)),
                read = spawner_has_read(&mut way.next) => self.reloaded(read, &mut way),
                _ = signals.upgrade.recv(), if !waits => self.upgrade(&mut way),
                outcome = settled(&mut way.successor) => {
                    let outcome = outcome.unwrap_or_else(|| Err("the upgrade thread ended".into()));
                    if let Some(why) = self.hand_over(outcome, signals, &mut way).await {
                        return why;
                    }
                }
                () = watchdog.all_run(&self.running.shared.loops) => self.notify.send_lines("WATCHDOG=1"),
                () = wait_for_either(&mut signals.term, &mut signals.int) => return EndReason::Told,
                () = Spawning::wait_until_ended(self.running.spawning.as_ref()) => return EndReason::SpawnerEnded,
            }
        }
    }

    fn log_upgrade(&self, level: Level, words: &str) {
        self.write(level, "upgrade", words);
    }

    fn write(&self, level: Level, about: &str, words: &str) {
        self.running.shared.logs.error.write(level, about, words);
    }

    /// Starts a thread that reads the configuration, because a file system may hang.
    fn start_reading(&self, load: &Arc<Load>, way: &mut UnderWay) {
        self.notify.report_reloading("reading the configuration");
        let (load, (tell, config)) = (load.clone(), oneshot::channel());
        let reads = std::thread::Builder::new().name("reload".into());
        match reads.spawn(move || drop(tell.send(read_in_time(&load)))) {
            Ok(_) => way.config = Some(config),
            Err(e) => {
                self.log_kept_config(&format!(
                    "cannot start a thread to read the configuration: {e}"
                ));
                self.notify.report_ready();
            }
        }
    }

    fn reload(&mut self, config: Result<Config, String>, way: &mut UnderWay) {
        let next = self.running.reload(config).and_then(|next| {
            let read = self.running.has_spawner_read(&next)?;
            Ok((next, read))
        });
        match next {
            Ok((next, Some(read))) => return way.next = Some((Box::new(next), read)),
            Ok((next, None)) => return way.taken = Some(self.running.replace_site(next)),
            // Another process will serve. A service manager that does not learn of that would take the end of this process
            // for the end of the service.
            Err(NotTaken::Hidden(words)) if self.notify.is_heard() => {
                way.reads = Some(words);
                self.upgrade(way);
                if way.successor.is_some() {
                    return;
                }
            }
            Err(NotTaken::Hidden(words)) => {
                self.log_kept_config(&words);
                let sees = match upgrade::allowed(&self.notify) {
                    Ok(()) => {
                        "to use the new configuration, send SIGUSR2: a new process is not limited to the old paths"
                    }
                    Err(_) => {
                        "to use the new configuration, restart galgo: a new process is not limited to the old paths"
                    }
                };
                self.write(Level::Info, "reload", sees);
            }
            Err(NotTaken::Wrong(words)) => self.log_kept_config(&words),
        }
        self.notify.report_ready();
    }

    /// Called when the spawner has read the configuration, or cannot use it.
    fn reloaded(&mut self, read: Result<(), String>, way: &mut UnderWay) {
        match (read, way.next.take()) {
            (Ok(()), Some((next, _))) => way.taken = Some(self.running.replace_site(*next)),
            (Ok(()), None) => {}
            (Err(words), _) => {
                self.log_kept_config(&words);
                self.notify.report_ready();
            }
        }
    }

    fn log_kept_config(&self, words: &str) {
        self.write(Level::Error, "reload", words);
        let stays = "still using the previous configuration";
        self.write(Level::Warn, "reload", stays);
    }

    /// Called when all event loops have the site.
    fn finish_switch(&mut self, again: bool) {
        if again {
            self.running.finish_switch();
        } else if let Some(Err(e)) = self.pid_file.as_mut().map(PidFile::publish) {
            let words = format!("cannot rename the new pid file into place: {e}");
            self.write(Level::Error, "pid_file", &words);
        }
        self.notify.report_ready();
    }

    /// Starts another process that is to replace this one.
    fn upgrade(&mut self, way: &mut UnderWay) {
        if way.successor.is_some() {
            return self.log_upgrade(Level::Warn, "an upgrade is already running");
        }
        let spawner = self.running.spawning.as_ref().and_then(Spawning::as_root);
        let starter = match spawner {
            Some(owners) => Starter::Spawner(owners.clone()),
            None => Starter::Itself(self.outside.clone()),
        };
        let items = upgrade::allowed(&self.notify).and_then(|()| self.running.prepare_handover());
        match items.and_then(|items| self.program.succeed(items, starter)) {
            Ok(successor) => {
                way.reopened = false;
                way.successor = Some(successor);
                self.notify.report_reloading("upgrading to a new process");
                if way.reads.is_none() {
                    let words = "started a new galgo process; it takes over when it is ready";
                    self.log_upgrade(Level::Info, words);
                }
            }
            Err(words) => self.goes_on(&words, way),
        }
    }

    fn goes_on(&self, words: &str, way: &mut UnderWay) {
        match way.reads.take() {
            // The spawner cuts its words for the same error short.
            Some(own) if own.starts_with(words) => self.log_kept_config(&own),
            Some(_) => self.log_kept_config(words),
            None => {
                self.log_upgrade(Level::Error, words);
                self.log_upgrade(Level::Warn, "this process keeps serving");
            }
        }
    }

    /// Lets the other process serve, if it can. `None`: this process goes on.
    async fn hand_over(
        &self,
        outcome: UpgradeOutcome,
        signals: &mut Signals,
        way: &mut UnderWay,
    ) -> Option<EndReason> {
        let own = std::process::id();
        let successor = outcome.and_then(|successor| {
            let pid = successor.process_id();
            // Before the other process speaks for itself: until then the service manager listens to this process alone.
            self.notify.send_lines(&format!("MAINPID={pid}"));
            let gone = successor.start_serving();
            let gone = gone.inspect_err(|_| self.notify.send_lines(&format!("MAINPID={own}")));
            gone.map(|line| (pid, line))
        });
        match successor {
            Ok((pid, line)) => {
                // The other process may have read the configuration and opened its logs before these signals came.
                if is_pending(&mut signals.reload).await {
                    upgrade::pass_on(pid, Sent::HUP);
                }
                if way.reopened {
                    upgrade::pass_on(pid, Sent::USR1);
                }
                if let Some(why) = way.reads.take() {
                    let words = format!(
                        "{why}: so a new galgo process takes over with the new configuration"
                    );
                    self.write(Level::Info, "reload", &words);
                }
                Some(EndReason::HandedOver(pid, line))
            }
            Err(words) => {
                self.notify.report_ready();
                self.goes_on(&words, way);
                None
            }
        }
    }

    /// Waits for the last requests, including requests to the process that this one has replaced.
    pub(super) async fn drain_requests(
        &mut self,
        why: &EndReason,
        signals: &mut Signals,
        loops: &EventLoops,
    ) -> End {
        // Before all inherited descriptors are dropped.
        let replaced = self.running.inherited.predecessor.take();
        self.running.let_go();
        let all_ended = all_ended(loops, replaced.as_ref(), self.running.shared.logs.clone());
        tokio::pin!(all_ended);
        let over = match why {
            EndReason::Told | EndReason::SpawnerEnded => {
                self.notify.report_stopping();
                false
            }
            EndReason::HandedOver(pid, line) => {
                // The file is left alone: between a look at its content and its removal, the other process may rename its
                // own file to this name.
                self.pid_file
                    .take()
                    .into_iter()
                    .for_each(PidFile::leave_to_successor);
                self.phase.send_replace(Phase::HandedOver);
                // A script that reads the line below reaches the other process. The time limit is for event loops that
                // hang: they accept nothing.
                let _ = timeout(LEAVE, all_caught_up(&self.running.shared.loops)).await;
                let words = "has taken over: this process ends after its last request";
                self.log_upgrade(Level::Info, &format!("process {pid} {words}"));
                self.last_requests(signals, line, all_ended.as_mut()).await
            }
        };
        self.phase.send_replace(Phase::Draining);
        self.running.site.close_idle();
        replaced.iter().for_each(Predecessor::tell_to_stop);
        let grace = self.running.site.config.shutdown_grace;
        let ended = over
            || tokio::select! {
                () = all_ended => true,
                // The event loops enforce their own end, but the other process may hang.
                () = async { sleep(grace).await; loops.wait_until_ended().await } => true,
                () = wait_for_either(&mut signals.term, &mut signals.int) => false,
            };
        if ended {
            return End::Drained;
        }
        // The event loops end the programs that still run. The time limit is for loops that are stuck in the kernel.
        self.phase.send_replace(Phase::Ending);
        let _ = timeout(AT_ONCE, loops.wait_until_ended()).await;
        End::AtOnce
    }

    /// Waits until each connection has had its last request, at most for the grace period. Returns false if some have not.
    async fn last_requests(
        &self,
        signals: &mut Signals,
        line: &HandoverSocket,
        mut all_ended: Pin<&mut impl Future<Output = ()>>,
    ) -> bool {
        let grace = sleep(self.running.site.config.shutdown_grace);
        tokio::pin!(grace);
        loop {
            tokio::select! {
                () = &mut all_ended => return true,
                _ = signals.reopen.recv() => self.running.shared.logs.reopen_files(),
                () = wait_for_either(&mut signals.term, &mut signals.int) => return false,
                () = told_to_stop(line) => return false,
                () = &mut grace => return false,
            }
        }
    }
}

/// Waits for the end of each event loop, and of the process that this one has replaced.
async fn all_ended(loops: &EventLoops, replaced: Option<&Predecessor>, logs: Logs) {
    let Some(replaced) = replaced else {
        return loops.wait_until_ended().await;
    };
    let other = replaced.wait_until_ended();
    tokio::pin!(other);
    tokio::select! {
        biased;
        () = &mut other => return loops.wait_until_ended().await,
        () = loops.wait_until_ended() => {}
    }
    // The end of a process that ended before is known only after a look at its socket.
    if timeout(tick::LENGTH, &mut other).await.is_ok() {
        return;
    }
    let words =
        "the previous galgo process still answers requests: this process waits for it to end";
    logs.error.write(Level::Info, "upgrade", words);
    other.await;
}

/// Waits for the spawner's answer; for ever if the spawner was not asked.
async fn spawner_has_read(next: &mut Option<(Box<NextSite>, SpawnerRead)>) -> Result<(), String> {
    match next {
        Some((_, read)) => match read.await {
            Ok(read) => read,
            Err(_) => Err("the thread that asks the spawner has ended".into()),
        },
        None => std::future::pending().await,
    }
}

/// Returns the configuration that a thread has read, once.
async fn is_read(config: &mut Option<Reading>) -> Result<Config, String> {
    let Some(reading) = config else {
        return std::future::pending().await;
    };
    let read = reading.await;
    *config = None;
    read.unwrap_or_else(|_| Err("the thread that reads the configuration has ended".into()))
}

/// Returns the value that was sent, once; `None`: the sender was dropped. Waits for ever if there is no receiver.
async fn settled<T>(way: &mut Option<oneshot::Receiver<T>>) -> Option<T> {
    let Some(settles) = way else {
        return std::future::pending().await;
    };
    let sent = settles.await.ok();
    *way = None;
    sent
}
