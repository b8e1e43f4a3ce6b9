//! Configuration of a front: listeners, limits, clocks, and the proxies that are trusted to name clients.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use galgo_io::{address::Address, rate_allowance::Rates, tls};
use galgo_proto::{forwarded::Trusted, h1::HeadLimits};
use galgo_service::{log::LogFormat, spool::Spool};

/// The settings of all event loops.
#[derive(Debug)]
pub struct Settings {
    /// Addresses to listen on. A listener that is not named here is closed.
    pub listen: Vec<Listen>,
    /// Connection limits and clocks.
    pub http: Http,
    /// The proxies that are trusted to name their clients.
    pub trusted: Trusted,
    /// Connections at once: the limit for all clients, and the limit for one address.
    pub max_connections: (usize, usize),
    /// The budget that pays for bytes of request bodies in memory.
    pub spool: Arc<Spool>,
    /// Time for which requests may go on once the server drains.
    pub shutdown_grace: Duration,
    /// The TLS configuration of listeners that speak TLS; `None`: no listener does.
    pub tls: Option<tls::TlsServer>,
    /// Whether some program may be given a client's connection. If so, clients of HTTP/2 are told that they may ask (RFC 8441,
    /// 3).
    pub upgrades: bool,
    /// Format of the access log; `None`: there is none.
    pub access_log: Option<LogFormat>,
    /// Whether routes have access logs of their own.
    pub own_logs: bool,
}

/// A listener. Parsed from `127.0.0.1:8080`, `[::1]:8080` or `unix:/path`, which speak HTTP/1. A prefix names any other
/// protocol: `https://`, `h2c+`, `proxy+`, `fastcgi+` or `scgi+`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// TCP address or path of a Unix socket.
    pub address: Address,
    /// The protocol of its connections.
    pub speaks: Speaks,
}

/// The protocol of a listener's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.
    Http,
    /// HTTP/2 or HTTP/1 in TLS, as the client chooses (`https://127.0.0.1:8443`, `https://unix:/path`).
    Https,
    /// HTTP/2 without TLS, for clients that know that the server speaks it (RFC 9113, 3.3; `h2c+127.0.0.1:8080`).
    H2c,
    /// A PROXY protocol v2 header, then HTTP/1 (`proxy+127.0.0.1:8080`, `proxy+unix:/path`).
    Proxied,
    /// FastCGI, by a web server in front of us (`fastcgi+unix:/path`).
    FastCgi,
    /// SCGI, by a web server in front of us (`scgi+unix:/path`).
    Scgi,
}

/// Connection limits and clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Time from the first byte of a request head to its last.
    pub head_timeout: Duration,
    /// Time after which an idle kept-alive connection is closed.
    pub keep_alive: Duration,
    /// Limits on how slow a client may be: `min_rate`, `busy_rate`, `rate_grace`.
    pub rates: Rates,
    /// Connections at once. Beyond that, the oldest connection without a request makes room.
    pub max_connections: usize,
    /// Connections of one address; 0: half of `max_connections`.
    pub max_connections_per_client: usize,
    /// Limit on the bytes of a request head.
    pub max_head: usize,
    /// Limit on the fields of a request head.
    pub max_fields: usize,
    /// Limit on the bytes of a request target.
    pub max_target: usize,
    /// Whether `%2F` in a path counts as `/`; if not, it is a 400.
    pub encoded_slash: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            rates: Rates {
                least: 1024,
                busy: 16 << 10,
                grace: Duration::from_secs(10),
            },
            max_connections: 0,
            max_connections_per_client: 0,
            max_head: 64 << 10,
            max_fields: 256,
            max_target: 16 << 10,
            encoded_slash: false,
        }
    }
}

impl Http {
    /// Returns the limits of a request head.
    pub fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            bytes: self.max_head,
            fields: self.max_fields,
            target: self.max_target,
            encoded_slash: self.encoded_slash,
        }
    }
}

