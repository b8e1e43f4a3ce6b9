//! `--listen`: an address, or the host of a public site.

use std::{net::IpAddr, path::Path, str::FromStr};

use crate::{
    certificates::certificate_settings::{Automatic, public_host},
    config::{Address, Config, Listen, Speaks},
    config_check::listen::ListenAt,
};

/// A value of `--listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListenArgument {
    At(ListenAt),
    /// `https://example.org`: every address, ports 443 and 80, and a certificate that galgo requests itself.
    Public(String),
}

impl FromStr for ListenArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = |e| match text.strip_prefix("https://") {
            // A name that has letters, is not a path, and has nothing after it.
            Some(host) if host.contains(char::is_alphabetic) && !host.starts_with("unix:") => {
                let host = host.strip_suffix('/').unwrap_or(host);
                let host = public_host(host).map_err(|words| format!("{host:?} {words}"))?;
                Ok(Self::Public(host))
            }
            _ => Err(e),
        };
        text.parse().map(Self::At).or_else(at)
    }
}

/// Replaces the addresses that `config` listens on.
///
/// # Errors
/// A sentence: an address is named twice.
pub(super) fn apply_arguments(all: &[ListenArgument], config: &mut Config) -> Result<(), String> {
    config.listen_nowhere();
    for asked in all {
        match asked {
            ListenArgument::At(listen) => config.listen_at(listen.clone())?,
            ListenArgument::Public(host) => listen_publicly(config, host),
        }
    }
    Ok(())
}

fn listen_publicly(config: &mut Config, host: &str) {
    // Without IPv6 there is no `[::]` to listen on.
    let ipv6 = Path::new("/proc/net/if_inet6").exists();
    let ipv6 = ipv6.then_some(IpAddr::from([0; 16]));
    for (speaks, port) in [(Speaks::Https, 443), (Speaks::Http, 80)] {
        for ip in [IpAddr::from([0; 4])].into_iter().chain(ipv6) {
            let address = Address::Tcp((ip, port).into());
            let listen = Listen { address, speaks };
            if !config.listen.contains(&listen) {
                config.listen.push(listen);
            }
        }
    }
    let tls = &mut config.tls;
    tls.redirect = true;
    let names = |names: &[String]| names.iter().any(|name| name == host);
    let named = tls
        .certificates
        .iter()
        .any(|one| names(one.certificate.host_names()));
    if !named {
        let automatic = tls
            .automatic
            .get_or_insert_with(|| Automatic::for_hosts(Vec::new()));
        if !names(&automatic.hosts) {
            automatic.hosts.push(host.to_owned());
        }
    }
}

/// Returns the beginning of the URLs of a public site: a host with an automatic certificate, at the port that browsers use.
pub(super) fn public_url<'l>(
    config: &Config,
    listeners: impl IntoIterator<Item = &'l Listen>,
) -> Option<String> {
    let https = |l: &Listen| {
        let port = matches!(&l.address, Address::Tcp(at) if at.port() == 443);
        port && l.speaks == Speaks::Https
    };
    let host = config.tls.automatic.as_ref()?.hosts.last()?;
    let asked = listeners.into_iter().any(https);
    asked.then(|| format!("https://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> Config {
        let all: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let mut config = Config::default();
        apply_arguments(&all, &mut config).unwrap();
        config
    }

    #[test]
    fn a_host_is_a_public_site() {
        let config = of(&[
            "https://Example.org/",
            "https://www.example.org",
            "127.0.0.1:8080",
        ]);
        let listens: Vec<_> = config.listen.iter().map(Listen::to_string).collect();
        let any = ["https://0.0.0.0:443", "0.0.0.0:80", "127.0.0.1:8080"];
        assert!(
            any.iter().all(|one| listens.iter().any(|l| l == one)),
            "{listens:?}"
        );
        assert!(listens.len() <= 5, "{listens:?}");
        assert!(config.tls.redirect);
        let hosts = vec!["example.org".to_owned(), "www.example.org".to_owned()];
        assert_eq!(config.tls.automatic, Some(Automatic::for_hosts(hosts)));
    }

    #[test]
    fn an_address_is_a_listener() {
        for text in [
            "https://127.0.0.1:8443",
            "https://[::1]:0",
            "https://unix:/s",
            "127.0.0.1:80",
        ] {
            let config = of(&[text]);
            assert_eq!(config.listen[0].to_string(), text);
            assert!(config.tls.automatic.is_none() && !config.tls.redirect);
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for (text, want) in [
            ("https://example.org:8443", "is not a host name"),
            ("https://example.org/a", "is not a host name"),
            ("https://*.example.org", "needs a DNS challenge"),
            ("https://127.0.0.1", "names no port"),
            ("example.org:443", "is not an address"),
            ("http://example.org", ""),
        ] {
            let error = text.parse::<ListenArgument>().unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
