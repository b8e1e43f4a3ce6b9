//! The state of one instance.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::Duration};

use galgo_proto::fcgi::RecordType;
use galgo_wasm::wire::Profile;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{ResourceLimiter, Result, UpdateDeadline};
use wasmtime_wasi::{WasiCtxBuilder, WasiCtxView, WasiView, filesystem::FsPerms, p1::WasiP1Ctx};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::{
    connection::{Readiness, RunRequest, ServerConnection},
    hooks::Hooks,
    stdio::{GuestOutput, GuestStdin},
};
use crate::engine::MEMORY_MOST;

/// Limit of elements in all tables of an instance.
const TABLE_MOST: usize = 1_000_000;
/// Limit of random bytes in one call: a longer call could not be interrupted.
const RANDOM_MOST: u64 = 64 << 10;

pub(super) struct InstanceState {
    pub(super) preview1: WasiP1Ctx,
    http: WasiHttpCtx,
    hooks: Hooks,
    pub(super) connection: Arc<ServerConnection>,
    /// Variables as `NAME=value\0`, one after the other.
    pub(super) env: Vec<u8>,
    /// Whether it may look host names up.
    pub(super) network: bool,
    pub(super) memory: LinearMemory,
    cpu: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The server has closed its end.
    Cancelled,
    /// The instance used more processor time than it may.
    Cpu,
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "ended by the server",
            Self::Cpu => "out of processor time (cpu)",
        })
    }
}

impl std::error::Error for StopReason {}

#[derive(Debug, Default)]
pub(super) struct LinearMemory {
    /// Bytes of all linear memories of the instance.
    pub(super) used: u64,
    most: u64,
    elements: usize,
}

/// Gives a guest the folders and the network of its profile.
///
/// # Errors
/// A folder cannot be opened.
fn grant_profile(builder: &mut WasiCtxBuilder, profile: &Profile) -> Result<(), String> {
    if profile.network {
        builder.inherit_network();
    }
    builder
        .allow_tcp(profile.network)
        .allow_udp(profile.network);
    for (guest, host, write) in &profile.folders {
        let may = if *write {
            FsPerms::ReadWrite
        } else {
            FsPerms::ReadOnly
        };
        let host = Path::new(OsStr::from_bytes(host));
        builder
            .preopened_dir(host, guest, may)
            .map_err(|e| format!("the folder {} for {guest}: {e:#}", host.display()))?;
    }
    Ok(())
}

impl InstanceState {
    /// Makes the state of an instance. A `component` gets its variables from wasmtime-wasi, a module from `environ`. The
    /// instance may use its `profile`, and hold this many `resources`: files, folders, sockets and others.
    ///
    /// # Errors
    /// A folder cannot be opened.
    pub(super) fn new(
        component: bool,
        profile: Option<&Profile>,
        resources: usize,
        request: &RunRequest,
        connection: &Arc<ServerConnection>,
    ) -> Result<Self, String> {
        let RunRequest { run, env } = request;
        let output = |kind| GuestOutput(connection.clone(), kind);
        // Other threads read and write files, and the event loop does the sleeping (no `allow_blocking_current_thread`).
        // So a guest can be ended whatever it waits for.
        let mut builder = WasiCtxBuilder::new();
        builder
            .max_random_size(RANDOM_MOST)
            .stdin(GuestStdin(connection.clone()))
            .stdout(output(RecordType::STDOUT))
            .stderr(output(RecordType::STDERR))
            .arg(String::from_utf8_lossy(&run.name));
        if component {
            for (name, value) in split_variables(env) {
                let (name, value) = (
                    String::from_utf8_lossy(name),
                    String::from_utf8_lossy(value),
                );
                builder.env(name, value);
            }
        }
        let profile = profile.cloned().unwrap_or_default();
        grant_profile(&mut builder, &profile)?;
        let mut preview1 = builder.build_p1();
        preview1.ctx().table.set_max_capacity(resources);
        Ok(Self {
            preview1,
            http: WasiHttpCtx::new(),
            hooks: Hooks,
            connection: connection.clone(),
            env: env.clone(),
            network: profile.network,
            memory: LinearMemory {
                most: run.memory.min(MEMORY_MOST),
                ..LinearMemory::default()
            },
            cpu: (run.cpu > 0).then(|| thread_cpu_time() + Duration::from_secs(run.cpu)),
        })
    }

    /// Decides, at each tick while the guest computes, whether it may go on.
    pub(super) fn may_go_on(&self) -> Result<UpdateDeadline> {
        self.connection.push();
        if self.connection.has_happened(Readiness::HangUp) {
            return Err(StopReason::Cancelled.into());
        }
        if self.cpu.is_some_and(|most| thread_cpu_time() > most) {
            return Err(StopReason::Cpu.into());
        }
        Ok(UpdateDeadline::Continue(1))
    }
}

/// Returns the processor time of this thread, and so of the instance that it runs.
pub(super) fn thread_cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        now.tv_sec.unsigned_abs(),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Returns the variables of a block.
pub(super) fn split_variables(block: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    block.split(|&b| b == 0).filter_map(|pair| {
        let at = pair.iter().position(|&b| b == b'=')?;
        Some((&pair[..at], &pair[at + 1..]))
    })
}

impl WasiView for InstanceState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.preview1.ctx()
    }
}

impl WasiHttpView for InstanceState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            ctx: &mut self.http,
            table: self.preview1.ctx().table,
            hooks: &mut self.hooks,
        }
    }
}

impl ResourceLimiter for LinearMemory {
    fn memory_growing(&mut self, now: usize, wanted: usize, _most: Option<usize>) -> Result<bool> {
        let more = wanted.saturating_sub(now) as u64;
        let fits = self.used.saturating_add(more) <= self.most;
        if fits {
            self.used += more;
        }
        Ok(fits)
    }

    fn table_growing(&mut self, now: usize, wanted: usize, _most: Option<usize>) -> Result<bool> {
        let more = wanted.saturating_sub(now);
        let fits = self.elements.saturating_add(more) <= TABLE_MOST;
        if fits {
            self.elements += more;
        }
        Ok(fits)
    }
}
