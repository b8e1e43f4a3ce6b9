//! The configuration of certificates.

use std::path::{Path, PathBuf};

use galgo_io::tls::Certificate;
use galgo_spawn::FileId;

/// `automatic`: certificates that the server obtains itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Automatic {
    /// The hosts, in lower case; each has its own certificate.
    pub hosts: Vec<String>,
    /// A `mailto:` URL at which the authority reaches the operator.
    pub contact: Option<String>,
    /// The URL of the authority's directory (RFC 8555, 7.1.1).
    pub authority: String,
    /// The file of the certificate by which the authority's own certificate is trusted. `None`: the system's
    /// certificates.
    pub authority_ca: Option<PathBuf>,
    /// The folder for the account and the certificates. `None`: the system's usual folder for state.
    pub state: Option<PathBuf>,
}

impl Automatic {
    /// Returns the settings for these hosts, with the defaults of all else.
    pub fn for_hosts(hosts: Vec<String>) -> Self {
        Self {
            hosts,
            contact: None,
            authority: LETS_ENCRYPT.into(),
            authority_ca: None,
            state: None,
        }
    }
}

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Returns a host in lower case, if an authority may sign a certificate for it with the proofs that a server can
/// give.
///
/// # Errors
/// The problem, worded to follow the host's name.
pub fn public_host(typed: &str) -> Result<String, &'static str> {
    let host = typed.to_ascii_lowercase();
    if host.starts_with("*.") {
        return Err("needs a DNS challenge, which galgo does not support: name each host");
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        return Err("is an IP address: write a host name");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.len() <= 253 && host.split('.').all(label) {
        Ok(host)
    } else {
        Err("is not a host name: write it as in \"www.example.org\" (punycode: \"xn--…\")")
    }
}

/// A certificate as the server read it from files.
#[derive(Debug, Clone)]
pub struct FromFiles {
    /// The file of the chain.
    pub chain: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
    /// The version of these files.
    pub version: FilesVersion,
    /// The certificate that was read.
    pub certificate: Certificate,
}

/// The files of a chain and of a key at one moment. `None`: the file is missing, or cannot be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesVersion([Option<FileId>; 2]);

impl FilesVersion {
    /// Returns the current version of the files, at the end of any links.
    pub fn from_files(chain: &Path, key: &Path) -> Self {
        Self([chain, key].map(|file| Some(FileId::from_stat(&rustix::fs::stat(file).ok()?))))
    }
}
