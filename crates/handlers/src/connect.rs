//! Connects to applications, within a time limit.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    time::Duration,
};

use galgo_io::{address::Address, sock::Sock, tick};
use galgo_service::fault::{Fault, is_shortage};
use galgo_spawn::{identity::effective_uid, trusted_path};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
        sockopt,
    },
};
use tokio::time::{Instant, timeout_at};

use crate::blocking;

const SHORT: Fault =
    Fault::Busy("no file descriptors are left for a connection to the application");
const FULL: Fault = Fault::Busy("the application accepts no more connections: its backlog is full");

/// Describes an error and its fix.
fn explain_error(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "the socket does not exist. Start the application, or correct the path".into(),
        io::ErrorKind::ConnectionRefused => "no process listens there. Start the application".into(),
        io::ErrorKind::PermissionDenied => {
            "the server's user cannot connect. Change the owner or mode of the socket (listen.owner and listen.mode of \
             php-fpm) or of its folder"
                .into()
        }
        _ => e.to_string(),
    }
}

/// Returns the account that controls the path of a Unix socket, if that is neither root nor the server's user.
pub(crate) fn controlling_account(address: &Address) -> Option<u32> {
    match address {
        Address::Unix(path) => trusted_path::others_account(path, effective_uid()),
        Address::Tcp(_) => None,
    }
}

/// Connects to `address`. If an `account` controls the folder, the path may lead nowhere else, and a thread for that account
/// resolves it.
pub(crate) async fn connect(
    (address, account): (&Address, Option<u32>),
    within: Duration,
) -> Result<Sock, Fault> {
    let by = Instant::now() + within;
    let done = match address {
        Address::Unix(path) if let Some(account) = account => {
            timeout_at(by, Box::pin(others_socket(path, account))).await
        }
        Address::Unix(path) => timeout_at(by, connect_unix(path)).await,
        Address::Tcp(at) => timeout_at(by, connect_tcp(*at)).await,
    };
    match done {
        Ok(Ok(sock)) => Ok(sock),
        Ok(Err(e)) if is_shortage(&e) => Err(SHORT),
        Ok(Err(e)) => Err(Fault::Script(format!(
            "the application at {address} cannot be reached: {}",
            explain_error(&e)
        ))),
        Err(_elapsed) if matches!(address, Address::Unix(_)) => Err(FULL),
        Err(_elapsed) => Err(Fault::Late(format!(
            "the application at {address} accepted no connection within {within:?} (connect_timeout)"
        ))),
    }
}

/// Connects to a worker of the server's own by the file of its socket, which has no name.
pub(crate) async fn connect_to_worker(file: &OwnedFd, within: Duration) -> Result<Sock, Fault> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match timeout_at(Instant::now() + within, connect_unix(Path::new(&path))).await {
        Ok(Ok(sock)) => Ok(sock),
        Ok(Err(e)) if is_shortage(&e) => Err(SHORT),
        Ok(Err(e)) => Err(Fault::Script(format!(
            "the worker of this route cannot be reached: {e}"
        ))),
        Err(_elapsed) => Err(FULL),
    }
}

async fn others_socket(path: &Path, account: u32) -> io::Result<Sock> {
    let path = path.to_owned();
    let found = blocking::run_for_owner(account.into(), move || trusted_path::resolve(&path)).await;
    let found = found.ok_or_else(|| io::Error::other("its file system does not answer"))??;
    let path = format!("/proc/self/fd/{}", found.file.as_raw_fd());
    connect_unix(Path::new(&path)).await
}

/// Connects to a Unix socket. The connection is made at once unless the backlog is full: no event tells when it has room, so that
/// each tick tries again.
async fn connect_unix(path: &Path) -> io::Result<Sock> {
    let address = SocketAddrUnix::new(path)?;
    let fd = socket(AddressFamily::UNIX)?;
    loop {
        match connect_to(&fd, &address) {
            Ok(()) => return Ok(Sock::for_requests(fd)),
            Err(Errno::AGAIN) => tick::next().await,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

async fn connect_tcp(at: std::net::SocketAddr) -> io::Result<Sock> {
    let family = match at {
        std::net::SocketAddr::V4(_) => AddressFamily::INET,
        std::net::SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd = socket(family)?;
    match connect_to(&fd, &at) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let sock = Sock::new(fd);
    sock.wait_until_writable().await?;
    sockopt::socket_error(&sock)??;
    // Requests are written whole; waiting for more data would only delay them.
    sockopt::set_tcp_nodelay(&sock, true)?;
    Ok(sock)
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Checks whether `address` accepts connections, for `galgo check`.
///
/// # Errors
/// In words, with the fix.
pub fn check_reachable(address: &Address) -> Result<(), String> {
    use std::os::unix::net::UnixStream;
    let done = match address {
        Address::Unix(path) => UnixStream::connect(path).map(drop),
        Address::Tcp(at) => {
            std::net::TcpStream::connect_timeout(at, Duration::from_secs(2)).map(drop)
        }
    };
    done.map_err(|e| format!("{} cannot be reached: {}", address, explain_error(&e)))
}
