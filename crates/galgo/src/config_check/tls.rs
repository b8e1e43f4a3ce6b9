//! `[tls]`: the certificates of `https://` listeners.

use std::{
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use galgo_io::tls::{Certificate, Clients, UserIs};
use galgo_spawn::trusted_path::read_all;
use toml::Spanned;

use crate::{
    certificates::certificate_settings::{FilesVersion, FromFiles, LETS_ENCRYPT, public_host},
    config::{Automatic, Config, Speaks, TlsConfig},
    config_text::{
        config_error::{Checked, ConfigText},
        folder::{describe_unopened, readable_by_all},
        raw::{
            self, RawAutomatic, RawCertificate, RawConfig, RawTls, Typed, each_typed, first_place,
            flag_or_default, where_typed,
        },
    },
};

impl ConfigText<'_> {
    /// Reads all certificates and keys.
    pub(crate) fn check_tls(
        &self,
        raw: &RawConfig,
        warnings: &mut Vec<String>,
    ) -> Checked<TlsConfig> {
        let mut tls = TlsConfig::default();
        let Some(table) = &raw.tls else {
            return Ok(tls);
        };
        tls.redirect = flag_or_default(&table.get_ref().redirect_to_https, false);
        let most = 2 * 365 * 24 * 3600 * 1000;
        let hsts = self.check_time(&table.get_ref().hsts, Duration::ZERO, 0, most)?;
        tls.hsts = (!hsts.is_zero()).then(|| format!("max-age={}", hsts.as_secs()));
        let first = (&table.get_ref().certificate, &table.get_ref().key);
        let list = table.get_ref().certificates.iter();
        let more = list.flat_map(|list| list.get_ref());
        let pairs = more.map(|RawCertificate { certificate, key }| (certificate, key));
        let named = first.0.is_some() || first.1.is_some();
        let mut closed = None;
        for (certificate, key) in named.then_some(first).into_iter().chain(pairs) {
            let (chain, key) = match (certificate, key) {
                (Some(chain), Some(key)) => (chain, key),
                (Some(at), None) => return Err(self.error_at(at.span(), "needs a `key` beside it")),
                (None, at) => {
                    let at = at.as_ref().map_or(table.span(), |key| key.span());
                    return Err(self.error_at(at, "needs a `certificate` beside it"));
                }
            };
            match self.check_certificate(chain, key, &mut tls, warnings) {
                // If another account's certificate cannot be used, only the hosts of that certificate go without one.
                Err(e) if e.closes.is_some() => {
                    self.add_warning(&e);
                    closed.get_or_insert(e);
                }
                checked => checked?,
            }
        }
        tls.automatic = where_typed(&table.get_ref().automatic, |raw| self.check_automatic(raw))?;
        tls.clients = self.check_clients(table.get_ref())?;
        let none = tls.certificates.is_empty() && tls.unreadable.is_none();
        if none && tls.automatic.is_none() {
            let words = "names no certificate: add `certificate` and `key`, or `automatic`, or delete the table";
            return Err(closed.unwrap_or_else(|| self.error_at(table.span(), words)));
        }
        Ok(tls)
    }

    fn check_certificate(
        &self,
        chain: &raw::Text,
        key: &raw::Text,
        tls: &mut TlsConfig,
        warnings: &mut Vec<String>,
    ) -> Checked<()> {
        let (chain_path, key_path) = (self.resolve_file(chain)?, self.resolve_file(key)?);
        // Taken before the files are read, so that a change in between is noticed later.
        let version = FilesVersion::from_files(&chain_path, &key_path);
        let failed =
            |typed: &raw::Text, path: &Path, e: &io::Error| self.open_error(typed, path, e);
        let pem = read_all(&chain_path).map_err(|e| failed(chain, &chain_path, &e))?;
        let secret = match read_all(&key_path) {
            Ok(secret) => secret,
            // A server that was root at its start read the key then.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                tls.unreadable = Some(describe_unopened(&key_path, &e));
                return Ok(());
            }
            Err(e) => return Err(failed(key, &key_path, &e)),
        };
        let read = Certificate::from_pem(&pem, &secret);
        let (file, key_file) = (chain_path.display(), key_path.display());
        let read = read.map_err(|e| {
            let error = self.error_at(chain.span(), format!("{file} with {key_file}: {e}"));
            let error = self.mark_owner(error, &chain_path, 403);
            match error.closes {
                Some(_) => error,
                None => self.mark_owner(error, &key_path, 403),
            }
        })?;
        let doubts = read.doubts(SystemTime::now()).into_iter();
        warnings.extend(doubts.map(|doubt| format!("{file}: {doubt}")));
        warnings.extend(readable_by_all(&key_path));
        tls.certificates.push(FromFiles {
            chain: chain_path,
            key: key_path,
            version,
            certificate: read,
        });
        Ok(())
    }
}

