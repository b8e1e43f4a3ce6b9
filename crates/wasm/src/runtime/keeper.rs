//! The keeper of a worker that runs a user's own modules. Both are processes of that user, which a helper has started. The
//! worker cannot start anything, so the keeper has its modules compiled, each by a separate process, and hands over the code in
//! sealed memory. No code is stored in a file, where another program of the user could replace it.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use galgo_spawn::{Child, Spawner};
use rustix::{
    fs::{Mode, OFlags},
    process::{DumpableBehavior, Signal, set_dumpable_behavior},
};

use super::compiler::{compiled, settled};
use crate::{
    code,
    host::{self, HostProgram},
    module::ModuleInfo,
    no_code::{ModuleFault, NoCode},
    wire::{self, CodeReply, Message, UserSetup},
};

/// Starts the worker on the server's socket, which is standard input. Compiles the modules that the worker asks for until the
/// worker has ended.
///
/// # Errors
/// A sentence: the worker was not started, or has failed.
pub fn keep(host: &HostProgram, setup: UserSetup) -> Result<(), String> {
    let closed = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    closed.map_err(|e| format!("closing its memory: {e}"))?;
    let words = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    let mut spawner = Spawner::direct().map_err(words("preparing to start the wasm worker"))?;
    spawner.set_orphaned(Some(Signal::KILL.as_raw()));
    let mut spawner = Some(spawner);
    let (mut child, worker) = start(host, &setup, &mut spawner)?;
    let mut buffer = Vec::new();
    while let Some((message, _)) =
        wire::receive_message(&worker, &mut buffer).map_err(words("asking the wasm worker"))?
    {
        let Some(Message::Wanted(path)) = Message::decode(message) else {
            return Err("the wasm worker sent an invalid message".into());
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(&path));
        let (answer, code) = answer(host, &setup, path, &mut spawner);
        let code: Vec<_> = code.iter().map(AsFd::as_fd).collect();
        let sent = wire::send_message(&worker, &Message::Found(answer).encode(), &code);
        sent.map_err(words("answering the wasm worker"))?;
    }
    let ended = child.wait().map_err(words("waiting for the wasm worker"))?;
    if ended.status.success() {
        Ok(())
    } else {
        Err(format!("the wasm worker ended: {:?}", ended.status))
    }
}

/// Starts the worker; returns it with the socket for its questions and our answers.
fn start(
    host: &HostProgram,
    setup: &UserSetup,
    spawner: &mut Option<Spawner>,
) -> Result<(Child, OwnedFd), String> {
    let words = |e: io::Error| format!("starting the wasm worker: {e}");
    let (ours, theirs) = wire::socket_pair().map_err(words)?;
    wire::send_message(&ours, &Message::Own(setup.clone()).encode(), &[]).map_err(words)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = null.map_err(|e| words(e.into()))?;
    let (stdin, stderr) = (io::stdin(), io::stderr());
    let stdio: [BorrowedFd<'_>; 3] = [stdin.as_fd(), null.as_fd(), stderr.as_fd()];
    let spawner = spawner.as_mut().ok_or("there is no spawner")?;
    let child = host.start_command(spawner, host::OWN_WORKER, stdio, Some(theirs.as_fd()));
    let child = child.map_err(|e| words(io::Error::other(e)))?;
    // The server's socket is the worker's alone: it closes with the worker.
    rustix::stdio::dup2_stdin(&null).map_err(|e| words(e.into()))?;
    Ok((child, ours))
}

fn answer(
    host: &HostProgram,
    setup: &UserSetup,
    path: &Path,
    spawner: &mut Option<Spawner>,
) -> (CodeReply, Option<File>) {
    let real = match setup.may_run(path) {
        Ok(real) => real,
        Err(denied) => return (CodeReply::Denied(denied.to_string()), None),
    };
    match made(host, &real, spawner) {
        Ok((key, code)) => (CodeReply::Code(key), Some(code)),
        Err(wrong) if wrong.whose == ModuleFault::Shortage => (CodeReply::Short, None),
        Err(wrong) => (CodeReply::Bad(wrong.words), None),
    }
}

/// Returns the code of a module as its file is now.
fn made(
    host: &HostProgram,
    path: &Path,
    spawner: &mut Option<Spawner>,
) -> Result<(wire::ModuleDigest, File), NoCode> {
    let make = |file: &File, known: &ModuleInfo| {
        let code = code::create_memory_file()
            .map_err(|e| NoCode::from_io_error("no memory for its code", &e))?;
        compiled(host, file, &code, spawner)?;
        // A second look, because the file may have changed since it was read here. The process is not to be trusted with more
        // than code.
        if code::seal_entry(&code, &known.key) {
            Ok((known.key, code))
        } else {
            Err(NoCode::server_fault("it changed while it was compiled"))
        }
    };
    settled(path, make).1
}
