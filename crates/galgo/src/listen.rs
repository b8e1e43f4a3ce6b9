//! Listening sockets, and the connections they accept.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use rustix::{io::Errno, net as sys, process::geteuid};
use tokio::{io::Interest, sync::oneshot};

use crate::{
    balance,
    config::{Address, Config, Listen, Speaks},
    conn,
    fault::is_shortage,
    log::Level,
    phase::Phase,
    sock::register,
    socket_file::{self, SocketFile},
    worker::{Handed, Load, Server, Worker},
};

/// Connections the kernel may hold before they are accepted; capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Connections taken in a row before those that are there get their turn.
pub const IN_A_ROW: usize = 16;
/// Connections beyond `max_connections` that are let in while idle ones are closed for them, or while no event loop has
/// looked at them; beside those that each takes in a row.
pub const CROWD: usize = 64;
/// How long the closing of idle connections is waited for.
const SHED: Duration = Duration::from_millis(2);
/// How often listening is tried that fails although the port could be bound.
const LISTEN_TRIES: u32 = 1000;
/// Without descriptors, accepting is tried again after this.
const RETRY: Duration = Duration::from_millis(50);

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub fd: OwnedFd,
    /// What was asked for.
    pub asked: Address,
    /// The same with the real port.
    pub listen: Listen,
    /// Its event loop is the only one that accepts from it, and hands connections to the others.
    pub hands_over: bool,
    /// The file of a Unix socket.
    file: Option<SocketFile>,
}

/// A connection that has been accepted and not yet served.
#[derive(Debug)]
pub struct Accepted {
    /// The socket.
    pub fd: OwnedFd,
    /// The client; `None` for a Unix socket.
    pub remote: Option<SocketAddr>,
    /// Our address, where it is the same for all connections of the listener.
    pub local: Option<SocketAddr>,
    /// What is spoken on it.
    pub speaks: Speaks,
}

impl Listener {
    /// Binds and listens.
    ///
    /// # Errors
    /// Whatever the system says, and a peer group or mode that it does not allow.
    pub fn bind(listen: &Listen, config: &Config) -> io::Result<Self> {
        let (fd, address, file) = match &listen.address {
            Address::Tcp(at) => {
                let (fd, address) = listen_tcp(*at)?;
                (fd, address, None)
            }
            Address::Unix(path) => {
                let (fd, file) = socket_file::bind(path, config)?;
                sys::listen(&fd, BACKLOG)?;
                (fd, listen.address.clone(), Some(file))
            }
        };
        // Programs of a root that stays root could join, too.
        let root = geteuid().is_root() && config.identity.is_some() && file.is_none();
        if root {
            // Not before it listens: another server that is about to would join.
            sys::sockopt::set_socket_reuseport(&fd, true)?;
        }
        Ok(Self {
            fd,
            asked: listen.address.clone(),
            listen: Listen {
                address,
                speaks: listen.speaks,
            },
            hands_over: !root,
            file,
        })
    }

    /// The same address for another event loop, with a queue of its own (SO_REUSEPORT). `None` where a program could
    /// join such queues: the kernel lets every process do so that has the user whom the socket was made by. That of
    /// a root that becomes another user is nobody else's; of everybody else's there is one.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn another(&self) -> io::Result<Option<Self>> {
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
            file: None,
        }))
    }

    /// The address that all its connections have on our side.
    fn only_address(&self) -> Option<SocketAddr> {
        match self.listen.address {
            Address::Tcp(at) if !at.ip().is_unspecified() => Some(at),
            Address::Tcp(_) | Address::Unix(_) => None,
        }
    }

    /// The file of a Unix socket, to remove when the server ends; it is told once.
    pub fn take_socket_file(&mut self) -> Option<SocketFile> {
        self.file.take()
    }
}

