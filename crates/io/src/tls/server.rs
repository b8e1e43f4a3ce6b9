//! What is agreed upon with clients.

use std::sync::Arc;

use rustls::{ServerConfig, crypto::aws_lc_rs};

use super::{
    clients::{ClientCertificate, Clients},
    provider::provider,
    shown::{ACME, Shown},
};

/// HTTP/2 as ALPN names it (RFC 9113, 3.2).
pub const H2: &[u8] = b"h2";

/// What is agreed upon with clients: certificates, and the keys of session tickets.
#[derive(Debug, Clone)]
pub struct TlsServer {
    pub(super) config: Arc<ServerConfig>,
    shown: Arc<Shown>,
    pub(super) clients: Option<Clients>,
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
    /// Whether it was asked for a certificate.
    pub asked: bool,
    /// The certificate of the client, where it has shown one.
    pub client: Option<ClientCertificate>,
    /// The user that this names.
    pub user: Option<String>,
}

impl TlsServer {
    /// A server that shows what `shown` says at the time, and asks `clients` for their certificates; `None`: it does not.
    /// Tickets of `before` are taken by it, too, if that asked the same: clients go on with their sessions when the
    /// configuration is read again.
    ///
    /// # Errors
    /// The system has no random numbers for the keys of tickets.
    pub fn new(
        shown: Arc<Shown>,
        clients: Option<Clients>,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let failed = |e: rustls::Error| e.to_string();
        let tickets = match before {
            // Whoever goes on with a session is not asked again.
            Some(before) if before.clients == clients => before.config.ticketer.clone(),
            // Their keys change every six hours and are taken for twelve.
            _ => aws_lc_rs::Ticketer::new().map_err(failed)?,
        };
        let builder = ServerConfig::builder_with_provider(provider().clone());
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(clients.verifier()?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(shown.clone());
        config.ticketer = tickets;
        // The strongest that the client has, whatever it names first.
        config.ignore_client_order = true;
        config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        if shown.is_automatic() {
            config.alpn_protocols.push(ACME.to_vec());
        }
        Ok(Self {
            config: Arc::new(config),
            shown,
            clients,
        })
    }

    /// What clients are shown.
    pub fn shown(&self) -> &Arc<Shown> {
        &self.shown
    }
}
