//! Certificates with their chains and keys, and the hosts that each certificate is for.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use webpki::EndEntityCert;

use super::{facts::Facts, provider::provider};

/// A certificate with its chain and its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// Names of hosts for which the certificate is valid, in lower case: `example.org`, `*.example.org`.
    names: Vec<String>,
    facts: Facts,
}

/// The certificates of a server, by the names of hosts.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// For a client that names no host, or a host without a certificate.
    pub(super) default: Option<Arc<CertifiedKey>>,
}

impl Certificate {
    /// Reads a chain and a key in PEM (RFC 7468). The first certificate of the chain is the server's own; its signers follow.
    ///
    /// # Errors
    /// A sentence: the PEM cannot be read, or the key belongs to another certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain = read_chain(chain)?;
        // INVARIANT: a chain that was read has a certificate.
        let own = chain.first().ok_or("the file holds no certificate")?;
        let facts = Facts::from_der(own)?;
        let end = EndEntityCert::try_from(own)
            .map_err(|e| format!("the certificate cannot be read: {e}"))?;
        let names: Vec<_> = end.valid_dns_names().map(str::to_ascii_lowercase).collect();
        let key = read_key(key)?;
        let certified = CertifiedKey::from_der(chain.clone(), key.clone_key(), provider());
        let key = certified.map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => explain_wrong_key(&chain[1..], &key),
            e => format!("the key cannot be used: {e}"),
        })?;
        Ok(Self {
            key: Arc::new(key),
            names,
            facts,
        })
    }

    /// Returns the names of the hosts for which the certificate is valid.
    pub fn host_names(&self) -> &[String] {
        &self.names
    }

    /// Returns the owner, the signer and the dates of the certificate.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the reasons why clients will hardly accept the certificate at that moment, each as a sentence.
    pub fn doubts(&self, now: SystemTime) -> Vec<String> {
        let mut doubts = Vec::new();
        doubts.extend(self.facts.validity_problem(now));
        if self.names.is_empty() {
            let words = "it names no host (Subject Alternative Name): browsers reject it";
            doubts.push(words.to_owned());
        }
        let facts = self.key.cert.iter().map(|one| Facts::from_der(one));
        let chain: Vec<_> = facts.map_while(Result::ok).collect();
        let apart = chain
            .windows(2)
            .position(|two| two[0].issuer != two[1].subject);
        if let Some(at) = apart {
            // RFC 5246, 7.4.2: after each certificate comes its signer's certificate.
            doubts.push(format!(
                "its chain is in the wrong order: certificate {} was signed by {:?}, but the next certificate is {:?}",
                at + 1, chain[at].issuer, chain[at + 1].subject
            ));
        }
        doubts
    }
}

fn read_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("the certificate is not PEM: {e}"))?;
    if !chain.is_empty() {
        return Ok(chain);
    }
    Err(match () {
        () if pem.trim_ascii().is_empty() => "the file of the certificate is empty",
        () if PrivateKeyDer::from_pem_slice(pem).is_ok() => {
            "the file of the certificate holds a key: are `certificate` and `key` swapped?"
        }
        () => {
            "the file holds no certificate: a certificate begins with -----BEGIN CERTIFICATE-----"
        }
    }
    .into())
}

fn read_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let has = |text: &[u8]| pem.windows(text.len()).any(|part| part == text);
    if has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED") {
        return Err(
            "the key is encrypted, and galgo cannot ask for a passphrase: store the key without one (openssl pkey -in KEY -out NEW)"
                .into(),
        );
    }
    if pem.trim_ascii().is_empty() {
        return Err("the file of the key is empty".into());
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|e| format!("the key cannot be read: {e}"))
}

/// Explains a key that does not fit the first certificate.
fn explain_wrong_key(behind: &[CertificateDer<'static>], key: &PrivateKeyDer<'static>) -> String {
    let is = |one: &CertificateDer<'static>| {
        CertifiedKey::from_der(vec![one.clone()], key.clone_key(), provider()).is_ok()
    };
    if behind.iter().any(is) {
        "the chain is in the wrong order: the certificate of the key comes first, then its signers"
    } else {
        "the key belongs to another certificate"
    }
    .into()
}

impl Certificates {
    /// Creates the table of a server. The first certificate is shown if no name fits. If two certificates are for the same
    /// name, the first counts.
    pub(super) fn new(all: &[Certificate]) -> Self {
        let mut by_name = HashMap::new();
        for one in all {
            for name in &one.names {
                by_name
                    .entry(name.clone())
                    .or_insert_with(|| one.key.clone());
            }
        }
        let default = all.first().map(|one| one.key.clone());
        Self { by_name, default }
    }

    /// Returns the certificate for a host, given in lower case: its own, else the wildcard of its domain, which covers names
    /// one label below the domain (RFC 6125, 6.4.3).
    pub(super) fn find_for_host(&self, host: &str) -> Option<&Arc<CertifiedKey>> {
        self.by_name.get(host).or_else(|| {
            let (_, domain) = host.split_once('.')?;
            self.by_name.get(&format!("*.{domain}"))
        })
    }
}
