//! Fields of a certificate (RFC 5280).

use std::time::SystemTime;

use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::{DateTime, Decode},
    ext::pkix::AuthorityKeyIdentifier,
};

/// Names, dates and numbers of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The owner, as RFC 4514 writes it: `CN=example.org,O=Example`. May be empty.
    pub subject: String,
    /// The common name in the subject, if there is one.
    pub common_name: Option<String>,
    /// The signer, in the same notation.
    pub issuer: String,
    /// The issuer's number for this certificate, as in DER: the bytes of a signed number.
    pub serial: Vec<u8>,
    /// The issuer's key that signed the certificate (RFC 5280, 4.2.1.1), if the certificate names it.
    pub authority_key: Option<Vec<u8>>,
    /// Start of the validity.
    pub not_before: SystemTime,
    /// End of the validity.
    pub not_after: SystemTime,
}

impl Facts {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// A sentence: `der` is not a certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, String> {
        // Some certificates have numbers that RFC 5280 does not allow. `Raw` reads such numbers, so that other code can judge
        // them.
        let read = CertificateInner::<Raw>::from_der(der)
            .map_err(|e| format!("the certificate cannot be read: {e}"))?;
        let tbs = read.tbs_certificate();
        let key = tbs.get_extension::<AuthorityKeyIdentifier>();
        let key = key.ok().flatten().and_then(|(_, key)| key.key_identifier);
        let name = tbs.subject().common_name().ok().flatten();
        Ok(Self {
            subject: tbs.subject().to_string(),
            common_name: name.map(|name| name.value().into_owned()),
            issuer: tbs.issuer().to_string(),
            serial: tbs.serial_number().as_bytes().to_vec(),
            authority_key: key.map(|key| key.as_bytes().to_vec()),
            not_before: tbs.validity().not_before.to_system_time(),
            not_after: tbs.validity().not_after.to_system_time(),
        })
    }

    /// Returns why no client accepts the certificate at that moment, as a sentence; `None` if the certificate is valid then.
    pub fn validity_problem(&self, now: SystemTime) -> Option<String> {
        if now > self.not_after {
            Some(format!("it expired on {}", format_date(self.not_after)))
        } else if now < self.not_before {
            let begins = format_date(self.not_before);
            Some(format!(
                "it is not valid before {begins}: is the clock right?"
            ))
        } else {
            None
        }
    }
}

/// Formats a moment as OpenSSL does: `Nov 22 20:36:02 2026 GMT`.
pub(super) fn openssl_date(at: SystemTime) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let Ok(at) = DateTime::from_system_time(at) else {
        return String::new();
    };
    let month = MONTHS[usize::from(at.month().saturating_sub(1)) % MONTHS.len()];
    let (day, year) = (at.day(), at.year());
    let (hour, minute, second) = (at.hour(), at.minutes(), at.seconds());
    format!("{month} {day:>2} {hour:02}:{minute:02}:{second:02} {year} GMT")
}

/// Formats a moment as `2026-11-22T20:36:02Z`.
pub fn format_date(at: SystemTime) -> String {
    DateTime::from_system_time(at).map_or_else(|_| "another age".into(), |at| at.to_string())
}
