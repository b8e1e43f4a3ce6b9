//! Where to listen: `127.0.0.1:8080`, `[::1]:8080`, `unix:/path`, and in front of either `proxy+`,
//! `fastcgi+` or `scgi+`.

use std::{fmt, str::FromStr};

use super::{Listen, Speaks};

const SPOKEN: [(&str, Speaks); 3] = [
    ("proxy+", Speaks::Proxied),
    ("fastcgi+", Speaks::FastCgi),
    ("scgi+", Speaks::Scgi),
];

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spoken = SPOKEN.iter().find_map(|&(prefix, speaks)| {
            let rest = text.strip_prefix(prefix)?;
            Some((speaks, rest))
        });
        let (speaks, rest) = spoken.unwrap_or((Speaks::Http, text));
        let address = rest.parse()?;
        Ok(Self { address, speaks })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((prefix, _)) = SPOKEN.iter().find(|(_, speaks)| *speaks == self.speaks) {
            f.write_str(prefix)?;
        }
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Address, *};

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
        let long = format!("unix:/{}", "x".repeat(107));
        assert!(long.parse::<Listen>().unwrap_err().contains("108 bytes"));
        assert!(long[..long.len() - 1].parse::<Listen>().is_ok());
    }
}