const SPOKEN: [(&str, Speaks); 5] = [
    ("h2c+", Speaks::H2c),
    ("https://", Speaks::Https),
    ("proxy+", Speaks::Proxied),
    ("fastcgi+", Speaks::FastCgi),
    ("scgi+", Speaks::Scgi),
];

impl Speaks {
    /// Splits an entry of `listen` into its protocol and the address that follows.
    pub fn split_protocol(text: &str) -> (Self, &str) {
        let spoken = SPOKEN.iter().find_map(|&(prefix, speaks)| {
            let rest = text.strip_prefix(prefix)?;
            Some((speaks, rest))
        });
        spoken.unwrap_or((Self::Http, text))
    }

    /// Returns the prefix that stands in front of the address.
    pub fn prefix(self) -> &'static str {
        let spoken = SPOKEN.iter().find(|(_, speaks)| *speaks == self);
        spoken.map_or("", |(prefix, _)| prefix)
    }
}

impl Listen {
    /// Returns the address as a person would type it into a browser.
    pub fn browser_url(&self) -> String {
        match (&self.address, self.speaks) {
            (Address::Tcp(at), Speaks::Https) => format!("https://{at}"),
            (Address::Tcp(at), Speaks::Http | Speaks::Proxied) => format!("http://{at}"),
            (Address::Unix(path), Speaks::Http | Speaks::Proxied) => {
                format!("unix:{}", path.display())
            }
            _ => self.to_string(),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (speaks, rest) = Speaks::split_protocol(text);
        let address = rest.parse()?;
        Ok(Self { address, speaks })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.speaks.prefix())?;
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use crate::front_settings::*;

    #[test]
    fn shown_as_read() {
        let table = [
            "127.0.0.1:8080",
            "0.0.0.0:0",
            "[::1]:8080",
            "unix:/run/galgo.sock",
            "unix:galgo.sock",
            "h2c+127.0.0.1:8080",
            "h2c+unix:/run/galgo.sock",
            "proxy+127.0.0.1:8080",
            "proxy+unix:/run/galgo.sock",
            "fastcgi+unix:/run/galgo.sock",
            "fastcgi+127.0.0.1:9000",
            "scgi+unix:galgo.sock",
            "scgi+[::1]:4000",
            "https://127.0.0.1:8443",
            "https://unix:/run/galgo.sock",
        ];
        for text in table {
            assert_eq!(
                text.parse::<Listen>().map(|l| l.to_string()),
                Ok(text.to_owned())
            );
        }
        let proxy: Listen = "proxy+[::1]:80".parse().unwrap();
        assert!(
            proxy.speaks == Speaks::Proxied
                && matches!(proxy.address, Address::Tcp(a) if a.port() == 80)
        );
    }

    #[test]
    fn refused() {
        let table = [
            (":8080", "names no address: write \"127.0.0.1:8080\""),
            ("8080", "names no address: write \"127.0.0.1:8080\""),
            ("*:80", "names no address: write \"127.0.0.1:80\""),
            ("localhost:8080", "is a name: write \"127.0.0.1:8080\""),
            ("127.0.0.1", "names no port"),
            (
                "/run/galgo.sock",
                "is a path: write \"unix:/run/galgo.sock\"",
            ),
            ("127.0.0.1:65536", "is not an address"),
            ("::1:8080", "names no port"),
            ("http://127.0.0.1:8080/", "is a URL"),
            ("unix:", "needs a path"),
            ("proxy+proxy+127.0.0.1:80", "is not an address"),
            ("fastcgi+proxy+127.0.0.1:80", "is not an address"),
            ("fastcgi+tcp:127.0.0.1:80", "is not an address"),
            ("", "is not an address"),
        ];
        for (text, want) in table {
            let error = text.parse::<Listen>().unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(long.parse::<Listen>().unwrap_err().contains("108 bytes"));
        assert!(long[..long.len() - 1].parse::<Listen>().is_ok());
    }
}
