//! Applications that keep running: FastCGI and SCGI, as responders and as authorizers.
//!
//! 1. Take in the body if its length must be known first, else its beginning
//! 2. Wait for a lease
//! 3. Connect, or take an idle connection
//! 4. Relay the response: see `reply`

use std::{os::unix::ffi::OsStrExt, rc::Rc, sync::Arc};

use galgo_io::sock::Sock;
use galgo_proto::{
    fcgi::Role,
    h1::{BodyLen, Head},
    scgi,
    vars::Sink,
};
use galgo_service::{fault::Fault, log::LogSource, request::Request, spool::Stored};

use crate::{
    application_settings::{Application, Protocol},
    backend::Backend,
    before_reply::{await_first_byte, may_repeat, wait_for},
    body_spool,
    context::{Answer, Context},
    relay::clock::Clocks,
    reply::Answering,
    script::UpstreamScript,
    upstream::{
        Upstream, UpstreamLease,
        exchange::{Exchange, ExchangeLease, ExchangeStart},
    },
    variables::{self, Judged, ScriptVars},
};

/// Answers a request by asking the application of its route for `script`.
///
/// Not an `async fn`: its future would hold the script twice, as an argument and inside of `Ask`.
pub fn answer<'a>(
    cx: Context<'a>,
    request: &'a mut Request<'_>,
    head: &'a Rc<Head>,
    script: UpstreamScript<'a>,
    (config, upstream): (&'a Application, &'a Arc<Upstream>),
) -> impl Future<Output = Result<Answer, Fault>> {
    let mut ask = Ask::new(cx, request, head, (config, upstream), script);
    async move {
        ask.request.client.limit_body(config.options.max_body)?;
        let exchange = ask.send_request().await?;
        ask.into_answering()
            .read_reply(Backend::Exchange(exchange))
            .await
    }
}

/// Asks the authorizer of a route. `Ok(None)`: the request may be answered.
///
/// # Errors
/// The authorizer could not be asked, or has answered wrongly. The request is then refused.
pub async fn authorize(
    cx: Context<'_>,
    request: &mut Request<'_>,
    head: &Rc<Head>,
    (authorizer, upstream): (&Application, &Arc<Upstream>),
) -> Result<Option<Answer>, Fault> {
    let no_script = UpstreamScript::default();
    let mut ask = Ask::new(cx, request, head, (authorizer, upstream), no_script);
    let exchange = ask.send_request().await?;
    ask.into_answering()
        .judge_reply(Backend::Exchange(exchange), 200..=200)
        .await
}

struct Ask<'a, 'r, 'c> {
    cx: Context<'a>,
    request: &'a mut Request<'r>,
    head: &'a Rc<Head>,
    config: &'c Application,
    upstream: &'c Arc<Upstream>,
    script: UpstreamScript<'a>,
    /// Names the script in the log.
    source: LogSource,
}

impl<'a, 'r, 'c> Ask<'a, 'r, 'c> {
    fn new(
        cx: Context<'a>,
        request: &'a mut Request<'r>,
        head: &'a Rc<Head>,
        (config, upstream): (&'c Application, &'c Arc<Upstream>),
        script: UpstreamScript<'a>,
    ) -> Self
    where
        'a: 'c,
    {
        let name = match config.role {
            Role::AUTHORIZER => "authorizer".into(),
            _ => String::from_utf8_lossy(&script.script_name),
        };
        let source = LogSource::new(cx.resources.errors.clone(), request.id(), &name);
        Self {
            cx,
            request,
            head,
            config,
            upstream,
            script,
            source,
        }
    }

    /// Sends the request to the application. Returns the exchange that will answer.
    async fn send_request(&mut self) -> Result<Box<Exchange>, Fault> {
        let (file, length) = self.prepare_body().await?;
        let lease = self.acquire_lease().await?;
        // An idle connection may be closed by now, so only a repeatable request tries it.
        let idle = if self.may_repeat() {
            lease.idle_connection()
        } else {
            None
        };
        let exchange = match idle {
            Some(conn) => self.begin_exchange(conn, true, lease, (file, length))?,
            // Boxed, here and below: nearly every request finds a connection, and needs no room for making one.
            None => Box::pin(self.connect(lease, (file, length))).await?,
        };
        if let Some(exchange) = await_first_byte(self.request, exchange).await? {
            return Ok(exchange);
        }
        let lease = self.acquire_lease().await?;
        // Only a request without a body is asked again.
        Box::pin(self.connect(lease, (None, length))).await
    }

