//! The address of a socket: `127.0.0.1:8080`, `[::1]:8080`, `unix:/path`.

use std::{
    fmt,
    net::SocketAddr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Bytes of a path in `sockaddr_un`, without the closing NUL (unix(7)).
const MAX_SOCKET_PATH: usize = 107;

/// The address on which a socket listens, or to which it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    /// Reads an address. Refuses a host name, because it may mean several addresses or, tomorrow, a different address. Refuses
    /// a port without an address, because the port alone does not say from where the socket can be reached.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) => parse_unix(path),
            None => parse_tcp(text).map(Self::Tcp),
        }
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

fn parse_unix(path: &str) -> Result<Address, String> {
    if path.is_empty() || path.contains('\0') {
        return Err("a Unix socket needs a path: \"unix:/run/galgo.sock\"".to_owned());
    }
    let path = PathBuf::from(path);
    check_socket_path(&path)?;
    Ok(Address::Unix(path))
}

/// Checks that the kernel takes a path of this length for a socket.
///
/// # Errors
/// A sentence that says how long the path is, and how long it may be.
pub fn check_socket_path(path: &Path) -> Result<(), String> {
    let length = path.as_os_str().as_bytes().len();
    if length > MAX_SOCKET_PATH {
        return Err(format!(
            "the socket's path has {length} bytes, the kernel takes {MAX_SOCKET_PATH}: choose a shorter one"
        ));
    }
    Ok(())
}

fn parse_tcp(text: &str) -> Result<SocketAddr, String> {
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
        _ if text.parse::<std::net::IpAddr>().is_ok() => "names no port: add the port, as in \"127.0.0.1:8080\" or \"[::1]:8080\"".into(),
        _ => "is not an address: write IP and port (\"127.0.0.1:8080\", \"[::1]:8080\") or \"unix:/path\"".into(),
    };
    Err(format!("{text:?} {wrong}"))
}
