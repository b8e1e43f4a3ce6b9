//! A running program. The server watches its input, output and error, the client, the process itself and the clocks, all at the
//! same time. It never "writes everything, then reads".

use std::{fmt::Debug, io, rc::Rc, time::Duration};

use galgo_io::{
    off_loop::off_loop,
    out::Out,
    pool,
    sock::{Sock, WaitingInput, is_short},
    tick,
};
use galgo_service::{
    admission::Permit,
    client::Client,
    fault::{Fault, SHORT},
    log::{Level, LogSource},
    producer::OutputEvent,
    spool::Stored,
};
use galgo_spawn::{Child, Exit, group_members, words::escape};
use tokio::time::Instant;

use super::{
    clock::Clocks,
    process::{Process, unfinished},
    pump::{Pump, PumpEnd},
    spill::Spill,
    stderr::{StderrLog, StderrPipe},
    stdin::ProgramInput,
    transfer::{PIPE_MOST, SILENCE, SPLICE_LEAST, Transfer, transfer},
};
use crate::{program_settings::CgiOptions, relay::pipes::ServerEnds};

const TERM: i32 = rustix::process::Signal::TERM.as_raw();
const KILL: i32 = rustix::process::Signal::KILL.as_raw();

/// Output that fills a usual pipe. A program that prints this much will print more than most: from then on its output stays in
/// the pipe, to be spliced.
const BULK: usize = pool::SIZE;
/// Time to learn of a signal after the end of output, because a process that dies of a signal closes its output first. Within
/// this time the signal is known, or the process is seen to be exiting, or there is no signal.
const VERDICT: Duration = Duration::from_millis(20);
/// Time that a process may go on after it closed its output, before it is told to end.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Log message about programs that leave processes behind with their standard output.
const HELD_OPEN: &str = "the program exited, but a leftover process held standard output open and printed nothing for 5 s; \
    start such a process with \">/dev/null &\"";

/// Whether that message was already given.
#[derive(Debug, Clone, Copy)]
enum HeldOpen {
    Untold,
    Told,
}

/// Origin of a program that was forked from a template instead of being executed.
pub(crate) trait Origin: std::fmt::Debug {
    /// Reports that the program has ended; `signalled`: the server told it to.
    fn report_exit(self: Box<Self>, exit: &Exit, signalled: bool);
}

#[derive(Debug)]
pub(crate) struct RunningProgram {
    pub(super) pump: Pump,
    /// Exit of the program, once it is known.
    exit: Option<Exit>,
    /// Origin of the program, if it was started warm.
    origin: Option<Box<dyn Origin>>,
    signalled: bool,
    /// Set if the server stopped waiting for output, because leftover processes hold it open and are silent.
    held_open: Option<HeldOpen>,
    /// Future standard input, if the program gets the connection.
    held: Option<ProgramInput>,
    pub(crate) stdout: Option<Sock>,
    /// File that is the program's standard input, if any: closed when the program is gone.
    _file: Option<Stored>,
    /// Value that is dropped with the program.
    pub(crate) carried: Option<Rc<dyn Debug>>,
    /// Output that was read and not sent yet.
    pub out: Out,
    /// Output that follows `out`, and waits for a slow client.
    pub(crate) spill: Spill,
    kill_grace: Duration,
    run_to_completion: bool,
    splices: bool,
    read: usize,
    /// Whether there is much output: it stays in its pipe, which has been widened.
    bulk: bool,
}

impl RunningProgram {
    /// `origin` is the template that the program was forked from; `None` if it was executed. `clocks` were started before the
    /// program.
    pub(crate) fn new(
        (child, origin): (Child, Option<Box<dyn Origin>>),
        ours: ServerEnds,
        clocks: Clocks,
        options: &CgiOptions,
        source: LogSource,
        permit: Permit,
    ) -> Self {
        Self {
            pump: Pump {
                process: Process::new(child, permit),
                stdin: ours.stdin,
                errors: StderrPipe::new(ours.stderr, options.max_stderr, source),
                clocks,
            },
            exit: None,
            origin,
            signalled: false,
            held_open: None,
            held: ours.held,
            stdout: Some(ours.stdout),
            _file: ours.file,
            carried: None,
            out: Out::default(),
            spill: Spill::default(),
            kill_grace: options.kill_grace,
            run_to_completion: options.run_to_completion,
            splices: false,
            read: 0,
            bulk: false,
        }
    }

