//! The server's side of TLS: its configuration, and the result of a handshake.

use std::sync::Arc;

use rustls::{ServerConfig, crypto::aws_lc_rs};

use super::{
    clients::{ClientCertificate, Clients},
    provider::provider,
    shown::{ACME, Shown},
};

/// The name of HTTP/2 in ALPN (RFC 9113, 3.2).
pub const H2: &[u8] = b"h2";

/// The server's configuration for handshakes: certificates, and the keys of session tickets.
#[derive(Debug, Clone)]
pub struct TlsServer {
    pub(super) config: Arc<ServerConfig>,
    shown: Arc<Shown>,
    pub(super) clients: Option<Clients>,
}

/// Result of a handshake with a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// `TLSv1.3` or `TLSv1.2`.
    pub protocol: &'static str,
    /// The name of the cipher suite in IANA's registry: `TLS_AES_256_GCM_SHA384`.
    pub cipher: String,
    /// The host that the client asked for (SNI), if it named one.
    pub server_name: Option<String>,
    /// Whether the server asked the client for a certificate.
    pub asked: bool,
    /// The client's certificate, if it has shown one.
    pub client: Option<ClientCertificate>,
    /// The user that the client's certificate names.
    pub user: Option<String>,
}

impl TlsServer {
    /// Creates a server that shows the certificates that `shown` has at the time of each handshake. With `clients`, it asks
    /// clients for certificates. It also accepts the tickets of `before`, if `before` asked clients for the same. So clients
    /// can resume their sessions after the configuration was read again.
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
            // A client that resumes a session is not asked for its certificate again.
            Some(before) if before.clients == clients => before.config.ticketer.clone(),
            // The keys of tickets change every six hours; tickets are accepted for twelve.
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
        // Choose the strongest cipher suite that the client has, whichever suite the client names first.
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

    /// Returns the certificates that clients are shown.
    pub fn shown_certificates(&self) -> &Arc<Shown> {
        &self.shown
    }
}
