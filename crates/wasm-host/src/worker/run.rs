//! A run: an instance is made, called, and dropped.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use galgo_proto::fcgi::RecordType;
use galgo_spawn::{Exit, Status};
use galgo_wasm::wire::RunOutcome;
use libc::{SIGABRT, SIGFPE, SIGILL, SIGSEGV, SIGTERM, SIGXCPU};
use tokio::runtime::Runtime;
use wasmtime::{Store, Trap};
use wasmtime_wasi::I32Exit;

use super::{
    connection::{Readiness, RunRequest, ServerConnection},
    http,
    linker::LinkedProgram,
    state::{InstanceState, StopReason, thread_cpu_time},
    stdio::Waiter,
};
use crate::worker::worker_state::Worker;

/// The exit of an instance whose request the server has given up.
const CANCELLED: Status = Status::Signal(SIGTERM);
/// Limit of a backtrace on standard error in bytes.
const BACKTRACE: usize = 16 << 10;

/// The result of serving a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// The server has received the exit.
    Heard,
    /// The server has not received the exit.
    Unheard,
    /// The server has given the request up, and the instance was ended.
    Cancelled,
}

/// Runs an instance to its end.
pub(super) fn run_instance(
    worker: &Worker,
    program: &LinkedProgram,
    request: &RunRequest,
    connection: &Arc<ServerConnection>,
    runtime: &Runtime,
) -> Served {
    let began = thread_cpu_time();
    let component = !matches!(program, LinkedProgram::Command(_));
    let state = InstanceState::new(
        component,
        worker.profile(&request.run),
        worker.resources,
        request,
        connection,
    );
    let (status, memory, _store) = match state {
        Ok(state) => {
            let mut store = Store::new(&worker.engine, state);
            let status = runtime.block_on(run_to_status(program, &mut store, request, connection));
            (status, store.data().memory.used, Some(store))
        }
        Err(why) => {
            connection.queue_output(RecordType::STDERR, format!("galgo: {why}\n").as_bytes());
            (Status::Signal(SIGABRT), 0, None)
        }
    };
    let exit = Exit {
        status,
        user: thread_cpu_time().saturating_sub(began),
        system: Duration::ZERO,
        max_rss: memory,
    };
    // The store is dropped after the server has its answer.
    let served = send_outcome(connection, RunOutcome::Exit(exit), runtime);
    match status {
        CANCELLED => Served::Cancelled,
        _ => served,
    }
}

/// Sends the result of a request, after its output.
pub(super) fn send_outcome(
    connection: &ServerConnection,
    ended: RunOutcome,
    runtime: &Runtime,
) -> Served {
    connection.end_answer(ended);
    if connection.push() || runtime.block_on(Meanwhile::new(connection).wait_until_pushed()) {
        Served::Heard
    } else {
        Served::Unheard
    }
}

async fn run_to_status(
    program: &LinkedProgram,
    store: &mut Store<InstanceState>,
    request: &RunRequest,
    connection: &ServerConnection,
) -> Status {
    store.limiter(|state| &mut state.memory);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| context.data().may_go_on());
    let mut meanwhile = Meanwhile::new(connection);
    let done = tokio::select! {
        biased;
        done = call_program(program, store, request) => done,
        () = meanwhile.wait_for_hang_up() => Err(StopReason::Cancelled.into()),
    };
    match done {
        Ok(()) => Status::Code(0),
        Err(e) => status_from_error(&e, connection),
    }
}

/// Background work while a guest waits, which costs a running guest nothing: it writes the guest's
/// output, and watches the server's end of the connection.
struct Meanwhile<'r> {
    connection: &'r ServerConnection,
    output: Waiter,
    hang_up: Waiter,
}

impl<'r> Meanwhile<'r> {
    fn new(connection: &'r ServerConnection) -> Self {
        Self {
            connection,
            output: Waiter::default(),
            hang_up: Waiter::default(),
        }
    }

    /// Waits until the server closes its end.
    async fn wait_for_hang_up(&mut self) {
        poll_fn(|cx| {
            let _ = self.output.poll_push(self.connection, cx);
            self.hang_up.poll(self.connection, Readiness::HangUp, cx)
        })
        .await;
    }

    /// Waits until all output is written. Returns false if the server closes its end before, or reads
    /// no more.
    async fn wait_until_pushed(&mut self) -> bool {
        poll_fn(|cx| match self.output.poll_push(self.connection, cx) {
            Poll::Ready(()) => Poll::Ready(self.connection.held_len().is_ok()),
            Poll::Pending => {
                let gone = self.hang_up.poll(self.connection, Readiness::HangUp, cx);
                gone.map(|()| false)
            }
        })
        .await
    }
}

async fn call_program(
    program: &LinkedProgram,
    store: &mut Store<InstanceState>,
    request: &RunRequest,
) -> wasmtime::Result<()> {
    match program {
        LinkedProgram::Command(pre) => {
            let instance = pre.instantiate_async(&mut *store).await?;
            let start = instance.get_typed_func::<(), ()>(&mut *store, "_start")?;
            start.call_async(store, ()).await
        }
        LinkedProgram::Component(pre) => {
            let command = pre.instantiate_async(&mut *store).await?;
            match command.wasi_cli_run().call_run(store).await? {
                Ok(()) => Ok(()),
                Err(()) => Err(I32Exit(1).into()),
            }
        }
        LinkedProgram::Http(pre) => http::call_handler(pre, store, &request.env).await,
    }
}

fn status_from_error(e: &wasmtime::Error, connection: &ServerConnection) -> Status {
    if let Some(exit) = e.downcast_ref::<I32Exit>() {
        return Status::Code(exit.0 & 0xff);
    }
    // Each kind of trap stands for a signal: the signal that ends a native program of the same fault.
    let signal = match (e.downcast_ref::<StopReason>(), e.downcast_ref::<Trap>()) {
        (Some(StopReason::Cancelled), _) => return CANCELLED,
        (Some(StopReason::Cpu), _) => SIGXCPU,
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
    connection.queue_output(RecordType::STDERR, words.as_bytes());
    Status::Signal(signal)
}
