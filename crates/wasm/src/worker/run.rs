//! One run: an instance made, called, and gone.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{Exit, Status};
use tokio::io::{Interest, unix::AsyncFd};
use wasmtime::{Engine, Store, Trap};
use wasmtime_wasi::I32Exit;

use super::{
    Program, http,
    state::{State, Stop, processor},
    stdio::Stream,
};
use crate::wire::{Ended, Profile, Run, send_ended};

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
    engine: &Engine,
    program: &Program,
    profile: Option<&Profile>,
    run: &Run,
    streams: [OwnedFd; 3],
    control: OwnedFd,
) {
    let began = processor();
    let control = Arc::new(control);
    let (status, memory, state) = match State::new(run, profile, streams, control.clone()) {
        Ok(state) => {
            let mut store = Store::new(engine, state);
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
    let done = tokio::select! {
        biased;
        done = call(program, store, run) => done,
        () = cancelled(control) => Err(Stop::Cancelled.into()),
    };
    match done {
        Ok(()) => Status::Code(0),
        Err(e) => verdict(&e, &store.data().streams[2]),
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

/// Waits until the server closes its end. Begun only when the guest waits, too.
async fn cancelled(control: &OwnedFd) {
    #[expect(
        deprecated,
        reason = "the replacement is unsafe for types that may change their descriptor"
    )]
    let fd = AsyncFd::with_interest(control.as_raw_fd(), Interest::READABLE);
    if let Ok(fd) = fd {
        let _ = fd.readable().await;
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
    stderr.write_now(words.as_bytes());
    Status::Signal(signal)
}
