//! A running program and everything that must be watched at once: its input, output and error, the
//! client, the process itself and the clocks. Never "write everything, then read".

mod waiting;

use std::{io, time::Duration};

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

/// A program that has printed as much as a pipe usually holds will print more than most: from then on its output is left
/// in the pipe, to be spliced.
const BULK: usize = pool::SIZE;
/// A process that dies of a signal closes its output first. Within this the signal is known, or the process is seen
/// to be exiting, or there is none.
const VERDICT: Duration = Duration::from_millis(20);
/// How long a process may go on after it closed its output, before it is told to end.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// What the log says of programs that leave processes behind with their standard output.
const HELD_OPEN: &str = "the program exited, and a process that it left running held standard output open and printed nothing for 5 s; \
    start such a process with \">/dev/null &\"";

/// Whether that was said already.
#[derive(Debug, Clone, Copy)]
enum HeldOpen {
    Untold,
    Told,
}

/// Where a program came from that was not executed.
pub(crate) trait Origin: std::fmt::Debug {
    /// The program has ended; `signalled`: the server told it to.
    fn ended(self: Box<Self>, exit: &Exit, signalled: bool);
}

#[derive(Debug)]
pub(crate) struct RunningProgram {
    pub(super) pump: Pump,
    /// How it ended, once that has been asked.
    exit: Option<Exit>,
    /// Where it came from, when it was started warm.
    origin: Option<Box<dyn Origin>>,
    signalled: bool,
    /// Output was given up: what the program has left running holds it open, and is silent.
    held_open: Option<HeldOpen>,
    /// What becomes its standard input when the program is given the connection.
    held: Option<ProgramInput>,
    pub(crate) stdout: Option<Sock>,
    /// Its standard input, where that is a file: closed when the program is gone.
    _file: Option<Stored>,
    /// Output read and not yet sent.
    pub out: Out,
    /// Output that comes behind it, and waits for a slow client.
    pub(crate) spill: Spill,
    kill_grace: Duration,
    run_to_completion: bool,
    splices: bool,
    read: usize,
    /// There is much output: it is left in its pipe, which has been widened.
    bulk: bool,
}

