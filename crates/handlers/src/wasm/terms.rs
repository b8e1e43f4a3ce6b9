//! The terms for workers that helpers start: the settings that the spawner passes to a helper, whatever the server asks for later.

use std::{os::unix::ffi::OsStrExt, path::Path};

use galgo_spawn::{
    Limits,
    owners::{Layout, ModuleTerms, RunsAs},
};
use galgo_wasm::{
    host::version,
    wire::{Message, ModuleSource, Profile, UserModules, WorkerSetup},
};

use crate::guest_access::GuestAccess;

/// Limit for the linear memory of an instance if `memory` is not set: no module gets all of the machine's memory.
pub(super) const MEMORY: u64 = 256 << 20;
/// Extra instances, for those still being cleared away while as many as may run do.
pub(super) const SPARE: usize = 16;

/// Returns the terms for the worker of a route's own modules, if these run as another user or in a strict sandbox. `running` is
/// the limit for programs at the same time.
pub fn module_terms(
    root: &Path,
    runs_as: &RunsAs,
    guest_access: &GuestAccess,
    limits: &Limits,
    running: usize,
) -> ModuleTerms {
    let setup = WorkerSetup {
        instances: (running + SPARE) as u64,
        profiles: vec![profile(guest_access)],
        modules: ModuleSource::Files(UserModules {
            root: root.as_os_str().as_bytes().to_vec(),
            layout: Layout::Named,
            owner: runs_as.owned_by(),
            memory: limits.memory.unwrap_or(MEMORY),
            cpu: limits.cpu.unwrap_or(0),
        }),
    };
    let folders = |writes: bool| {
        let folders = guest_access
            .folders
            .iter()
            .filter(move |(.., w)| *w == writes);
        folders.map(|(_, host, _)| host.clone()).collect()
    };
    ModuleTerms {
        build: version(),
        setup: Message::Setup(setup).encode(),
        read: folders(false),
        write: folders(true),
    }
}

/// Returns the terms for modules of one host, in the folder `root`. `of_hosts` are the terms for all hosts.
pub fn module_terms_of_host(of_hosts: &ModuleTerms, root: &Path) -> ModuleTerms {
    let mut decoded = Message::decode(&of_hosts.setup);
    // INVARIANT: [`module_terms`] has made it. A worker without settings runs nothing.
    if let Some(Message::Setup(WorkerSetup {
        modules: ModuleSource::Files(modules),
        ..
    })) = &mut decoded
    {
        modules.root = root.as_os_str().as_bytes().to_vec();
        modules.layout = Layout::Host;
    }
    let setup = decoded.map_or_else(Vec::new, |setup| setup.encode());
    ModuleTerms {
        setup,
        ..of_hosts.clone()
    }
}

/// Converts guest access to the form that the worker gets.
pub(super) fn profile(guest_access: &GuestAccess) -> Profile {
    let folders = guest_access.folders.iter().map(|(guest, host, write)| {
        let host = host.as_os_str().as_bytes().to_vec();
        (guest.clone(), host, *write)
    });
    Profile {
        folders: folders.collect(),
        network: guest_access.network,
    }
}
