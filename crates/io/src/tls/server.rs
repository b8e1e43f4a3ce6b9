//! What is agreed upon with clients.

use std::{fmt, sync::Arc};

use rustls::{ServerConfig, crypto::aws_lc_rs, server::ProducesTickets};

use super::{certificates::Certificates, provider::provider};

/// HTTP/2 as ALPN names it (RFC 9113, 3.2).
pub(crate) const H2: &[u8] = b"h2";

/// What is agreed upon with clients: certificates, and the keys of session tickets.
#[derive(Clone)]
pub struct Server {
    pub(super) config: Arc<ServerConfig>,
}

/// What a client and the server have agreed upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// `TLSv1.3` or `TLSv1.2`.
    pub protocol: &'static str,
    /// The name of the cipher suite as IANA has it: `TLS_AES_256_GCM_SHA384`.
    pub cipher: String,
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
}

/// Keys of tickets, which change every six hours and are taken for twelve.
fn tickets() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    aws_lc_rs::Ticketer::new()
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tls::Server")
    }
}