impl RunningProgram {
    /// `origin`: the template it was forked from; `None` where it was executed. Its clocks were started before it was.
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
            out: Out::default(),
            spill: Spill::default(),
            kill_grace: options.kill_grace,
            run_to_completion: options.run_to_completion,
            splices: false,
            read: 0,
            bulk: false,
        }
    }

    /// The response head says whether the program has the client's connection from now on.
    pub(crate) fn upgrade(&mut self, granted: bool) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        if granted {
            self.pump.stdin = held;
            // Without its client it has no peer to speak with.
            self.run_to_completion = false;
            self.pump.clocks.only_idle();
        } else {
            held.end();
        }
    }

    pub(crate) fn clocks(&mut self) -> &mut Clocks {
        &mut self.pump.clocks
    }

    /// Output read and not yet sent, and what logs its standard error.
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
            // Boxed: output that waits is that of few requests.
            return Box::pin(self.pull(client)).await;
        }
        let Some(sock) = &self.stdout else {
            return Ok(OutputEvent::End);
        };
        let leaves = self.bulk && !self.spill.slow;
        let event = tokio::select! {
            biased;
            came = come(sock, leaves, &mut self.out) => match came.map_err(|e| unreadable(&e))? {
                WaitingInput::Read(0) => OutputEvent::End,
                WaitingInput::Read(n) => {
                    self.out.keep_all();
                    self.read = self.read.saturating_add(n);
                    if self.splices && self.read >= BULK && !self.bulk {
                        self.bulk = true;
                        sock.widen(PIPE_MOST);
                    }
                    OutputEvent::Output
                }
                WaitingInput::Waiting(n) => OutputEvent::Waiting(n),
            },
            ended = self.pump.run(client, SILENCE) => match ended? {
                PumpEnd::HalfClosed => OutputEvent::HalfClosed,
                PumpEnd::Exited => {
                    self.held_open = Some(HeldOpen::Untold);
                    OutputEvent::End
                }
            },
        };
        match event {
            OutputEvent::Output | OutputEvent::Waiting(_) => self.heard(),
            OutputEvent::End => self.stdout = None,
            OutputEvent::HalfClosed => {}
        }
        Ok(event)
    }

    /// Output has come.
    fn heard(&mut self) {
        self.pump.clocks.moved();
        self.pump.process.printed();
    }

    /// Takes what output is there already, without waiting, until `out` holds `most` bytes or the
    /// output ends.
    pub(crate) fn drain_ready(&mut self, most: usize) {
        while let Some(sock) = &self.stdout
            && self.out.len() < most
            && self.spill.is_empty()
        {
            match sock.try_read(self.out.buffer()) {
                // The next read meets an error again.
                Ok(None) | Err(_) => return,
                Ok(Some(0)) => self.stdout = None,
                Ok(Some(_)) => self.out.keep_all(),
            }
        }
    }

    /// The response is over. Waits for the process in the background, ends it where it does not end
    /// by itself, and hands its exit to `done`.
    pub(crate) fn finish(mut self, done: impl FnOnce(Option<Exit>) + 'static) {
        self.tell_held_open();
        self.stdout = None;
        self.out = Out::default();
        if let Some(exit) = self.reap()
            && !self.pump.process.left_others()
        {
            self.pump.errors.finish();
            return done(Some(exit));
        }
        let patience = self.pump.clocks.patience(self.may_finish(), LINGER);
        tokio::task::spawn_local(self.end(patience, done));
    }

    /// The request has failed or the client is gone: ends the process group, TERM first, in the
    /// background; or, with `run_to_completion`, lets the program finish and discards its output.
    pub(crate) fn abandon(mut self, client_left: bool, done: impl FnOnce(Option<Exit>) + 'static) {
        self.tell_held_open();
        let finish = client_left && self.may_finish();
        tokio::task::spawn_local(async move {
            if finish {
                self.discard_output().await;
            }
            self.stdout = None;
            let patience = self.pump.clocks.patience(finish, Duration::ZERO);
            self.end(patience, done).await;
        });
    }

    fn tell_held_open(&self) {
        if let Some(HeldOpen::Untold) = self.held_open {
            self.pump.errors.log.source.write(Level::Warn, HELD_OPEN);
        }
    }

    /// Whether the program may finish after its response or its client: only with the whole of its input.
    fn may_finish(&self) -> bool {
        self.run_to_completion && self.held.is_none() && self.pump.stdin.has_ended()
    }

    /// Waits for the process and those that it leaves behind in its group, and ends both where they do not end by themselves.
    async fn end(mut self, patience: Duration, done: impl FnOnce(Option<Exit>)) {
        let until = Instant::now() + patience;
        let exit = self.wait_or_end(patience).await;
        if !self.pump.process.left_others() {
            self.pump.errors.finish();
            return done(exit);
        }
        done(exit);
        self.end_group(until).await;
        self.pump.errors.finish();
    }

    /// TERM for those that the process has left behind, unless they have had it with the process, and KILL after the grace.
    async fn end_group(&mut self, until: Instant) {
        if !self.signalled && self.group_left_by(until).await {
            return;
        }
        let Some(group) = self.pump.process.group() else {
            return;
        };
        let names = match group {
            0 => "processes in its sandbox".to_owned(),
            // Every process of the machine is looked at.
            group => {
                let members = off_loop("members", move || group_members(group)).await;
                members.map(names).unwrap_or_default()
            }
        };
        if !self.signalled {
            self.pump.process.signal(TERM);
        }
        let mut how = "TERM";
        if !self.group_left_by(Instant::now() + self.kill_grace).await {
            self.pump.process.signal(KILL);
            how = "KILL, for TERM did not end it within kill_grace";
        }
        // Only processes that had ended already: their parent has not asked for them yet.
        if !names.is_empty() {
            let words = format!("what it had left running was ended: {names} ({how})");
            self.pump.errors.log.source.write(Level::Info, &words);
        }
    }

    /// Whether all those that the process has left behind are gone by then.
    async fn group_left_by(&mut self, until: Instant) -> bool {
        while self.pump.process.group().is_some() {
            if Instant::now() >= until {
                return false;
            }
            tokio::select! {
                never = self.pump.errors.drain() => match never {},
                () = tick::next() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
        true
    }

    /// The program's response is no response. Gives it a moment to exit and to say why on standard
    /// error, unless it must `end` at once, and tells both: for the log and for its author.
    pub(crate) async fn post_mortem(&mut self, end: bool) -> (Option<Exit>, String) {
        self.stdout = None;
        let patience = if end { Duration::ZERO } else { LINGER };
        let exit = self.wait_or_end(patience).await;
        self.pump.errors.finish();
        (exit, self.stderr_tail())
    }

    pub(crate) fn stderr_tail(&self) -> String {
        self.pump.errors.log.tail()
    }

    async fn discard_output(&mut self) {
        let Some(stdout) = self.stdout.take() else {
            return;
        };
        self.pump.clocks.first_byte();
        self.pump.clocks.change_task();
        loop {
            self.out.keep_all();
            self.out.clear();
            tokio::select! {
                n = stdout.read_later(self.out.buffer()) => if !matches!(n, Ok(n) if n > 0) { return },
                never = self.pump.errors.drain() => match never {},
                _late = self.pump.clocks.ring() => return,
            }
            self.pump.clocks.moved();
        }
    }

    /// Waits for the process to exit; after `patience` it gets TERM, and KILL after the grace.
    async fn wait_or_end(&mut self, patience: Duration) -> Option<Exit> {
        if !self.exited_within(patience).await {
            self.signalled = true;
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
            () = self.pump.process.exited() => true,
            never = self.pump.errors.drain() => match never {},
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
            permit.used(exit.user + exit.system);
        }
        // Not before it has exited: what it tells then, its template is to hear.
        if let Some(origin) = self.origin.take() {
            origin.ended(&exit, self.signalled);
        }
        self.exit
    }

    /// Its output has ended: how it exits, if that is soon.
    pub(crate) async fn exit(&mut self) -> Option<Exit> {
        if self.reap().is_none() {
            // The moment between the end of output and that of the process is short, but for one that its helper tells of.
            if !self.pump.process.is_remote() {
                tokio::task::yield_now().await;
            }
            // On a machine that has much else to do its last steps may take long.
            if self.reap().is_none()
                && !self.exited_within(VERDICT).await
                && self.pump.process.is_exiting()
            {
                self.exited_within(LINGER).await;
            }
        }
        self.reap()
    }

    /// Its output has ended: whether that was the end of a document, or a signal ended the program
    /// before it had printed all of one, or what it has left running may still have something to print.
    pub(crate) async fn killed(&mut self) -> Option<Fault> {
        if self.held_open.is_some() {
            self.held_open = Some(HeldOpen::Told);
            return Some(Fault::Script(HELD_OPEN.into()));
        }
        unfinished(self.exit().await?)
    }
}

/// Processes for the log: some of their names and ids.
fn names(members: Vec<(i32, Vec<u8>)>) -> String {
    const NAMED: usize = 5;
    let more = members.len().saturating_sub(NAMED);
    let one = |(pid, name): &(i32, Vec<u8>)| format!("{} {pid}", escape(name));
    let mut names: Vec<String> = members.iter().take(NAMED).map(one).collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

async fn come(sock: &Sock, bulk: bool, out: &mut Out) -> io::Result<WaitingInput> {
    let out = out.buffer();
    let least = match transfer() {
        Transfer::Spliced => 1,
        _ => SPLICE_LEAST,
    };
    if bulk {
        sock.waiting(least, out).await
    } else {
        sock.read_later(out).await.map(WaitingInput::Read)
    }
}

/// Output could not be waited for, or read: it has not ended.
pub(crate) fn unreadable(e: &io::Error) -> Fault {
    if is_short(e) {
        SHORT
    } else {
        Fault::Internal(format!("a program's output could not be read: {e}"))
    }
}
