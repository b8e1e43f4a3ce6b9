//! The certificates of a server, and which of them a client is shown.

use std::{collections::HashMap, sync::Arc};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use webpki::EndEntityCert;

use super::provider::provider;

/// A certificate with its chain and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// The names that it is valid for, lower case: `example.org`, `*.example.org`.
    names: Vec<String>,
}

/// The certificates of a server, by the names of hosts.
#[derive(Debug)]
pub struct Certificates {
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// For a client that names no host, or one that has none.
    default: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads a chain and a key in PEM (RFC 7468): the chain's first certificate is the server's own, what signed it follows.
    ///
    /// # Errors
    /// In words: nothing can be read, the key is that of another certificate, or no host is named.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("the certificate is no PEM: {e}"))?;
        let Some(own) = chain.first() else {
            return Err(
                "there is no certificate in it: it begins with -----BEGIN CERTIFICATE-----".into(),
            );
        };
        let end = EndEntityCert::try_from(own)
            .map_err(|e| format!("the certificate cannot be read: {e}"))?;
        let names: Vec<_> = end.valid_dns_names().map(str::to_ascii_lowercase).collect();
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| format!("the key cannot be read: {e}"))?;
        let key = CertifiedKey::from_der(chain, key, provider()).map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => {
                "the key is that of another certificate".to_owned()
            }
            e => e.to_string(),
        })?;
        Ok(Self {
            key: Arc::new(key),
            names,
        })
    }

    /// The names of hosts that it is valid for.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl Certificates {
    /// Those of a server; the first is shown where no name fits. Of two for one name the first counts. `None`: there are none.
    pub fn new(all: &[Certificate]) -> Option<Self> {
        let mut by_name = HashMap::new();
        for one in all {
            for name in &one.names {
                by_name
                    .entry(name.clone())
                    .or_insert_with(|| one.key.clone());
            }
        }
        let default = all.first()?.key.clone();
        Some(Self { by_name, default })
    }

    /// The certificate for a host: its own, else one for all names one label below its domain (RFC 6125, 6.4.3).
    pub(super) fn of(&self, host: &str) -> Option<&Arc<CertifiedKey>> {
        let host = host.to_ascii_lowercase();
        self.by_name.get(&host).or_else(|| {
            let (_, domain) = host.split_once('.')?;
            self.by_name.get(&format!("*.{domain}"))
        })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|host| self.of(host));
        Some(named.unwrap_or(&self.default).clone())
    }
}