impl Listen {
    /// Its address as a person would type it into a browser.
    pub fn url(&self) -> String {
        match (&self.address, self.speaks) {
            (Address::Tcp(at), Speaks::Http | Speaks::Proxied) => format!("http://{at}"),
            (Address::Unix(path), Speaks::Http | Speaks::Proxied) => {
                format!("unix:{}", path.display())
            }
            _ => self.to_string(),
        }
    }
}

pub(crate) fn new_socket(family: sys::AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = sys::SocketFlags::CLOEXEC | sys::SocketFlags::NONBLOCK;
    sys::socket_with(family, sys::SocketType::STREAM, flags, None)
}

/// Of two servers at once both may bind (SO_REUSEADDR, socket(7)), and each may be in the way of the other as it
/// begins to listen. So both try again, until one finds that the other listens.
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
    // Accepted sockets inherit it: a response is never held back for an acknowledgement.
    sys::sockopt::set_tcp_nodelay(&fd, true)?;
    Ok(fd)
}

/// The listeners of one worker; all are closed when it is dropped.
#[derive(Debug, Default)]
struct Open(Vec<One>);

#[derive(Debug)]
struct One {
    asked: Address,
    speaks: Rc<Cell<Speaks>>,
    close: oneshot::Sender<()>,
}

impl Open {
    /// Closes what the site does not name, and accepts from what is new.
    fn load(&mut self, worker: &Rc<Worker>, load: Load) {
        let Load {
            site,
            listeners,
            taken,
        } = load;
        worker.load(site);
        let site = worker.site();
        let named = |asked: &Address| site.config.listen.iter().find(|l| l.address == *asked);
        for one in self.0.extract_if(.., |one| named(&one.asked).is_none()) {
            let _ = one.close.send(());
        }
        for one in &self.0 {
            if let Some(listen) = named(&one.asked) {
                one.speaks.set(listen.speaks);
            }
        }
        for listener in listeners {
            let (close, closed) = oneshot::channel();
            let speaks = Rc::new(Cell::new(listener.listen.speaks));
            self.0.push(One {
                asked: listener.asked.clone(),
                speaks: speaks.clone(),
                close,
            });
            tokio::task::spawn_local(accept(worker.clone(), listener, speaks, closed));
        }
        drop(taken);
    }
}

/// Accepts connections on `listener` until it is closed.
async fn accept(
    worker: Rc<Worker>,
    listener: Listener,
    speaks: Rc<Cell<Speaks>>,
    closed: oneshot::Receiver<()>,
) {
    tokio::select! {
        biased;
        closed = closed => {
            // Who was let in before it was closed is served; while the server ends nobody is.
            for _ in 0..if closed.is_ok() { BACKLOG } else { 0 } {
                let Ok(come) = accept_one(&listener.fd) else { return };
                placed(&worker, &listener, &speaks, come);
            }
        }
        Err(e) = accept_all(&worker, &listener, &speaks) => failed(&worker, &e),
    }
}

fn failed(worker: &Worker, e: &io::Error) {
    let errors = &worker.server.logs.error;
    errors.write(Level::Error, "listen", &e.to_string());
}

/// Accepts connections; never ends but by failing.
async fn accept_all(
    worker: &Rc<Worker>,
    listener: &Listener,
    speaks: &Cell<Speaks>,
) -> io::Result<()> {
    let fd = register(listener.fd.as_raw_fd(), Interest::READABLE)?;
    loop {
        let mut guard = fd.readable().await?;
        for _ in 0..IN_A_ROW {
            if is_crowded(worker) {
                tokio::time::sleep(SHED).await;
                break;
            }
            match guard.try_io(|_| accept_one(&listener.fd)) {
                Err(_would_block) => break,
                Ok(Ok(come)) => placed(worker, listener, speaks, come),
                Ok(Err(e)) => {
                    not_accepted(worker, &e).await;
                    break;
                }
            }
        }
    }
}

