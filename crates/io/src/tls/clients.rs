//! Certificates of clients.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{
    facts::{self, Facts},
    provider::provider,
};

/// The authorities of client certificates, and the use that is made of the certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    authorities: Vec<CertificateDer<'static>>,
    /// Whether a client without a certificate gets no further than the handshake.
    pub required: bool,
    /// The part of a certificate that names the user; `None`: no part does.
    pub user: Option<UserIs>,
}

/// The part of a certificate that names the user (REMOTE_USER).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserIs {
    /// The common name of the certificate's subject.
    CommonName,
    /// The whole subject.
    Subject,
}

/// A certificate that a client has shown, and proved to be its own, in the form in which programs get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The owner, as RFC 4514 writes it: `CN=ada,O=Example`.
    pub subject: String,
    /// The common name in the subject, if there is one.
    pub common_name: Option<String>,
    /// The authority that signed the certificate.
    pub issuer: String,
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// Start of the certificate's validity: `Nov 22 20:36:02 2026 GMT`.
    pub start: String,
    /// End of the certificate's validity.
    pub end: String,
}

impl Clients {
    /// Reads the certificates of authorities, in PEM.
    ///
    /// # Errors
    /// A sentence: there is no certificate, or the server cannot use it.
    pub fn from_pem(pem: &[u8], required: bool, user: Option<UserIs>) -> Result<Self, String> {
        let authorities = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let clients = Self {
            authorities: authorities.map_err(|e| format!("is not PEM: {e}"))?,
            required,
            user,
        };
        clients.verifier().map(|_| clients)
    }

    pub(super) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let mut roots = RootCertStore::empty();
        for one in &self.authorities {
            let added = roots.add(one.clone());
            added.map_err(|e| format!("holds an unusable certificate: {e}"))?;
        }
        if roots.is_empty() {
            return Err(
                "holds no certificate: a certificate begins with -----BEGIN CERTIFICATE-----"
                    .into(),
            );
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider().clone());
        let builder = if self.required {
            builder
        } else {
            builder.allow_unauthenticated()
        };
        builder.build().map_err(|e| e.to_string())
    }
}

impl ClientCertificate {
    /// Reads a certificate in DER; `None` if it cannot be read.
    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        let facts = Facts::from_der(der).ok()?;
        let serial = facts.serial.iter().map(|byte| format!("{byte:02X}"));
        let serial: String = serial.collect();
        Some(Self {
            common_name: facts.common_name.as_deref().map(printable),
            subject: printable(&facts.subject),
            issuer: printable(&facts.issuer),
            serial: match serial.strip_prefix("00") {
                // This byte is only the sign of the number: drop it.
                Some(digits) if !digits.is_empty() => digits.to_owned(),
                _ => serial,
            },
            start: facts::openssl_date(facts.not_before),
            end: facts::openssl_date(facts.not_after),
        })
    }

    /// Returns the user that the certificate names.
    pub(super) fn user_name(&self, is: UserIs) -> Option<&str> {
        let user = match is {
            UserIs::CommonName => self.common_name.as_deref()?,
            UserIs::Subject => &self.subject,
        };
        (!user.is_empty()).then_some(user)
    }
}

/// Escapes control characters as RFC 4514 does, because variables can hold neither NUL nor a line's end.
fn printable(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            c.encode_utf8(&mut [0; 4])
                .bytes()
                .for_each(|byte| printed.push_str(&format!("\\{byte:02X}")))
        } else {
            printed.push(c)
        }
    }
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, want) in [
            ("CN=ada", "CN=ada"),
            ("a\0b\n", "a\\00b\\0A"),
            ("\u{85}ü", "\\C2\\85ü"),
        ] {
            assert_eq!(printable(text), want);
        }
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        for (pem, want) in [
            ("", "holds no certificate"),
            ("-----BEGIN CERTIFICATE-----\n", "is not PEM"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "unusable",
            ),
        ] {
            let error = Clients::from_pem(pem.as_bytes(), true, None).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
