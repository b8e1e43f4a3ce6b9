//! Listening sockets.

use std::{
    ffi::OsStr,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use galgo_io::address::Address;
use rustix::{io::Errno, net as sys};

use crate::front_settings::{Listen, Speaks};

/// Connections that the kernel may hold before they are accepted; capped by `net.core.somaxconn`.
pub const BACKLOG: i32 = 4096;
/// Failed tries to listen before giving up, although the port could be bound.
const LISTEN_TRIES: u32 = 1000;

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub fd: OwnedFd,
    /// The address that the configuration asked for.
    pub asked: Address,
    /// The same address with the real port.
    pub listen: Listen,
    /// Whether only one event loop accepts from this listener, and hands connections to the others.
    pub hands_over: bool,
}

impl Listener {
    /// Listens on a TCP port. `shares`: other event loops listen on the same port, each with a queue of its own
    /// ([`Listener::open_another`]).
    ///
    /// # Errors
    /// Any error of the system calls.
    pub fn bind_tcp(at: SocketAddr, speaks: Speaks, shares: bool) -> io::Result<Self> {
        let (fd, address) = listen_tcp(at)?;
        if shares {
            // Set only after the socket listens: otherwise another server that is about to listen could join.
            sys::sockopt::set_socket_reuseport(&fd, true)?;
        }
        Ok(Self {
            fd,
            asked: Address::Tcp(at),
            listen: Listen { address, speaks },
            hands_over: !shares,
        })
    }

    /// Listens on a Unix socket that is bound already, with the address and protocol of `listen`.
    ///
    /// # Errors
    /// Any error of the system calls.
    pub fn listen_on_bound(fd: OwnedFd, listen: &Listen) -> io::Result<Self> {
        sys::listen(&fd, BACKLOG)?;
        Ok(Self {
            fd,
            asked: listen.address.clone(),
            listen: listen.clone(),
            hands_over: true,
        })
    }

    /// Takes over a socket that listens already. `hands_over`: the event loops do not each have a socket of their own for that
    /// address.
    ///
    /// # Errors
    /// `fd` is not a listening stream socket, or any error of the system calls.
    pub fn from_listening(
        fd: OwnedFd,
        asked: Address,
        speaks: Speaks,
        hands_over: bool,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        let address = match listening_address(&fd)? {
            tcp @ Address::Tcp(_) => {
                sys::sockopt::set_tcp_nodelay(&fd, true)?;
                tcp
            }
            Address::Unix(_) => asked.clone(),
        };
        Ok(Self {
            fd,
            asked,
            listen: Listen { address, speaks },
            hands_over,
        })
    }

    /// Opens a listener on the same address for another event loop, with a queue of its own (SO_REUSEPORT). `None` if this
    /// listener's event loop hands its connections over.
    ///
    /// # Errors
    /// Any error of the system calls.
    pub fn open_another(&self) -> io::Result<Option<Self>> {
        let at = match &self.listen.address {
            Address::Tcp(at) if !self.hands_over => at,
            Address::Tcp(_) | Address::Unix(_) => return Ok(None),
        };
        let fd = tcp_socket(*at)?;
        sys::sockopt::set_socket_reuseport(&fd, true)?;
        sys::bind(&fd, at)?;
        sys::listen(&fd, BACKLOG)?;
        Ok(Some(Self {
            fd,
            asked: self.asked.clone(),
            listen: self.listen.clone(),
            hands_over: false,
        }))
    }

    /// Returns the address that every connection of this listener has on our side, if it is always the same.
    pub(crate) fn fixed_address(&self) -> Option<SocketAddr> {
        match self.listen.address {
            Address::Tcp(at) if !at.ip().is_unspecified() => Some(at),
            Address::Tcp(_) | Address::Unix(_) => None,
        }
    }
}

/// Returns the address on which a socket listens.
///
/// # Errors
/// `fd` is not a listening stream socket of TCP, or of a path; or any error of the system calls.
pub fn listening_address(fd: impl AsFd) -> io::Result<Address> {
    let fd = fd.as_fd();
    let unfit = |words: &str| Err(io::Error::other(words.to_owned()));
    if sys::sockopt::socket_type(fd)? != sys::SocketType::STREAM {
        return unfit("it is not a stream socket (ListenStream=)");
    }
    if !sys::sockopt::socket_acceptconn(fd)? {
        return unfit("it is not a listening socket (Accept=no)");
    }
    let name = sys::getsockname(fd)?;
    if let Ok(tcp) = SocketAddr::try_from(name.clone()) {
        return Ok(Address::Tcp(tcp));
    }
    let unix = sys::SocketAddrUnix::try_from(name).ok();
    match unix.as_ref().and_then(|unix| unix.path_bytes()) {
        Some(path) => Ok(Address::Unix(OsStr::from_bytes(path).into())),
        None => unfit(
            "it is neither TCP nor a Unix socket with a file: any program could connect to an abstract socket",
        ),
    }
}

/// Creates a stream socket that does not block and that no program inherits.
///
/// # Errors
/// Any error of the system calls.
pub fn new_socket(family: sys::AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = sys::SocketFlags::CLOEXEC | sys::SocketFlags::NONBLOCK;
    sys::socket_with(family, sys::SocketType::STREAM, flags, None)
}

/// Binds and listens. Two servers may bind the same port at once (SO_REUSEADDR, socket(7)), and each may keep the other from
/// listening. So both try again, until one server finds that the other listens.
fn listen_tcp(at: SocketAddr) -> io::Result<(OwnedFd, Address)> {
    let mut tries = 0;
    loop {
        let fd = tcp_socket(at)?;
        sys::bind(&fd, &at)?;
        match sys::listen(&fd, BACKLOG) {
            Err(Errno::ADDRINUSE) if tries < LISTEN_TRIES => tries += 1,
            done => {
                done?;
                let real = SocketAddr::try_from(sys::getsockname(&fd)?)?;
                return Ok((fd, Address::Tcp(real)));
            }
        }
    }
}

fn tcp_socket(at: SocketAddr) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() {
        sys::AddressFamily::INET
    } else {
        sys::AddressFamily::INET6
    };
    let fd = new_socket(family)?;
    sys::sockopt::set_socket_reuseaddr(&fd, true)?;
    if at.is_ipv6() {
        // `[::]` and `0.0.0.0` are two listeners: a client's address then has one spelling only.
        sys::sockopt::set_ipv6_v6only(&fd, true)?;
    }
    // Accepted sockets inherit this option: a response is never held back for an acknowledgement.
    sys::sockopt::set_tcp_nodelay(&fd, true)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Two servers begin to listen at the same moment: only one succeeds, and the other gets an error.
    #[test]
    fn of_two_servers_at_once_one_listens() {
        // No other test has this address, so its ports are free.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let ip = std::net::Ipv4Addr::new(127, a | 128, b, c.clamp(1, 254));
        let meet = Barrier::new(2);
        let server = || {
            let begin = |port: u16| {
                meet.wait();
                let bound = Listener::bind_tcp((ip, port).into(), Speaks::Http, false);
                meet.wait();
                if let Err(e) = &bound {
                    assert_eq!(e.kind(), io::ErrorKind::AddrInUse, "{e}");
                }
                bound.is_ok()
            };
            (20_000..22_000).map(begin).collect::<Vec<_>>()
        };
        let [a, b] = std::thread::scope(|threads| {
            [threads.spawn(server), threads.spawn(server)].map(|one| one.join().unwrap())
        });
        assert!(a.iter().zip(&b).all(|(a, b)| a != b));
    }
}