/// Whether many connections are open that are to make room for others and have not gone yet, or that no event loop has
/// looked at. New ones wait in the kernel meanwhile: for these there might be no descriptor.
fn is_crowded(worker: &Worker) -> bool {
    let Server { peers, crowd, .. } = &*worker.server;
    let open: usize = peers.iter().map(|peer| peer.load.connections()).sum();
    open.saturating_sub(crowd.staying()) > CROWD + IN_A_ROW * (peers.len() - 1)
}

/// Has a connection served.
fn placed(
    worker: &Rc<Worker>,
    listener: &Listener,
    speaks: &Cell<Speaks>,
    (fd, remote): (OwnedFd, Option<SocketAddr>),
) {
    let accepted = Accepted {
        fd,
        remote,
        local: listener.only_address(),
        speaks: speaks.get(),
    };
    balance::place(worker, accepted, listener.hands_over);
}

/// A connection could not be accepted. Most that goes wrong concerns one that is gone already (accept(2)).
async fn not_accepted(worker: &Worker, e: &io::Error) {
    if is_shortage(e) {
        // Descriptors are reserved, so this is the whole system's shortage.
        if let Some(shed) = worker.server.crowd.any() {
            worker.server.shed(shed);
        }
        let errors = &worker.server.logs.error;
        errors.write(Level::Error, "accept", &e.to_string());
        tokio::time::sleep(RETRY).await;
    }
}

fn accept_one(fd: impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let flags = sys::SocketFlags::CLOEXEC | sys::SocketFlags::NONBLOCK;
    let (fd, remote) = sys::acceptfrom_with(fd, flags)?;
    Ok((fd, remote.and_then(|r| SocketAddr::try_from(r).ok())))
}

/// Serves what others hand to this worker, until the server drains.
pub async fn take(worker: Rc<Worker>, mut given: tokio::sync::mpsc::UnboundedReceiver<Handed>) {
    let mut phase = worker.server.phase.clone();
    let mut open = Open::default();
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = given.recv() => accepted,
            _ = phase.wait_for(|p| *p != Phase::Serving) => return,
        };
        match accepted {
            Some(Handed::Connection(accepted)) => conn::start(worker.clone(), accepted),
            Some(Handed::Site(load)) => open.load(&worker, load),
            Some(Handed::Shed(shed)) => {
                if !worker.idle.shed(shed.at.seat, shed.since) {
                    worker.server.crowd.stays(&shed);
                }
            }
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Two servers begin to listen at the same moment: one does, and the other is told.
    fn one_of_two(rounds: usize, address: impl Fn(usize) -> Address + Sync) {
        let (config, meet) = (Config::default(), Barrier::new(2));
        let server = || {
            let begin = |round| {
                let listen = Listen {
                    address: address(round),
                    speaks: Speaks::Http,
                };
                meet.wait();
                let bound = Listener::bind(&listen, &config);
                meet.wait();
                if let Err(e) = &bound {
                    assert_eq!(e.kind(), io::ErrorKind::AddrInUse, "{e}");
                }
                if let Some(file) = bound.as_ref().ok().and_then(|one| one.file.as_ref()) {
                    file.remove();
                }
                bound.is_ok()
            };
            (0..rounds).map(begin).collect::<Vec<_>>()
        };
        let [a, b] = std::thread::scope(|threads| {
            [threads.spawn(server), threads.spawn(server)].map(|one| one.join().unwrap())
        });
        assert!(a.iter().zip(&b).all(|(a, b)| a != b));
    }

    #[test]
    fn of_two_servers_at_once_one_listens() {
        // An address that no other test has: its ports are free.
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let ip = std::net::Ipv4Addr::new(127, a | 128, b, c.clamp(1, 254));
        one_of_two(2000, |round| {
            let port = 20_000 + u16::try_from(round).unwrap();
            Address::Tcp((ip, port).into())
        });
    }

    #[test]
    fn of_two_servers_at_once_one_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        one_of_two(1000, |_| {
            let path = folder.path().join("s");
            Address::Unix(path)
        });
    }
}
