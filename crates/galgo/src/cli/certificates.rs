//! The certificates that clients get, as `galgo check` lists them.

use std::time::SystemTime;

use galgo_io::tls::Certificate;

use crate::{
    certificates::store::{days_left, load_stored},
    config::Config,
    programs::Severity,
};

/// A line about a certificate.
pub(super) struct SeenCertificate {
    pub(super) verdict: Severity,
    pub(super) of: String,
    pub(super) says: String,
}

/// Returns a line for each certificate.
pub(super) fn describe_certificates(config: &Config) -> Vec<SeenCertificate> {
    let files = config.tls.certificates.iter();
    let files = files.map(|one| SeenCertificate {
        verdict: Severity::Fine,
        of: format!("certificate {}", one.chain.display()),
        says: describe_certificate(&one.certificate),
    });
    let automatic = config.tls.automatic.iter().flat_map(|automatic| {
        let becomes = config.identity.as_ref();
        automatic.hosts.iter().map(move |host| {
            let (verdict, says) = match load_stored(automatic, becomes, host) {
                Ok(Some(one)) => match one.facts().validity_problem(SystemTime::now()) {
                    Some(why) => (Severity::Warns, why),
                    None => (Severity::Fine, describe_certificate(&one)),
                },
                Ok(None) => {
                    let words = "not issued yet: the server orders it when it runs";
                    (Severity::Note, words.to_owned())
                }
                Err(why) => (Severity::Warns, why),
            };
            let of = format!("certificate of {host}");
            SeenCertificate { verdict, of, says }
        })
    });
    files.chain(automatic).collect()
}

fn describe_certificate(certificate: &Certificate) -> String {
    let days = days_left(certificate, SystemTime::now());
    let s = if days == 1 { "" } else { "s" };
    let (names, issuer) = (certificate.host_names(), &certificate.facts().issuer);
    format!(
        "for {}, by {issuer}, valid for {days} day{s}",
        names.join(", ")
    )
}
