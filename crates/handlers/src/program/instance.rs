//! An instance of a module for the request: its code, and a connection to the worker that runs it.

use galgo_io::sock::Sock;
use galgo_proto::{fcgi::Role, vars::Sink};
use galgo_service::{admission::Permit, fault::Fault, spool::Stored};
use tokio::time::Instant;

use super::{super::before_reply, ProgramRun, context::ProgramContext, start::AFTER};
use crate::{
    program_settings::Cgi,
    relay::clock::Clocks,
    upstream::exchange::{Exchange, ExchangeLease, ExchangeStart},
    wasm::{ModuleCode, ModuleLease},
};

/// Number of workers that may die, one after the other, before a worker has read the request.
const TRIES: u32 = 4;

impl ProgramRun<'_, '_, '_> {
    /// Returns the place where a module runs, with its code, which is compiled now if necessary. `None`: the script is no
    /// module.
    pub(super) async fn module_code(&mut self) -> Result<Option<ModuleCode>, Fault> {
        let wasm = &self.cx.starters.wasm;
        if !self.script.module {
            return Ok(None);
        }
        if let Some(remit) = &self.cgi.remit {
            let uid = remit.user_for_owner(self.script.owner);
            if self.cx.resources.owners.is_some() {
                return Ok(Some(ModuleCode::Own(uid)));
            }
            // This server is a command that already runs as that user.
            self.may_start_here(remit, uid).map_err(Fault::Refused)?;
        }
        let longest = self.cgi.options.first_byte_timeout;
        let code = tokio::time::timeout(longest, wasm.code(&self.script));
        let code = std::pin::pin!(code);
        let late = |_| Fault::Late("the module was not compiled within first_byte_timeout".into());
        let code = self.request.client.await_while_connected(code).await?;
        let code = code.map_err(late)??;
        Ok(Some(ModuleCode::Shared(code)))
    }

    /// Returns an instance that answers. If a worker ends before it has read the request, the next worker gets the request.
    pub(super) async fn answering_instance(
        &mut self,
        mut file: Option<Stored>,
        mut code: ModuleCode,
    ) -> Result<Box<Exchange>, Fault> {
        let repeats = before_reply::may_repeat(self.head) && self.head.body.is_empty();
        let mut tries = if repeats { TRIES } else { 0 };
        loop {
            let permit = self.acquire_permit().await?;
            let Some((worker, exchange)) = self
                .request_instance(&mut file, code, permit, tries > 0)
                .await?
            else {
                // The code is gone, so it is compiled again.
                code = self.module_code().await?.unwrap_or(code);
                continue;
            };
            if let Some(exchange) = before_reply::await_first_byte(self.request, exchange).await? {
                return Ok(exchange);
            }
            let replaced = async {
                if let ModuleCode::Shared(_) = code {
                    self.cx.starters.wasm.replaced(worker).await;
                }
                Ok(())
            };
            before_reply::wait_for(self.request, replaced).await?;
            tries -= 1;
        }
    }

    /// Asks a worker for an instance; `again`: the request may be sent again. Also returns the worker's number. `None`: the
    /// code is gone.
    async fn request_instance(
        &mut self,
        file: &mut Option<Stored>,
        code: ModuleCode,
        permit: Permit,
        again: bool,
    ) -> Result<Option<(usize, Box<Exchange>)>, Fault> {
        let began = Instant::now();
        let length = self.body_length(file.as_ref());
        let options = &self.cgi.options;
        let clocks = Clocks::start(options, AFTER);
        let starters = self.cx.starters;
        let conn = connect_to_worker(self.cx, self.cgi, code, permit);
        let Some((conn, lease)) = before_reply::wait_for(self.request, conn).await? else {
            return Ok(None);
        };
        let worker = lease.worker();
        let start = ExchangeStart {
            conn,
            again,
            lease: ExchangeLease::Instance(Box::new(lease)),
            clocks,
            max_stderr: options.max_stderr,
            source: self.log_source(),
            // The request of a local redirect has no body, even if the original request had one.
            file: file.take(),
            bodiless: self.head.body.is_empty(),
            run_to_completion: options.run_to_completion,
        };
        let exchange = Exchange::over_fastcgi(start, Role::RESPONDER, true, |params| {
            params.put_variable(b"", &starters.wasm.run(code, self.cgi, &self.script));
            self.variables(length, params)
        })?;
        self.request.entry.borrow_mut().start = began.elapsed();
        Ok(Some((worker, exchange)))
    }
}

/// Connects to the worker that runs this code; `None`: the code is gone.
async fn connect_to_worker(
    cx: ProgramContext<'_>,
    cgi: &Cgi,
    code: ModuleCode,
    permit: Permit,
) -> Result<Option<(Sock, ModuleLease)>, Fault> {
    let (wasm, wait) = (&cx.starters.wasm, cx.shared.queue_wait);
    let (code, uid) = match code {
        ModuleCode::Shared(code) => {
            return wasm.connect(code, permit, cx.resources.index, wait).await;
        }
        ModuleCode::Own(uid) => (cgi.remit.as_ref(), uid),
    };
    match (&cx.resources.owners, code) {
        (Some(owners), Some(remit)) => {
            // Boxed for its size, because few requests come here.
            let asked =
                Box::pin(wasm.connect_as_user(cx.resources, (owners, remit, uid), permit, wait));
            asked.await.map(Some)
        }
        _ => Err(Fault::Internal("no helper can be made here".into())),
    }
}