impl ConfigText<'_> {
    fn check_automatic(&self, raw: &Spanned<RawAutomatic>) -> Checked<Automatic> {
        let (at, raw) = (raw.span(), raw.get_ref());
        let mut hosts = each_typed(&raw.hosts, |typed| self.check_public_host(typed))?;
        hosts.sort();
        hosts.dedup();
        if hosts.is_empty() {
            let words = "automatic: names no host: hosts = [\"example.org\"]";
            return Err(self.keyless_error(at, words));
        }
        let starts = |typed: &raw::Text, with: &str, like: &str| match typed.get_ref() {
            text if text.starts_with(with) && text.is_ascii() => Ok(text.clone()),
            _ => Err(self.error_at(
                typed.span(),
                format!("must begin with {with:?}, as in {like:?}"),
            )),
        };
        let contact = |typed: &raw::Text| starts(typed, "mailto:", "mailto:me@example.org");
        let authority = |typed: &raw::Text| starts(typed, "https://", LETS_ENCRYPT);
        let automatic = Automatic {
            hosts,
            contact: where_typed(&raw.contact, contact)?,
            authority: where_typed(&raw.authority, authority)?
                .unwrap_or_else(|| LETS_ENCRYPT.into()),
            authority_ca: where_typed(&raw.authority_ca, |typed| self.resolve_file(typed))?,
            state: where_typed(&raw.state, |typed| self.resolve_path(typed))?,
        };
        if let (Some(typed), Some(path)) = (&raw.authority_ca, &automatic.authority_ca) {
            read_all(path).map_err(|e| self.open_error(typed, path, &e))?;
        }
        Ok(automatic)
    }

    /// Checks which certificates clients are asked for.
    fn check_clients(&self, raw: &RawTls) -> Checked<Option<Clients>> {
        let Some(typed) = &raw.client_ca else {
            let alone = first_place!(raw, client_certificate, client_user);
            self.refuse(alone, "needs a `client_ca` beside it")?;
            return Ok(None);
        };
        let one_of = |typed: &Typed<String>, allowed: [&str; 2]| {
            where_typed(typed, |typed| {
                let found = allowed.iter().position(|one| typed.get_ref() == one);
                let words = format!("is {:?} or {:?}", allowed[0], allowed[1]);
                found.ok_or_else(|| self.error_at(typed.span(), words))
            })
        };
        let optional = one_of(&raw.client_certificate, ["required", "optional"])? == Some(1);
        let user = one_of(&raw.client_user, ["common_name", "subject"])?;
        let user = user.map(|at| [UserIs::CommonName, UserIs::Subject][at]);
        let path = self.resolve_file(typed)?;
        let pem = read_all(&path).map_err(|e| self.open_error(typed, &path, &e))?;
        let clients = Clients::from_pem(&pem, !optional, user);
        let at = |e| self.error_at(typed.span(), format!("{} {e}", path.display()));
        clients.map(Some).map_err(at)
    }

    fn check_public_host(&self, typed: &raw::Text) -> Checked<String> {
        let words = |words| self.error_at(typed.span(), format!("{:?} {words}", typed.get_ref()));
        public_host(typed.get_ref()).map_err(words)
    }
}

impl Config {
    /// Returns a sentence if the listeners and the certificates do not fit together. `None`: all listeners can speak TLS with
    /// this configuration, or no listener speaks TLS.
    pub fn lacks_certificate(&self) -> Option<String> {
        let tls = &self.tls;
        let Some(listen) = self.listen.iter().find(|l| l.speaks == Speaks::Https) else {
            let passed = self.listen_passed.iter().any(|l| l.speaks == Speaks::Https);
            return tls.automatic.as_ref().filter(|_| !passed).map(|_| {
                "[tls] automatic: no listener speaks https, so nobody could use the certificates: \
                 write listen = [\"https://0.0.0.0:443\", \"http://0.0.0.0:80\"] in galgo.toml, or delete `automatic`"
                    .into()
            });
        };
        match &tls.unreadable {
            Some(why) => Some(why.clone()),
            None if tls.certificates.is_empty() && tls.automatic.is_none() => Some(format!(
                "{} needs a certificate: name `certificate` and `key`, or `automatic`, under [tls] in galgo.toml",
                listen.browser_url()
            )),
            None => None,
        }
    }
}
