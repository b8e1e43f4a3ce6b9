//! An instance of a module for the request: its code, and a connection to the worker that runs it.

use galgo_proto::{fcgi::Role, vars::Sink};
use galgo_wasm::wire::Key;
use tokio::time::Instant;

use super::{super::reply, ProgramRun, start::AFTER};
use crate::{
    admission::Permit,
    fault::Fault,
    relay::clock::Clocks,
    spool::Stored,
    upstream::exchange::{BodySource, Exchange, ExchangeLease, ExchangeStart},
};

/// Workers that may die, one after the other, before one has read a request.
const TRIES: u32 = 4;

impl ProgramRun<'_, '_, '_> {
    /// The code of a module, compiled now where that has not been done; `None`: it is no module.
    pub(super) async fn module(&mut self) -> Result<Option<Key>, Fault> {
        let wasm = &self.cx.shared.wasm;
        if !self.script.module {
            return Ok(None);
        }
        let longest = self.cgi.options.first_byte_timeout;
        let code = tokio::time::timeout(longest, wasm.code(&self.script));
        let code = std::pin::pin!(code);
        let late = |_| Fault::Late("the module was not compiled within first_byte_timeout".into());
        let code = self.request.client.waits_for(code).await?;
        code.map_err(late)?.map(Some)
    }

    /// An instance that answers. A request that its worker has not read, because the worker was ending, is sent to the next.
    pub(super) async fn instance(
        &mut self,
        mut file: Option<Stored>,
        mut code: Key,
    ) -> Result<Box<Exchange>, Fault> {
        let repeats = reply::may_repeat(self.head) && self.head.body.is_empty();
        let mut tries = if repeats { TRIES } else { 0 };
        loop {
            let permit = self.permit().await?;
            let Some((worker, exchange)) = self.ask(&mut file, code, permit, tries > 0).await?
            else {
                // It is compiled again.
                code = self.module().await?.unwrap_or(code);
                continue;
            };
            if let Some(exchange) = reply::heard(self.request, exchange).await? {
                return Ok(exchange);
            }
            let replaced = async {
                self.cx.shared.wasm.replaced(worker).await;
                Ok(())
            };
            reply::wait_for(self.request, replaced).await?;
            tries -= 1;
        }
    }

    /// Asks the worker for an instance; `again`: it may be asked again. The worker's number, too; `None`: the code is gone.
    async fn ask(
        &mut self,
        file: &mut Option<Stored>,
        code: Key,
        permit: Permit,
        again: bool,
    ) -> Result<Option<(usize, Box<Exchange>)>, Fault> {
        let began = Instant::now();
        let length = self.length(file.as_ref());
        let options = &self.cgi.options;
        let clocks = Clocks::start(options, AFTER);
        let site = self.cx.shared;
        let (home, wait) = (self.cx.resources.index, self.cx.shared.queue_wait);
        let conn = site.wasm.connect(code, permit, home, wait);
        let Some((conn, lease)) = reply::wait_for(self.request, conn).await? else {
            return Ok(None);
        };
        let worker = lease.worker();
        let start = ExchangeStart {
            conn,
            again,
            lease: ExchangeLease::Instance(lease),
            clocks,
            max_stderr: options.max_stderr,
            source: self.source(),
            // A local redirect's request has no body, whatever the one before it had.
            body: BodySource::of(file.take(), self.head.body.is_empty()),
            run_to_completion: options.run_to_completion,
        };
        let exchange = Exchange::fastcgi(start, Role::Responder, true, |params| {
            params.put(b"", &site.wasm.run(code, self.cgi, self.script.script_name));
            self.variables(length, params)
        })?;
        self.request.entry.borrow_mut().start = began.elapsed();
        Ok(Some((worker, exchange)))
    }
}
