//! The certificates that clients get, as `galgo check` lists them.

use std::time::SystemTime;

use galgo_io::tls::Certificate;

use crate::{
    certificates::store::{days_left, stored},
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
pub(super) fn seen(config: &Config) -> Vec<SeenCertificate> {
    let files = config.tls.certificates.iter();
    let files = files.map(|one| SeenCertificate {
        verdict: Severity::Fine,
        of: format!("certificate {}", one.chain.display()),
        says: says(&one.certificate),
    });
    let automatic = config.tls.automatic.iter().flat_map(|automatic| {
        let becomes = config.identity.as_ref();
        automatic.hosts.iter().map(move |host| {
            let (verdict, says) = match stored(automatic, becomes, host) {
                Ok(Some(one)) => match one.facts().out_of_date(SystemTime::now()) {
                    Some(why) => (Severity::Warns, why),
                    None => (Severity::Fine, says(&one)),
                },
                Ok(None) => {
                    let words = "comes when the server runs: there is none yet";
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

fn says(certificate: &Certificate) -> String {
    let days = days_left(certificate, SystemTime::now());
    let s = if days == 1 { "" } else { "s" };
    let (names, issuer) = (certificate.names(), &certificate.facts().issuer);
    format!(
        "for {}, by {issuer}, valid for {days} day{s}",
        names.join(", ")
    )
}
