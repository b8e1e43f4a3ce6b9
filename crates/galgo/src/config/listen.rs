//! Where to listen: `127.0.0.1:8080`, `[::1]:8080`, `unix:/path`, and in front of either `proxy+`,
//! `fastcgi+` or `scgi+`.

use std::{fmt, net::SocketAddr, os::unix::ffi::OsStrExt, path::PathBuf, str::FromStr};

use super::{Address, Listen, Speaks};

/// Bytes of a path in `sockaddr_un`, without the closing NUL (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

const SPOKEN: [(&str, Speaks); 3] = [
    ("proxy+", Speaks::Proxied),
    ("fastcgi+", Speaks::FastCgi),
    ("scgi+", Speaks::Scgi),
];

impl FromStr for Listen {
    type Err = String;

    /// Reads an address. A host name is refused, for it may mean several addresses or, tomorrow,
    /// another one; so is a lone port, which says nothing about who can reach it.
    fn from_str(text: &str) -> Result<Self, String> {
        let spoken = SPOKEN.iter().find_map(|&(prefix, speaks)| {
            let rest = text.strip_prefix(prefix)?;
            Some((speaks, rest))
        });
        let (speaks, rest) = spoken.unwrap_or((Speaks::Http, text));
        let address = match rest.strip_prefix("unix:") {
            Some(path) => unix(path)?,
            None => Address::Tcp(tcp(rest)?),
        };
        Ok(Self { address, speaks })
    }
}

fn unix(path: &str) -> Result<Address, String> {
    if path.is_empty() || path.contains('\0') {
        return Err("a Unix socket needs a path: \"unix:/run/galgo.sock\"".to_owned());
    }
    let path = PathBuf::from(path);
    fits(&path)?;
    Ok(Address::Unix(path))
}

/// Whether the kernel takes a path of this length for a socket.
pub(super) fn fits(path: &std::path::Path) -> Result<(), String> {
    let length = path.as_os_str().as_bytes().len();
    if length > MAX_SOCKET_PATH {
        return Err(format!(
            "the socket's path has {length} bytes, the kernel takes {MAX_SOCKET_PATH}: choose a shorter one"
        ));
    }
    Ok(())
}

fn tcp(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.rsplit(':').next().unwrap_or(text);
    let lone = text
        .strip_suffix(port)
        .filter(|_| port.parse::<u16>().is_ok());
    let wrong = match lone {
        Some("" | ":" | "*:") => format!(
            "names no address: write \"127.0.0.1:{port}\" for this machine only, or \"[::]:{port}\" for every address"
        ),
        Some("localhost:") => format!("is a name: write \"127.0.0.1:{port}\" or \"[::1]:{port}\""),
        _ if text.starts_with("http://") || text.starts_with("https://") => {
            "is a URL: write only address and port, \"127.0.0.1:8080\"".into()
        }
        _ if text.starts_with('/') => format!("is a path: write \"unix:{text}\" for a socket"),
        _ if text.parse::<std::net::IpAddr>().is_ok() => "names no port: write it behind, as in \"127.0.0.1:8080\" or \"[::1]:8080\"".into(),
        _ => "is not an address: write IP and port (\"127.0.0.1:8080\", \"[::1]:8080\") or \"unix:/path\"".into(),
    };
    Err(format!("{text:?} {wrong}"))
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((prefix, _)) = SPOKEN.iter().find(|(_, speaks)| *speaks == self.speaks) {
            f.write_str(prefix)?;
        }
        self.address.fmt(f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_read() {
        let table = [
            "127.0.0.1:8080",
            "0.0.0.0:0",
            "[::1]:8080",
            "unix:/run/galgo.sock",
            "unix:galgo.sock",
            "proxy+127.0.0.1:8080",
            "proxy+unix:/run/galgo.sock",
            "fastcgi+unix:/run/galgo.sock",
            "fastcgi+127.0.0.1:9000",
            "scgi+unix:galgo.sock",
            "scgi+[::1]:4000",
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
        let long = format!("unix:/{}", "x".repeat(MAX_SOCKET_PATH));
        assert!(long.parse::<Listen>().unwrap_err().contains("108 bytes"));
        assert!(long[..long.len() - 1].parse::<Listen>().is_ok());
    }
}
