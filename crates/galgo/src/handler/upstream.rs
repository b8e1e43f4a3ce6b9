//! Programs that stay: FastCGI and SCGI.
//!
//! 1. find the script  2. take in the body, where its length must be known first  3. wait for a place
//! 4. connect, or take a connection that was kept  5. its response: see `reply`

use std::{os::fd::OwnedFd, os::unix::ffi::OsStrExt, rc::Rc};

use galgo_proto::{
    h1::{BodyLen, Head},
    scgi,
    vars::Sink,
};

use super::{
    Answer,
    reply::{Answering, wait_for},
    spool,
    variables::{self, Known},
};
use crate::{
    config::{self, BodyMode, Protocol},
    conn::Request,
    fault::Fault,
    log::Source,
    relay::{clock::Clocks, speaker::Speaker},
    route::{self, Match, Script},
    sock::Sock,
    upstream::{
        Lease, Unreachable, Upstream,
        exchange::{Begun, Exchange},
    },
    worker::Worker,
};

/// Answers a request by asking the application of its route.
pub async fn answer(
    worker: &Rc<Worker>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    found: &Match<'_, '_>,
    config: &config::Upstream,
) -> Result<Answer, Fault> {
    let path = &head.target.path;
    let script = route::script(config, &found.route.path, path).map_err(super::refused)?;
    let upstream = worker.server.upstream(found.route);
    let upstream = upstream.ok_or_else(|| Fault::Internal("a route has no upstream".into()))?;
    request.body.limit(config.options.max_body)?;
    let mut ask = Ask {
        worker,
        request,
        head,
        config,
        upstream,
        script,
    };
    ask.answer().await
}

/// One request about to be passed on.
struct Ask<'a, 'r, 'c> {
    worker: &'a Rc<Worker>,
    request: &'a mut Request<'r>,
    head: &'a Rc<Head>,
    config: &'c config::Upstream,
    upstream: &'c std::sync::Arc<Upstream>,
    script: Script<'a>,
}

impl Ask<'_, '_, '_> {
    async fn answer(&mut self) -> Result<Answer, Fault> {
        let (file, length) = self.body().await?;
        let lease = wait_for(self.request, self.upstream.lease()).await?;
        // What may be said twice is worth trying on a connection that was kept: it may be closed by now.
        let kept = match self.may_repeat() {
            true => lease.kept().map(Sock::new),
            false => None,
        };
        let mut exchange = match kept {
            Some(conn) => self.begin(conn, true, lease, length)?,
            None => self.connect(lease, length).await?.with_file(file),
        };
        while exchange.may_be_stale() {
            exchange.turn(self.request.input, self.request.body).await?;
        }
        if exchange.is_stale() {
            let lease = wait_for(self.request, self.upstream.lease()).await?;
            exchange = self.connect(lease, length).await?;
        }
        let answering = Answering {
            source: self.source(),
            nph: false,
            options: &self.config.options,
            handover: &self.config.handover,
            head: self.head,
            request: self.request,
        };
        let running = Speaker::Exchange(Box::new(exchange));
        answering.reply(running).await
    }

    /// Takes in the body where its length must be known before anything is sent: the file, and the length.
    async fn body(&mut self) -> Result<(Option<OwnedFd>, Option<u64>), Fault> {
        let unknown = self.config.protocol == Protocol::Scgi && self.head.body == BodyLen::Chunked;
        let wanted = self.config.options.body == BodyMode::File || unknown;
        match self.head.body {
            BodyLen::None => Ok((None, None)),
            _ if wanted => {
                let (file, length) = spool::spool(self.request).await?;
                Ok((Some(file), Some(length)))
            }
            BodyLen::Length(n) => Ok((None, Some(n))),
            BodyLen::Chunked => Ok((None, None)),
        }
    }

    /// Whether the request may be sent again without harm (RFC 9110, 9.2.2), as far as nothing of its body is
    /// used up.
    fn may_repeat(&self) -> bool {
        let idempotent = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"];
        let idempotent = idempotent.contains(&self.head.method.as_str());
        idempotent && self.head.body.is_empty() && self.config.protocol == Protocol::Fastcgi
    }

    /// Asks on a new connection.
    async fn connect(&mut self, mut lease: Lease, length: Option<u64>) -> Result<Exchange, Fault> {
        let connected = async { lease.connect().await.map_err(Unreachable::fault) };
        let conn = wait_for(self.request, connected).await?;
        self.begin(conn, false, lease, length)
    }

    fn begin(
        &self,
        conn: Sock,
        kept: bool,
        lease: Lease,
        length: Option<u64>,
    ) -> Result<Exchange, Fault> {
        let options = &self.config.options;
        let begun = Begun {
            conn,
            kept,
            lease,
            clocks: Clocks::start(options, "the connection to the application was closed"),
            max_stderr: options.max_stderr,
            source: self.source(),
        };
        match self.config.protocol {
            Protocol::Fastcgi => {
                let keep = self.upstream.keeps();
                Exchange::fastcgi(begun, keep, |params| self.variables(length, params))
            }
            Protocol::Scgi => {
                let mut request = scgi::Request::new(length.unwrap_or(0));
                self.variables(length, &mut request)?;
                Ok(Exchange::scgi(begun, request.finish()))
            }
        }
    }

    fn variables(&self, length: Option<u64>, sink: &mut impl Sink) -> Result<(), Fault> {
        let folder = self.config.document_root.as_ref();
        let known = Known {
            script_name: self.script.script_name,
            path_info: self.script.path_info,
            path_translated: self.script.path_translated.as_deref(),
            script_filename: &self.script.script_filename,
            document_root: folder.map_or(b"", |folder| folder.as_os_str().as_bytes()),
            env: &self.config.env,
            options: &self.config.options,
            content_length: length,
        };
        if variables::put(self.worker, self.request, self.head, &known, sink)?.shellshock > 0 {
            variables::warn_shellshock(&self.source());
        }
        Ok(())
    }

    fn source(&self) -> Source {
        let name = String::from_utf8_lossy(self.script.script_name);
        let log = self.worker.server.logs.error.clone();
        Source::new(log, self.request.id(), &name)
    }
}
