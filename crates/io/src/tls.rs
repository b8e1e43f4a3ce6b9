//! TLS (RFC 8446, RFC 5246) on a connection that was accepted: the session, and the certificates that servers show.
//!
//! rustls does the work, with AWS-LC for the arithmetic: of the maintained providers it is the fastest, and it alone
//! offers a key exchange that a quantum computer does not break (X25519MLKEM768) by default.

mod certificates;
mod session;

pub use certificates::{Certificate, Certificates};
pub(crate) use session::Session;

use std::{fmt, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::ProducesTickets,
};

/// HTTP/2 as ALPN names it (RFC 9113, 3.2).
pub(crate) const H2: &[u8] = b"h2";

/// What is agreed upon with clients: certificates, and the keys of session tickets.
#[derive(Clone)]
pub struct Server {
    config: Arc<ServerConfig>,
}

/// What a client and the server have agreed upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// `TLSv1.3` or `TLSv1.2`.
    pub protocol: &'static str,
    /// The name of the cipher suite as IANA has it: `TLS_AES_256_GCM_SHA384`.
    pub cipher: &'static str,
    /// The host that the client asked for (SNI), where it named one.
    pub server_name: Option<String>,
}

impl Server {
    /// A server that shows `certificates`. Tickets of `before` are taken by it, too: clients go on with their sessions when
    /// the configuration is read again.
    ///
    /// # Errors
    /// The system has no random numbers for the keys of tickets.
    pub fn new(certificates: Certificates, before: Option<&Self>) -> Result<Self, String> {
        let failed = |e: rustls::Error| e.to_string();
        let tickets = match before {
            Some(before) => before.config.ticketer.clone(),
            None => tickets().map_err(failed)?,
        };
        let builder = ServerConfig::builder_with_provider(provider().clone());
        let mut config = builder
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(certificates));
        config.ticketer = tickets;
        config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The same, without HTTP/2.
    #[must_use]
    pub fn without_h2(mut self) -> Self {
        let config = Arc::make_mut(&mut self.config);
        config.alpn_protocols.retain(|name| name != H2);
        self
    }
}

/// Keys of tickets, which change every six hours and are taken for twelve.
fn tickets() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    aws_lc_rs::Ticketer::new()
}

fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<CryptoProvider>> = std::sync::OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider()))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tls::Server")
    }
}