    /// Acts on the response head, which says whether the program has the client's connection from now on.
    pub(crate) fn upgrade(&mut self, granted: bool) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        if granted {
            self.pump.stdin = held;
            // Without its client the program has no peer.
            self.run_to_completion = false;
            self.pump.clocks.stop_total_clock();
        } else {
            held.end_body();
        }
    }

    pub(crate) fn clocks(&mut self) -> &mut Clocks {
        &mut self.pump.clocks
    }

    /// Returns the output that was read and not sent yet, and the log of standard error.
    pub(crate) fn output_and_log(&mut self) -> (&mut Out, &mut StderrLog) {
        (&mut self.out, &mut self.pump.errors.log)
    }

    pub(crate) fn output_ended(&self) -> bool {
        self.stdout.is_none() && self.spill.is_empty()
    }

    pub(crate) async fn next_event(
        &mut self,
        client: &mut dyn Client,
    ) -> Result<OutputEvent, Fault> {
        if !self.spill.is_empty() {
            // Box the future, because few requests have output that waits.
            return Box::pin(self.pull_spilled(client)).await;
        }
        let Some(sock) = &self.stdout else {
            return Ok(OutputEvent::End);
        };
        let leaves = self.bulk && !self.spill.slow;
        let event = tokio::select! {
            biased;
            came = await_stdout(sock, leaves, &mut self.out) => match came.map_err(|e| unreadable(&e))? {
                WaitingInput::Read(0) => OutputEvent::End,
                WaitingInput::Read(n) => {
                    self.out.keep_all();
                    self.read = self.read.saturating_add(n);
                    if self.splices && self.read >= BULK && !self.bulk {
                        self.bulk = true;
                        sock.grow_pipe(PIPE_MOST);
                    }
                    OutputEvent::Output
                }
                WaitingInput::Waiting(n) => OutputEvent::Waiting(n),
            },
            ended = self.pump.pump_until_event(client, SILENCE) => match ended? {
                PumpEnd::HalfClosed => OutputEvent::HalfClosed,
                PumpEnd::Exited => {
                    self.held_open = Some(HeldOpen::Untold);
                    OutputEvent::End
                }
            },
        };
        match event {
            OutputEvent::Output | OutputEvent::Waiting(_) => self.record_output(),
            OutputEvent::End => self.stdout = None,
            OutputEvent::HalfClosed => {}
        }
        Ok(event)
    }

    /// Notes that output has come.
    fn record_output(&mut self) {
        self.pump.clocks.record_move();
        self.pump.process.record_output();
    }

    /// Takes available output without waiting, until `out` holds `most` bytes or the output ends.
    pub(crate) fn drain_ready(&mut self, most: usize) {
        while let Some(sock) = &self.stdout
            && self.out.len() < most
            && self.spill.is_empty()
        {
            match sock.try_read(self.out.buffer()) {
                // The next read meets the error again.
                Ok(None) | Err(_) => return,
                Ok(Some(0)) => self.stdout = None,
                Ok(Some(_)) => self.out.keep_all(),
            }
        }
    }

    /// Ends a complete response. In the background, waits for the process, ends it if it does not end by itself, and hands its
    /// exit to `done`.
    pub(crate) fn finish(mut self, done: impl FnOnce(Option<Exit>) + 'static) {
        self.tell_held_open();
        self.stdout = None;
        self.out = Out::default();
        let finishes = self.may_finish();
        let exit = self.reap();
        self.pump.process.let_leftovers_stay(finishes);
        if let Some(exit) = exit
            && !self.pump.process.left_others()
        {
            self.pump.errors.finish();
            return done(Some(exit));
        }
        let patience = self.pump.clocks.patience(finishes, LINGER);
        tokio::task::spawn_local(self.reap_with_group(patience, done));
    }

    /// Ends a failed request, or a request without its client. In the background, ends the process group, TERM first. With
    /// `run_to_completion`, lets the program finish instead and discards its output.
    pub(crate) fn abandon(mut self, client_left: bool, done: impl FnOnce(Option<Exit>) + 'static) {
        self.tell_held_open();
        let finish = client_left && self.may_finish();
        self.pump.process.let_leftovers_stay(finish);
        tokio::task::spawn_local(async move {
            if finish {
                self.discard_output().await;
            }
            self.stdout = None;
            let patience = self.pump.clocks.patience(finish, Duration::ZERO);
            self.reap_with_group(patience, done).await;
        });
    }

    fn tell_held_open(&self) {
        if let Some(HeldOpen::Untold) = self.held_open {
            self.pump.errors.log.source.write(Level::Warn, HELD_OPEN);
        }
    }

    /// Returns whether the program may finish after its response or its client: only if its input is complete.
    fn may_finish(&self) -> bool {
        self.run_to_completion && self.held.is_none() && self.pump.stdin.has_ended()
    }

    /// Waits for the process and the rest of its group, and ends both if they do not end by themselves.
    async fn reap_with_group(mut self, patience: Duration, done: impl FnOnce(Option<Exit>)) {
        let until = Instant::now() + patience;
        let exit = self.reap_or_terminate(patience).await;
        if !self.pump.process.left_others() {
            self.pump.errors.finish();
            return done(exit);
        }
        done(exit);
        self.terminate_group(until).await;
        self.pump.errors.finish();
    }

    /// Sends TERM to leftover processes, unless they received it along with the process, and KILL after the grace period.
    async fn terminate_group(&mut self, until: Instant) {
        if !self.signalled && self.group_left_by(until).await {
            return;
        }
        let Some(group) = self.pump.process.leftover_group() else {
            return;
        };
        let names = match group {
            0 => "processes in its sandbox".to_owned(),
            // This lists every process of the machine, so do it off the event loop.
            group => {
                let members = off_loop("members", move || group_members(group)).await;
                members.map(process_names).unwrap_or_default()
            }
        };
        if !self.signalled {
            self.pump.process.signal(TERM);
        }
        let mut how = "TERM";
        if !self.group_left_by(Instant::now() + self.kill_grace).await {
            self.pump.process.signal(KILL);
            how = "KILL, because TERM did not end them within kill_grace";
        }
        // Without names, only zombies were left: their parent has not waited for them yet.
        if !names.is_empty() {
            let words = format!("leftover processes were ended: {names} ({how})");
            self.pump.errors.log.source.write(Level::Info, &words);
        }
    }

    /// Waits until then for the end of all leftover processes, and returns whether they ended.
    async fn group_left_by(&mut self, until: Instant) -> bool {
        while self.pump.process.leftover_group().is_some() {
            if Instant::now() >= until {
                return false;
            }
            tokio::select! {
                never = self.pump.errors.drain_pipe() => match never {},
                () = tick::next() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
        true
    }

    /// Handles an invalid response. Gives the program a moment to exit and to tell why on standard error, unless it must `end` at
    /// once. Returns both, for the log and for the program's author.
    pub(crate) async fn post_mortem(&mut self, end: bool) -> (Option<Exit>, String) {
        self.stdout = None;
        let patience = if end { Duration::ZERO } else { LINGER };
        let exit = self.reap_or_terminate(patience).await;
        self.pump.errors.finish();
        (exit, self.stderr_tail())
    }

    pub(crate) fn stderr_tail(&self) -> String {
        self.pump.errors.log.last_lines()
    }

    async fn discard_output(&mut self) {
        let Some(stdout) = self.stdout.take() else {
            return;
        };
        self.pump.clocks.stop_first_clock();
        self.pump.clocks.change_task();
        loop {
            self.out.keep_all();
            self.out.clear_seen();
            tokio::select! {
                n = stdout.read_later(self.out.buffer()) => if !matches!(n, Ok(n) if n > 0) { return },
                never = self.pump.errors.drain_pipe() => match never {},
                _late = self.pump.clocks.await_expiry() => return,
            }
            self.pump.clocks.record_move();
        }
    }

    /// Waits for the process to exit. After `patience` sends TERM, and KILL after the grace period.
    async fn reap_or_terminate(&mut self, patience: Duration) -> Option<Exit> {
        if !self.exited_within(patience).await {
            self.signalled = true;
            self.pump.process.let_leftovers_stay(false);
            self.pump.process.signal(TERM);
            if !self.exited_within(self.kill_grace).await {
                self.pump.process.signal(KILL);
                self.exited_within(LINGER).await;
            }
        }
        self.reap()
    }

    async fn exited_within(&mut self, patience: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.pump.process.await_exit() => true,
            never = self.pump.errors.drain_pipe() => match never {},
            () = tokio::time::sleep(patience) => false,
        }
    }

    fn reap(&mut self) -> Option<Exit> {
        if self.exit.is_some() {
            return self.exit;
        }
        let exit = self.pump.process.reap()?;
        self.exit = Some(exit);
        if let Some(permit) = &self.pump.process.permit {
            permit.record_cpu_time(exit.user + exit.system);
        }
        // Tell the template only after the exit, because it acts on the program's exit.
        if let Some(origin) = self.origin.take() {
            origin.report_exit(&exit, self.signalled);
        }
        self.exit
    }

    /// Returns how the program exits, if that is soon after the end of its output.
    pub(crate) async fn exit_after_output(&mut self) -> Option<Exit> {
        if self.reap().is_none() {
            // The time between the end of output and the exit is short, unless a helper has to report the exit.
            if !self.pump.process.is_remote() {
                tokio::task::yield_now().await;
            }
            // On a busy machine the last steps of a process may take long.
            if self.reap().is_none()
                && !self.exited_within(VERDICT).await
                && self.pump.process.is_exiting()
            {
                self.exited_within(LINGER).await;
            }
        }
        self.reap()
    }

    /// Returns a fault if the end of output was not the end of a document. Either a signal ended the program before it had
    /// printed everything, or leftover processes may still have something to print.
    pub(crate) async fn output_fault(&mut self) -> Option<Fault> {
        if self.held_open.is_some() {
            self.held_open = Some(HeldOpen::Told);
            return Some(Fault::Script(HELD_OPEN.into()));
        }
        unfinished(self.exit_after_output().await?)
    }
}

/// Names some processes with their ids, for the log.
fn process_names(members: Vec<(i32, Vec<u8>)>) -> String {
    const NAMED: usize = 5;
    let more = members.len().saturating_sub(NAMED);
    let one = |(pid, name): &(i32, Vec<u8>)| format!("{} {pid}", escape(name));
    let mut names: Vec<String> = members.iter().take(NAMED).map(one).collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

async fn await_stdout(sock: &Sock, bulk: bool, out: &mut Out) -> io::Result<WaitingInput> {
    let out = out.buffer();
    let least = match transfer() {
        Transfer::Spliced => 1,
        _ => SPLICE_LEAST,
    };
    if bulk {
        sock.wait_for_output(least, out).await
    } else {
        sock.read_later(out).await.map(WaitingInput::Read)
    }
}

/// Returns the fault for output that could not be waited for, or read: it has not ended.
pub(crate) fn unreadable(e: &io::Error) -> Fault {
    if is_short(e) {
        SHORT
    } else {
        Fault::Internal(format!("a program's output could not be read: {e}"))
    }
}
mod program_while_sending;
