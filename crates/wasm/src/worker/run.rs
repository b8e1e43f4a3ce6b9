//! One run: an instance made, called, and gone.

use std::{
    future::poll_fn,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use galgo_spawn::{Exit, Status};
use tokio::io::{Interest, unix::AsyncFd};
use wasmtime::{Store, Trap};
use wasmtime_wasi::I32Exit;

use super::{
    Program, Worker, http,
    state::{State, Stop, processor},
    stdio::{Stream, Waiter},
};
use crate::wire::{Ended, Run, send_ended};

/// A signal stands for each way to trap: the one that ends a native program of the same fault.
const SIGILL: i32 = 4;
const SIGABRT: i32 = 6;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;
const SIGXCPU: i32 = 24;

/// Bytes of a backtrace that go to standard error.
const BACKTRACE: usize = 16 << 10;

pub(super) async fn run(
    worker: &Worker,
    program: &Program,
    run: &Run,
    streams: [OwnedFd; 3],
    control: OwnedFd,
) {
    let began = processor();
    let control = Arc::new(control);
    let component = !matches!(program, Program::Command(_));
    let state = State::new(component, worker, run, streams, control.clone());
    let (status, memory, state) = match state {
        Ok(state) => {
            let mut store = Store::new(&worker.engine, state);
            let status = ended(program, &mut store, run, &control).await;
            (status, store.data().memory.used, Kept::Store(store))
        }
        Err((why, streams)) => {
            streams[2].write_now(format!("galgo: {why}\n").as_bytes());
            (Status::Signal(SIGABRT), 0, Kept::Streams(streams))
        }
    };
    let exit = Exit {
        status,
        user: processor().saturating_sub(began),
        system: Duration::ZERO,
        max_rss: memory,
    };
    // In this order: who sees the end of output asks at once how the program ended. What the store
    // holds is given back when nobody waits any more.
    send_ended(&*control, Ended::Exit(exit));
    match &state {
        Kept::Store(store) => store.data().close(),
        Kept::Streams(streams) => streams.iter().for_each(Stream::close),
    }
}

enum Kept {
    Store(Store<State>),
    Streams([Stream; 3]),
}

async fn ended(
    program: &Program,
    store: &mut Store<State>,
    run: &Run,
    control: &Arc<OwnedFd>,
) -> Status {
    store.limiter(|state| &mut state.memory);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| context.data().may_go_on());
    let [_, stdout, stderr] = store.data().streams.clone();
    let mut meanwhile = Meanwhile::new(&stdout, &stderr, control);
    let done = tokio::select! {
        biased;
        done = call(program, store, run) => done,
        () = meanwhile.hung_up() => Err(Stop::Cancelled.into()),
    };
    let status = match done {
        Ok(()) => Status::Code(0),
        Err(e) => verdict(&e, &stderr),
    };
    match meanwhile.pushed().await {
        true => status,
        false => Status::Signal(SIGTERM),
    }
}

/// What goes on while a guest waits, and nowhere near one that does not: its output is written, and the
/// server's end of the control socket watched.
struct Meanwhile<'r> {
    outputs: [(&'r Stream, Waiter); 2],
    control: &'r OwnedFd,
    watched: Option<AsyncFd<std::os::fd::RawFd>>,
}

impl<'r> Meanwhile<'r> {
    fn new(stdout: &'r Stream, stderr: &'r Stream, control: &'r OwnedFd) -> Self {
        Self {
            outputs: [stdout, stderr].map(|stream| (stream, Waiter::default())),
            control,
            watched: None,
        }
    }

    /// Until the server closes its end.
    async fn hung_up(&mut self) {
        poll_fn(|cx| {
            let _ = self.poll_push(cx);
            self.poll_hung_up(cx)
        })
        .await;
    }

    /// Until all output is written; false where the server closes its end before.
    async fn pushed(&mut self) -> bool {
        poll_fn(|cx| match self.poll_push(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => self.poll_hung_up(cx).map(|()| false),
        })
        .await
    }

    fn poll_push(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let [out, err] = &mut self.outputs;
        let (out, err) = (
            out.0.poll_push(&mut out.1, cx),
            err.0.poll_push(&mut err.1, cx),
        );
        match out.is_ready() && err.is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn poll_hung_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.watched.is_none() {
            #[expect(
                deprecated,
                reason = "the replacement is unsafe for types that may change their descriptor"
            )]
            let watched = AsyncFd::with_interest(self.control.as_raw_fd(), Interest::READABLE);
            self.watched = watched.ok();
        }
        match &self.watched {
            Some(fd) => fd.poll_read_ready(cx).map(drop),
            None => Poll::Pending, // the clock's beat looks, too
        }
    }
}

async fn call(program: &Program, store: &mut Store<State>, run: &Run) -> wasmtime::Result<()> {
    match program {
        Program::Command(pre) => {
            let instance = pre.instantiate_async(&mut *store).await?;
            let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
            start.call_async(store, ()).await
        }
        Program::Component(pre) => {
            let command = pre.instantiate_async(&mut *store).await?;
            match command.wasi_cli_run().call_run(store).await? {
                Ok(()) => Ok(()),
                Err(()) => Err(I32Exit(1).into()),
            }
        }
        Program::Http(pre) => http::call(pre, store, run).await,
    }
}

/// How it ended, and why, on its standard error.
fn verdict(e: &wasmtime::Error, stderr: &Stream) -> Status {
    if let Some(exit) = e.downcast_ref::<I32Exit>() {
        return Status::Code(exit.0 & 0xff);
    }
    let signal = match (e.downcast_ref::<Stop>(), e.downcast_ref::<Trap>()) {
        (Some(Stop::Cancelled), _) => return Status::Signal(SIGTERM),
        (Some(Stop::Cpu), _) => SIGXCPU,
        (_, Some(Trap::UnreachableCodeReached)) => SIGILL,
        (_, Some(Trap::IntegerDivisionByZero | Trap::IntegerOverflow)) => SIGFPE,
        (_, Some(Trap::StackOverflow | Trap::MemoryOutOfBounds)) => SIGSEGV,
        _ => SIGABRT,
    };
    let mut words = format!("wasm trap: {e:?}");
    if words.len() > BACKTRACE {
        let at = (0..=BACKTRACE).rev().find(|&at| words.is_char_boundary(at));
        words.truncate(at.unwrap_or(0));
    }
    words.push('\n');
    stderr.push();
    stderr.write_now(words.as_bytes());
    Status::Signal(signal)
}
