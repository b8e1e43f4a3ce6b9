//! The certificates that clients are shown. They may change while the server runs.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::{
    pki_types::PrivateKeyDer,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::{
    certificates::{Certificate, Certificates},
    provider::provider,
};

/// The protocol of an authority that checks whether a host is ours (RFC 8737, 3). Nothing is spoken after its handshake.
pub const ACME: &[u8] = b"acme-tls/1";

/// The certificates that clients are shown.
#[derive(Debug, Default)]
pub struct Shown {
    table: RwLock<Table>,
    /// Shared with later configurations, because an authority may ask while the configuration is read again.
    proofs: Proofs,
}

#[derive(Debug, Default)]
struct Table {
    /// Certificates from files.
    files: Certificates,
    /// Certificates that are obtained automatically, by host in lower case; `None`: not obtained yet.
    automatic: HashMap<String, Option<Certificate>>,
}

/// Proofs that a host is ours, by host, for as long as an authority asks for them.
type Proofs = Arc<RwLock<HashMap<String, Arc<CertifiedKey>>>>;

impl Shown {
    /// Creates a table of certificates from files, and of `hosts` whose certificates are obtained automatically. A client that
    /// names no host or an unknown host is shown the first of `files`. Takes certificates that were already obtained from
    /// `before`.
    pub fn new(files: &[Certificate], hosts: &[String], before: Option<&Self>) -> Self {
        let of = |host: &String| before.and_then(|before| before.automatic_certificate(host));
        let automatic = hosts.iter().map(|host| (host.clone(), of(host))).collect();
        Self {
            table: RwLock::new(Table {
                files: Certificates::new(files),
                automatic,
            }),
            proofs: before
                .map(|before| before.proofs.clone())
                .unwrap_or_default(),
        }
    }

    /// Replaces the certificates from files.
    pub fn show_files(&self, files: &[Certificate]) {
        write_lock(&self.table).files = Certificates::new(files);
    }

    /// Stores the certificate of a host, which was obtained automatically.
    pub fn show_automatic(&self, host: &str, certificate: Certificate) {
        let mut table = write_lock(&self.table);
        if let Some(place) = table.automatic.get_mut(host) {
            *place = Some(certificate);
        }
    }

    /// Returns the automatic certificate of a host, if it was obtained.
    pub fn automatic_certificate(&self, host: &str) -> Option<Certificate> {
        read_lock(&self.table)
            .automatic
            .get(host)
            .cloned()
            .flatten()
    }

    /// Returns whether there is a certificate for clients that ask for this host.
    pub fn has_certificate(&self, host: &str) -> bool {
        self.for_client(Some(host)).is_some()
    }

    /// Proves by `ACME` that a host is ours, to any authority that asks. `digest` is the digest of the key authorization.
    ///
    /// # Errors
    /// A sentence: the proof could not be made.
    pub fn publish_proof(&self, host: &str, digest: &[u8]) -> Result<(), String> {
        let proof = create_proof(host, digest).map_err(|e| format!("no proof for {host}: {e}"))?;
        write_lock(&self.proofs).insert(host.to_owned(), proof);
        Ok(())
    }

    /// Removes the proof for a host, because the authority does not ask any more.
    pub fn remove_proof(&self, host: &str) {
        write_lock(&self.proofs).remove(host);
    }

    /// Returns whether any certificates are obtained automatically.
    pub(super) fn is_automatic(&self) -> bool {
        !read_lock(&self.table).automatic.is_empty()
    }

    /// Returns the certificate for a client that names this host, or no host.
    pub(super) fn for_client(&self, host: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let table = read_lock(&self.table);
        let host = host.map(str::to_ascii_lowercase);
        let host = host.as_deref();
        if let Some(automatic) = host.and_then(|host| table.automatic.get(host)) {
            // A certificate for another host would be useless to the client, which would report an attack.
            return automatic.as_ref().map(|one| one.key.clone());
        }
        let own = host.and_then(|host| table.files.find_for_host(host));
        let any = || table.automatic.values().flatten().next();
        let found = own.or(table.files.default.as_ref());
        found.cloned().or_else(|| Some(any()?.key.clone()))
    }
}

fn read_lock<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write_lock<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a certificate that only holds the answer to the authority's question (RFC 8737, 3).
fn create_proof(
    host: &str,
    digest: &[u8],
) -> Result<Arc<CertifiedKey>, Box<dyn std::error::Error>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let chain = vec![params.self_signed(&key)?.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    // The extension is critical, so only the authority that asked for it can read the certificate.
    let key = provider().key_provider.load_private_key(key)?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name();
        if hello
            .alpn()
            .is_some_and(|mut alpn| alpn.all(|one| one == ACME))
        {
            return read_lock(&self.proofs).get(host?).cloned();
        }
        self.for_client(host)
    }
}
