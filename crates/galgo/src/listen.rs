//! Listening sockets, and the connections they accept.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags},
    io::Errno,
    net as sys,
};
use tokio::{io::Interest, sync::oneshot};

use crate::{
    balance::{self, Asked},
    config::{Address, Config, Listen, Speaks},
    conn,
    log::Level,
    sock::register,
    worker::{Handed, Load, Phase, Worker},
};

/// Connections the kernel may hold before they are accepted; capped by `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Connections taken in a row before those that are there get their turn.
const IN_A_ROW: usize = 16;
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
    /// The file of a Unix socket.
    file: Option<SocketFile>,
}

/// The file that binding a Unix socket made.
#[derive(Debug, Clone)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    own: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            own: identity(path)?,
        })
    }

    /// Removes the file, unless another server has put its own there meanwhile.
    pub fn remove(&self) {
        if identity(&self.path).is_ok_and(|now| now == self.own) {
            // The folder may be closed to the user that the server became.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let stat = path.symlink_metadata()?;
    Ok((stat.dev(), stat.ino()))
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
    /// What it was asked for until now.
    pub asked: Asked,
}

impl Listener {
    /// Binds and listens.
    ///
    /// # Errors
    /// Whatever the system says, and a peer group or mode that it does not allow.
    pub fn bind(listen: &Listen, config: &Config) -> io::Result<Self> {
        let (fd, address, file) = match &listen.address {
            Address::Tcp(at) => {
                let (fd, address) = bind_tcp(*at)?;
                (fd, address, None)
            }
            Address::Unix(path) => {
                let fd = bind_unix(path)?;
                // Nobody is connected before listen(2), whatever the mode was until now.
                permit(path, config.socket_mode, config.socket_group)?;
                (fd, listen.address.clone(), Some(SocketFile::of(path)?))
            }
        };
        sys::listen(&fd, BACKLOG)?;
        Ok(Self {
            fd,
            asked: listen.address.clone(),
            listen: Listen {
                address,
                speaks: listen.speaks,
            },
            file,
        })
    }

    /// The same address for another event loop: with a queue of its own where the kernel can (SO_REUSEPORT), so
    /// that a connection wakes one of them and not all.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn another(&self) -> io::Result<Self> {
        let fd = match &self.listen.address {
            Address::Tcp(at) => {
                let fd = tcp_socket(*at)?;
                sys::sockopt::set_socket_reuseport(&fd, true)?;
                sys::bind(&fd, at)?;
                sys::listen(&fd, BACKLOG)?;
                fd
            }
            Address::Unix(_) => self.fd.try_clone()?,
        };
        Ok(Self {
            fd,
            asked: self.asked.clone(),
            listen: self.listen.clone(),
            file: None,
        })
    }

    /// The address that all its connections have on our side.
    fn only_address(&self) -> Option<SocketAddr> {
        match self.listen.address {
            Address::Tcp(at) if !at.ip().is_unspecified() => Some(at),
            Address::Tcp(_) | Address::Unix(_) => None,
        }
    }

    /// The file of a Unix socket, to remove when the server ends.
    pub fn socket_file(&self) -> Option<SocketFile> {
        self.file.clone()
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

fn new_socket(family: sys::AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = sys::SocketFlags::CLOEXEC | sys::SocketFlags::NONBLOCK;
    sys::socket_with(family, sys::SocketType::STREAM, flags, None)
}

fn bind_tcp(at: SocketAddr) -> io::Result<(OwnedFd, Address)> {
    let fd = tcp_socket(at)?;
    sys::bind(&fd, &at)?;
    // Not before: another server that listens there is an error, also where it would share.
    sys::sockopt::set_socket_reuseport(&fd, true)?;
    let real = SocketAddr::try_from(sys::getsockname(&fd)?)?;
    Ok((fd, Address::Tcp(real)))
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

/// A socket file that nobody listens on any more is replaced; one that answers is not.
fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let fd = new_socket(sys::AddressFamily::UNIX)?;
    let at = sys::SocketAddrUnix::new(path)?;
    match sys::bind(&fd, &at) {
        // A file that is no socket refuses connections too, and is not ours to remove.
        Err(Errno::ADDRINUSE)
            if path.symlink_metadata()?.file_type().is_socket()
                && sys::connect(new_socket(sys::AddressFamily::UNIX)?, &at)
                    == Err(Errno::CONNREFUSED) =>
        {
            std::fs::remove_file(path)?;
            sys::bind(&fd, &at)?;
        }
        done => done?,
    }
    Ok(fd)
}

/// Gives the file of a socket that was just bound its mode and group. By its descriptor: where others may write to the
/// folder, the name may be that of something else by now, and this may be root.
fn permit(path: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let is_socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    if !is_socket || stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(
            "another file has taken its place: its folder must be closed to others",
        ));
    }
    if let Some(group) = group {
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(&file, "", None, group, AtFlags::EMPTY_PATH)?;
    }
    // No mode is set by a descriptor of this kind, but by its name in /proc (open(2), O_PATH).
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(name, Mode::from_raw_mode(mode))?)
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
        asked: Asked::Nothing,
    };
    balance::place(worker, accepted);
}

/// A connection could not be accepted. Most that goes wrong concerns one that is gone already (accept(2)).
async fn not_accepted(worker: &Worker, e: &io::Error) {
    let out = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    if out
        .iter()
        .any(|o| e.raw_os_error() == Some(o.raw_os_error()))
    {
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
    use std::{
        fs,
        os::unix::{fs::PermissionsExt, net::UnixListener},
    };

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    /// A program that may write to the folder wins the race between bind(2) and the mode.
    #[test]
    fn only_a_socket_is_given_the_mode_of_one() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, socket] = ["file", "link", "socket"].map(|name| folder.path().join(name));
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        for other in [&link, &file] {
            assert!(permit(other, 0o666, None).is_err());
            assert_eq!(mode(&file), 0o600);
        }
        let own = rustix::process::getegid().as_raw();
        permit(&socket, 0o610, Some(own)).unwrap();
        assert_eq!(mode(&socket), 0o610);
    }
}
