//! Which certificate a client is shown. It may become another one while the server runs.

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

/// The protocol of those who make sure that a host is ours (RFC 8737, 3): nothing else is spoken behind its handshake.
pub const ACME: &[u8] = b"acme-tls/1";

/// What clients are shown.
#[derive(Debug, Default)]
pub struct Shown {
    table: RwLock<Table>,
    /// One for all: an authority asks while the configuration is read again.
    proofs: Proofs,
}

#[derive(Debug, Default)]
struct Table {
    /// Those from files.
    files: Certificates,
    /// Those that come by themselves, by host in lower case; `None`: it has not come yet.
    automatic: HashMap<String, Option<Certificate>>,
}

/// Proofs that a host is ours, by host, while an authority asks for them.
type Proofs = Arc<RwLock<HashMap<String, Arc<CertifiedKey>>>>;

impl Shown {
    /// Certificates from files, of which the first is for clients that name no host or an unknown one, and `hosts` whose
    /// certificates come by themselves. Those that have come already are taken from `before`.
    pub fn new(files: &[Certificate], hosts: &[String], before: Option<&Self>) -> Self {
        let of = |host: &String| before.and_then(|before| before.of(host));
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

    /// Other certificates from files take the place of those that were.
    pub fn show_files(&self, files: &[Certificate]) {
        write(&self.table).files = Certificates::new(files);
    }

    /// The certificate of a host has come.
    pub fn show(&self, host: &str, certificate: Certificate) {
        let mut table = write(&self.table);
        if let Some(place) = table.automatic.get_mut(host) {
            *place = Some(certificate);
        }
    }

    /// The certificate of a host that has come by itself.
    pub fn of(&self, host: &str) -> Option<Certificate> {
        read(&self.table).automatic.get(host).cloned().flatten()
    }

    /// Whether there is a certificate for clients that ask for a host.
    pub fn has(&self, host: &str) -> bool {
        self.for_client(Some(host)).is_some()
    }

    /// Proves to those who ask for it by `ACME` that a host is ours; `digest` is that of the key authorization.
    ///
    /// # Errors
    /// In words: the proof could not be made.
    pub fn prove(&self, host: &str, digest: &[u8]) -> Result<(), String> {
        let proof = proof(host, digest).map_err(|e| format!("no proof for {host}: {e}"))?;
        write(&self.proofs).insert(host.to_owned(), proof);
        Ok(())
    }

    /// The authority does not ask any more.
    pub fn proven(&self, host: &str) {
        write(&self.proofs).remove(host);
    }

    /// Whether certificates come by themselves.
    pub(super) fn is_automatic(&self) -> bool {
        !read(&self.table).automatic.is_empty()
    }

    /// The certificate for a client that names that host, or none.
    pub(super) fn for_client(&self, host: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let table = read(&self.table);
        let host = host.map(str::to_ascii_lowercase);
        let host = host.as_deref();
        if let Some(automatic) = host.and_then(|host| table.automatic.get(host)) {
            // One for another host would be of no use to it, and shown as an attack.
            return automatic.as_ref().map(|one| one.key.clone());
        }
        let own = host.and_then(|host| table.files.of(host));
        let any = || table.automatic.values().flatten().next();
        let found = own.or(table.files.default.as_ref());
        found.cloned().or_else(|| Some(any()?.key.clone()))
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// A certificate that only says who asked for it (RFC 8737, 3).
fn proof(host: &str, digest: &[u8]) -> Result<Arc<CertifiedKey>, Box<dyn std::error::Error>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let chain = vec![params.self_signed(&key)?.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der())?;
    // Its extension is critical: only the authority that asked for it can read it.
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
            return read(&self.proofs).get(host?).cloned();
        }
        self.for_client(host)
    }
}
