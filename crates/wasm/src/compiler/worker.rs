//! Starts the worker that reads the cache of compiled code.

use std::{
    io,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use galgo_spawn::{Child, Spawner, lock::lock};

use super::{
    jobs::found,
    shared::{Compiler, FolderId},
};
use crate::{
    code,
    host::{self, HostProgram},
    no_code::NoCode,
    wire::{self, Message, ModuleSource, Profile, WorkerSetup},
};

impl Compiler {
    /// Starts a worker with these standard streams. Its standard input is the other end of `socket`. Also returns the cache that
    /// the worker may read.
    ///
    /// # Errors
    /// There is no program to run modules, or the system cannot start it.
    pub fn start_worker(
        &self,
        instances: u64,
        profiles: Vec<Profile>,
        socket: &OwnedFd,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<(Child, Option<FolderId>), NoCode> {
        let io = |e: io::Error| NoCode::from_io_error("starting the wasm worker", &e);
        let host = found(&self.settings.beside, &mut None)?;
        // The folder must exist when the worker confines itself to it. An error is reported to the request that needs the folder.
        let _ = code::create_cache(&self.cache());
        let cache = self.cache_folder();
        // Before everything else, so that the setup is the first message.
        let setup = Message::Setup(WorkerSetup {
            instances,
            profiles,
            modules: ModuleSource::Cache(self.cache().as_os_str().as_bytes().to_vec()),
        });
        wire::send_message(socket, &setup.encode(), &[]).map_err(io)?;
        self.load(host, socket);
        // A new spawner for each worker, because an older one would keep its resources for as long as the worker lives.
        let spawner = &mut Spawner::direct().map_err(io)?;
        let child = host.start_command(spawner, host::WORKER, stdio, None);
        Ok((
            child.map_err(|e| NoCode::from_io_error(&e.stage.to_string(), &e.source))?,
            cache,
        ))
    }

    /// Makes the worker load the code that is in the cache, before the first request; missing code is compiled again.
    fn load(&self, host: &HostProgram, worker: &OwnedFd) {
        let cache = &self.cache();
        let modules = &mut lock(&self.modules);
        let keys: Vec<_> = modules.keys().collect();
        for key in keys {
            if code::entry_path(cache, &key, host.engine()).exists() {
                // Code that does not fit into the socket is loaded on request.
                let _ = wire::send_message(worker, &Message::Load(key).encode(), &[]);
            } else {
                modules.forget_code(&key);
            }
        }
    }
}
