//! `[tls]`: the certificates of `https://` listeners.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use galgo_io::tls::Certificate;

use super::{
    check::flag,
    checked::{Config, Speaks, Tls},
    error::{ConfigError, ConfigText},
    folder::unopened,
    raw::{self, RawCertificate, RawConfig},
};

type Checked<X> = Result<X, ConfigError>;

impl ConfigText<'_> {
    /// Reads all certificates and keys.
    pub(super) fn tls(&self, raw: &RawConfig, warnings: &mut Vec<String>) -> Checked<Tls> {
        let mut tls = Tls::default();
        let Some(table) = &raw.tls else {
            return Ok(tls);
        };
        tls.redirect = flag(&table.get_ref().redirect_to_https, false);
        let most = 2 * 365 * 24 * 3600 * 1000;
        let hsts = self.time(&table.get_ref().hsts, Duration::ZERO, 0, most)?;
        tls.hsts = (!hsts.is_zero()).then(|| format!("max-age={}", hsts.as_secs()));
        let first = (&table.get_ref().certificate, &table.get_ref().key);
        let list = table.get_ref().certificates.iter();
        let more = list.flat_map(|list| list.get_ref());
        let pairs = more.map(|RawCertificate { certificate, key }| (certificate, key));
        let named = first.0.is_some() || first.1.is_some();
        for (certificate, key) in named.then_some(first).into_iter().chain(pairs) {
            let (chain, key) = match (certificate, key) {
                (Some(chain), Some(key)) => (chain, key),
                (Some(at), None) => return Err(self.error(at.span(), "needs a `key` beside it")),
                (None, at) => {
                    let at = at.as_ref().map_or(table.span(), |key| key.span());
                    return Err(self.error(at, "needs a `certificate` beside it"));
                }
            };
            self.certificate(chain, key, &mut tls, warnings)?;
        }
        if tls.certificates.is_empty() && tls.unreadable.is_none() {
            let words = "names no certificate: add `certificate` and `key`, or delete the table";
            return Err(self.error(table.span(), words));
        }
        Ok(tls)
    }

    fn certificate(
        &self,
        chain: &raw::Text,
        key: &raw::Text,
        tls: &mut Tls,
        warnings: &mut Vec<String>,
    ) -> Checked<()> {
        let (chain_path, key_path) = (self.path(chain)?, self.path(key)?);
        let failed = |typed: &raw::Text, path: &Path, e: &io::Error| self.unopened(typed, path, e);
        let pem = fs::read(&chain_path).map_err(|e| failed(chain, &chain_path, &e))?;
        let secret = match fs::read(&key_path) {
            Ok(secret) => secret,
            // A server that was root at its start has read it then.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                tls.unreadable = Some(unopened(&key_path, &e).to_string());
                return Ok(());
            }
            Err(e) => return Err(failed(key, &key_path, &e)),
        };
        let read = Certificate::from_pem(&pem, &secret);
        let (file, key_file) = (chain_path.display(), key_path.display());
        let read =
            read.map_err(|e| self.error(chain.span(), format!("{file} with {key_file}: {e}")))?;
        if read.names().is_empty() {
            let words =
                format!("{file} names no host (Subject Alternative Name): no browser takes it");
            warnings.push(words);
        }
        if fs::metadata(&key_path).is_ok_and(|meta| meta.permissions().mode() & 0o007 != 0) {
            warnings.push(format!(
                "{key_file} can be read by everybody on this machine: chmod o= {key_file}"
            ));
        }
        tls.certificates.push(read);
        Ok(())
    }
}

impl Config {
    /// Why its listeners cannot speak TLS with all that is configured, in words; `None`: they can, or none does.
    pub fn lacks_certificate(&self) -> Option<String> {
        let listen = self.listen.iter().find(|l| l.speaks == Speaks::Https)?;
        match &self.tls.unreadable {
            Some(why) => Some(why.clone()),
            None if self.tls.certificates.is_empty() => Some(format!(
                "{} needs a certificate: name `certificate` and `key` under [tls] in galgo.toml",
                listen.url()
            )),
            None => None,
        }
    }
}