    /// Returns the next stage, which makes a response of the application's answer.
    fn into_answering(self) -> Answering<'a, 'r, 'c>
    where
        'a: 'c,
    {
        Answering {
            cx: self.cx,
            source: self.source,
            nph: false,
            upgrades: false,
            options: &self.config.options,
            sendfile: &self.config.sendfile,
            head: self.head,
            request: self.request,
        }
    }

    /// Returns whether the request is sent without a body. An authorizer gets no body. The request of a local
    /// redirect has no body, even if the original request had one.
    fn is_bodiless(&self) -> bool {
        self.config.role == Role::AUTHORIZER || self.head.body.is_empty()
    }

    /// Takes in the body if its length must be known before anything is sent. Returns the file and the length.
    async fn prepare_body(&mut self) -> Result<(Option<Stored>, Option<u64>), Fault> {
        if self.is_bodiless() {
            return Ok((None, None));
        }
        // SCGI sends the length first, in a netstring.
        let unknown = self.config.protocol == Protocol::Scgi && self.head.body == BodyLen::Chunked;
        let options = &self.config.options;
        if unknown || options.receives_first(self.head.body) {
            let patience = options.idle_timeout;
            let stored = body_spool::store_body(&self.cx.shared.spool, self.request, patience);
            let file = Box::pin(stored).await?;
            let length = file.len();
            return Ok((Some(file), Some(length)));
        }
        Box::pin(self.request.client.wait_until_body_ready()).await?;
        match self.head.body {
            BodyLen::Length(n) => Ok((None, Some(n))),
            BodyLen::None | BodyLen::Chunked => Ok((None, None)),
        }
    }

    /// Returns whether the request may be sent again, because no part of its body is used up.
    fn may_repeat(&self) -> bool {
        may_repeat(self.head) && self.is_bodiless() && self.config.protocol == Protocol::Fastcgi
    }

    async fn acquire_lease(&mut self) -> Result<UpstreamLease, Fault> {
        let peer = self.request.peer();
        let lease = self.upstream.acquire_lease(self.cx.resources.index, peer);
        let lease = wait_for(self.request, lease).await?;
        self.request.note_permit(lease.holding());
        Ok(lease)
    }

    async fn connect(
        &mut self,
        mut lease: UpstreamLease,
        body: (Option<Stored>, Option<u64>),
    ) -> Result<Box<Exchange>, Fault> {
        let conn = wait_for(self.request, lease.connect()).await?;
        self.begin_exchange(conn, false, lease, body)
    }

    fn begin_exchange(
        &self,
        conn: Sock,
        idle: bool,
        lease: UpstreamLease,
        (file, length): (Option<Stored>, Option<u64>),
    ) -> Result<Box<Exchange>, Fault> {
        let options = &self.config.options;
        let start = ExchangeStart {
            conn,
            again: idle,
            lease: ExchangeLease::Application(lease),
            clocks: Clocks::start(options, "the connection to the application was closed"),
            max_stderr: options.max_stderr,
            source: self.source.clone(),
            file,
            bodiless: self.is_bodiless(),
            run_to_completion: false,
        };
        Ok(match self.config.protocol {
            Protocol::Fastcgi => {
                let (role, keep) = (self.config.role, self.upstream.keeps_connections());
                Exchange::over_fastcgi(start, role, keep, |params| self.variables(length, params))?
            }
            Protocol::Scgi => {
                let mut request = scgi::ScgiRequest::new(length.unwrap_or(0));
                self.variables(length, &mut request)?;
                Exchange::over_scgi(start, request.finish())
            }
        })
    }

    fn variables(&self, length: Option<u64>, sink: &mut impl Sink) -> Result<(), Fault> {
        let folder = self.config.document_root.as_ref();
        let known = ScriptVars {
            shared: self.cx.shared,
            script_name: &self.script.script_name,
            path_info: self.script.path_info,
            path_translated: self.script.path_translated.as_deref(),
            script_filename: &self.script.script_filename,
            document_root: folder.map_or(b"", |folder| folder.as_os_str().as_bytes()),
            env: &self.config.env,
            options: &self.config.options,
            content_length: length,
            upgrade: false,
        };
        let request = &*self.request;
        let dropped = match self.config.role {
            Role::AUTHORIZER => variables::put_variables(
                request,
                self.head,
                &known,
                &mut Judged::from_head(self.head, sink),
            ),
            _ => variables::put_variables(request, self.head, &known, sink),
        };
        if dropped?.shellshock > 0 {
            variables::warn_shellshock(&self.source);
        }
        Ok(())
    }
}
