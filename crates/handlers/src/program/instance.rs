//! An instance of a module for the request: its code, and a connection to the worker that runs it.

use std::sync::Arc;

use galgo_proto::{fcgi::Role, vars::Sink};
use galgo_service::{admission::Permit, fault::Fault, spool::Stored};
use tokio::time::Instant;

use super::{super::before_reply, ProgramRun, start::AFTER};
use crate::{
    relay::clock::Clocks,
    upstream::exchange::{Exchange, ExchangeLease, ExchangeStart},
    wasm::{ModuleCode, ModuleWorker},
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
            if let Some(owners) = &self.cx.resources.owners {
                return Ok(Some(wasm.user_code(owners, remit, uid)));
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
        Ok(Some(code))
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
                .request_instance(&mut file, &code, permit, tries > 0)
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
                worker.wait_for_end().await;
                Ok(())
            };
            before_reply::wait_for(self.request, replaced).await?;
            tries -= 1;
        }
    }

    /// Asks a worker for an instance; `again`: the request may be sent again. Also returns the worker. `None`: the
    /// code is gone.
    async fn request_instance(
        &mut self,
        file: &mut Option<Stored>,
        code: &ModuleCode,
        permit: Permit,
        again: bool,
    ) -> Result<Option<(Arc<ModuleWorker>, Box<Exchange>)>, Fault> {
        let began = Instant::now();
        let length = self.body_length(file.as_ref());
        let options = &self.cgi.options;
        let clocks = Clocks::start(options, AFTER);
        let (wasm, wait) = (&self.cx.starters.wasm, self.cx.shared.queue_wait);
        let conn = code.connect(self.cx.resources, permit, wait);
        let Some((conn, lease)) = before_reply::wait_for(self.request, conn).await? else {
            return Ok(None);
        };
        let worker = lease.worker().clone();
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
            params.put_variable(b"", &wasm.run(code, self.cgi, &self.script));
            self.variables(length, params)
        })?;
        self.request.entry.borrow_mut().start = began.elapsed();
        Ok(Some((worker, exchange)))
    }
}
