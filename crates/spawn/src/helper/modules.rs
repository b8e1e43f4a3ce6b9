//! The worker that runs the WebAssembly modules of a route, as the route's user: `galgo-wasm`, which the spawner has opened.
//! The worker's settings come from the configuration only.

use crate::{
    Child, Direct, EnvBlock, Limits, Sandbox, Start,
    owners::remit::{MODULES, Remit},
    remote::message::StartOrder,
    sandbox::ForWorker,
};
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    ffi::CString,
    fs::File,
    io::{self, Seek, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The program that runs modules, opened by the spawner for a helper, or the reason why it could not be opened.
pub(crate) type WorkerProgram = Result<OwnedFd, String>;

/// Returns the access that a strict sandbox leaves to the worker.
pub(crate) fn worker_access<'a>(
    remit: &'a Remit,
    host: Option<&'a WorkerProgram>,
) -> Option<ForWorker<'a>> {
    let terms = remit.terms.modules.as_ref()?;
    let host = host?.as_ref().ok()?;
    Some(ForWorker {
        program: host.as_fd(),
        read: &terms.read,
        write: &terms.write,
    })
}

/// Whether an order asks for the worker of modules. Such an order holds nothing else.
pub(crate) fn asks_for_modules(order: &StartOrder) -> bool {
    order.program.as_bytes() == MODULES.as_bytes()
}

/// Returns the program of the worker, and a file with its settings, if the order is permitted.
///
/// # Errors
/// A sentence for the server.
pub(crate) fn resolve_worker<'h>(
    order: &StartOrder,
    remit: &Remit,
    host: Option<&'h WorkerProgram>,
) -> Result<(&'h OwnedFd, OwnedFd), String> {
    let (Some(terms), Some(host)) = (&remit.terms.modules, host) else {
        return Err("no modules run on this route".into());
    };
    if !order.args.is_empty() || order.env.iter().next().is_some() {
        return Err("the worker of modules takes no arguments and no variables".into());
    }
    let host = host.as_ref().map_err(Clone::clone)?;
    let setup =
        memory_file(&terms.setup).map_err(|e| format!("the setup of the wasm worker: {e}"))?;
    Ok((host, setup))
}

/// Creates a file without a name that holds `bytes`.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("galgo-setup", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Starts the worker. Resource limits of a process would apply to all instances together, so the worker itself applies them to
/// each instance, as far as they can be. The limits of a control group apply to all instances.
pub(crate) fn start_worker(
    direct: &mut Direct,
    remit: &Remit,
    (host, setup): (&OwnedFd, OwnedFd),
    stdio: [BorrowedFd<'_>; 3],
) -> Result<Child, crate::StartError> {
    let text = |s: &str| CString::new(s).unwrap_or_default();
    let build = remit.terms.modules.as_ref().map_or("", |m| &*m.build);
    direct.start_program(&Start {
        path: &text("/proc/self/fd/3"),
        args: &["galgo-wasm", MODULES, build].map(text),
        env: &EnvBlock::default(),
        dir: &text("/"),
        stdio,
        more: &[host.as_fd(), setup.as_fd()],
        limits: Limits {
            is_worker: true,
            ..Limits::default()
        },
        no_new_privs: true,
        // The worker makes its own domain, also for files: see `Direct::set_ruleset`.
        sandbox: match remit.terms.strict {
            Some(_) => Sandbox::Standard,
            None => Sandbox::Off,
        },
    })
}
