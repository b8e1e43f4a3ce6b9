//! The listening sockets. A socket stays open from one configuration to the next if both name its address.

use std::{io, os::fd::OwnedFd};

use galgo_front::{front_settings::Listen, listener::Listener};
use galgo_spawn::{
    identity::{effective_uid, user_name_of},
    trusted_path::others_account,
};
use rustix::process::geteuid;

use crate::{
    config::{Address, Config, Speaks},
    sockets::{
        handover::{Item, LOCK, QUEUE},
        inherited::{Inherited, format_address},
        socket_file::{self, SocketFile},
    },
};

/// An address that the server listens on.
#[derive(Debug)]
pub struct Bound {
    /// The configured address.
    pub(crate) asked: Address,
    /// The address with its real port.
    pub listen: Listen,
    /// The file of a Unix socket.
    file: Option<SocketFile>,
    /// The socket was inherited already open: the process that handed it over may go on using it.
    adopted: bool,
    /// The listening sockets, for the process that may replace this one. Event loops accept from these sockets.
    queues: Vec<OwnedFd>,
}

impl Bound {
    /// Removes the socket's file, so that no client finds the socket any more.
    pub(crate) fn remove(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }

    /// Drops the sockets: they close when the event loops have closed them.
    pub(crate) fn let_go(&mut self) {
        self.queues.clear();
    }

    /// Returns the items that let another process listen here, each with its descriptor.
    pub(crate) fn prepare_handover(&self) -> io::Result<Vec<Item>> {
        let queue = |fd: &OwnedFd| Ok((QUEUE, format_address(&self.asked), fd.try_clone()?));
        let mut items: Vec<_> = self.queues.iter().map(queue).collect::<io::Result<_>>()?;
        if let Some(file) = &self.file {
            let (words, lock) = file.prepare_handover()?;
            items.push((LOCK, words, lock));
        }
        Ok(items)
    }
}

/// Returns the port of the first listener that speaks TLS.
pub(crate) fn https_port<'b>(
    config: &Config,
    mut bound: impl Iterator<Item = &'b Bound>,
) -> Option<u16> {
    let mut listeners = config.listen.iter();
    // A listener's protocol may have changed since it was bound.
    let tls = listeners.find(|l| l.speaks == Speaks::Https && tcp_port(&l.address).is_some())?;
    let bound = bound.find(|one| one.asked == tls.address)?;
    tcp_port(&bound.listen.address)
}

fn tcp_port(address: &Address) -> Option<u16> {
    match address {
        Address::Tcp(at) => Some(at.port()),
        Address::Unix(_) => None,
    }
}

/// Sockets that listen, but that no event loop accepts from yet. If this value is dropped before [`New::into_parts`], the
/// sockets are closed and their files removed.
#[derive(Debug, Default)]
pub(crate) struct New {
    pub(crate) bound: Vec<Bound>,
    /// The new listeners of each event loop.
    queues: Vec<Vec<Listener>>,
    /// Messages about addresses that could not be bound because of the account that owns their folder.
    pub(crate) left_out: Vec<String>,
}

impl New {
    /// Binds the addresses in `config` that are not `open` yet, or uses the `inherited` sockets.
    ///
    /// # Errors
    /// The address that could not be bound, why, and what to do.
    pub(crate) fn bind_new_addresses(
        config: &Config,
        open: &[Bound],
        inherited: &mut Inherited,
    ) -> Result<Self, String> {
        let mut new = Self::default();
        new.queues.resize_with(config.event_loops, Vec::new);
        for (n, listen) in config.listen.iter().enumerate() {
            if open.iter().any(|one| one.asked == listen.address) {
                continue;
            }
            let fds = inherited.take_listeners(&listen.address);
            let fds = fds.map_err(|e| format!("cannot listen on {listen}: {e}"))?;
            let file = inherited.take_socket_file(&listen.address);
            if fds.is_empty() {
                match bind_listener(listen, config).map_err(|e| cannot_listen(listen, open, &e)) {
                    Ok((listener, file)) => new.share_queues(n, vec![listener], file, false),
                    Err(words) if is_in_others_folder(listen, config) => {
                        new.left_out.push(words);
                        continue;
                    }
                    Err(words) => return Err(words),
                }
            } else {
                let adopted = adopt_sockets(listen, fds, config.event_loops);
                let adopted = adopted.map_err(|e| format!("cannot listen on {listen}: {e}"))?;
                new.share_queues(n, adopted, file, true)
            }
            .map_err(|e| format!("cannot open a listening socket for each event loop: {e}"))?;
        }
        match new.left_out.first() {
            Some(words) if open.is_empty() && new.bound.is_empty() => Err(words.clone()),
            _ => Ok(new),
        }
    }

    /// Gives each event loop its own queue of an address. If there is only one queue, one event loop gets it, for each
    /// address another loop.
    fn share_queues(
        &mut self,
        n: usize,
        mut listeners: Vec<Listener>,
        file: Option<SocketFile>,
        adopted: bool,
    ) -> io::Result<()> {
        let loops = self.queues.len();
        let Some(first) = listeners.first() else {
            return Ok(());
        };
        let (asked, listen) = (first.asked.clone(), first.listen.clone());
        if !adopted {
            let more = (1..loops).filter_map(|_| first.open_another().transpose());
            let more: Vec<_> = more.collect::<io::Result<_>>()?;
            listeners.extend(more);
        }
        let queues = listeners.iter().map(|one| one.fd.try_clone());
        self.bound.push(Bound {
            asked,
            listen,
            file,
            adopted,
            queues: queues.collect::<io::Result<_>>()?,
        });
        for (i, listener) in listeners.into_iter().enumerate() {
            self.queues[(n + i) % loops].push(listener);
        }
        Ok(())
    }

    /// Returns the bound addresses, and the listeners of each event loop.
    pub(crate) fn into_parts(mut self) -> (Vec<Bound>, Vec<Vec<Listener>>) {
        let Self { bound, queues, .. } = &mut self;
        (std::mem::take(bound), std::mem::take(queues))
    }
}

impl Drop for New {
    fn drop(&mut self) {
        let made = self.bound.iter().filter(|one| !one.adopted);
        made.for_each(Bound::remove);
    }
}

/// Takes over sockets that listen already.
fn adopt_sockets(listen: &Listen, fds: Vec<OwnedFd>, loops: usize) -> io::Result<Vec<Listener>> {
    // If each event loop had its own queue, each has one again.
    let hands_over = fds.len() == 1 || fds.len() != loops;
    let adopt =
        |fd| Listener::from_listening(fd, listen.address.clone(), listen.speaks, hands_over);
    fds.into_iter().map(adopt).collect()
}

/// Binds and listens, and creates the file of a Unix socket.
///
/// If root becomes another user, each event loop has its own queue. The kernel lets a process join the queues
/// (SO_REUSEPORT) only if it has the user that made the sockets, and no program has that user then. If root stays root,
/// or the server is any other user, programs may have that user.
fn bind_listener(listen: &Listen, config: &Config) -> io::Result<(Listener, Option<SocketFile>)> {
    match &listen.address {
        Address::Tcp(at) => {
            let shares = geteuid().is_root() && config.identity.is_some();
            Ok((Listener::bind_tcp(*at, listen.speaks, shares)?, None))
        }
        Address::Unix(path) => {
            let (fd, file) = socket_file::bind_socket(path, config)?;
            Ok((Listener::listen_on_bound(fd, listen)?, Some(file)))
        }
    }
}

/// Whether another account than root and the server's user controls the path of a Unix socket.
fn is_in_others_folder(listen: &Listen, config: &Config) -> bool {
    let own = config.identity.as_ref();
    let own = own.map_or_else(effective_uid, |identity| identity.uid);
    matches!(&listen.address, Address::Unix(path) if others_account(path, own).is_some())
}

/// Explains why an address cannot be bound, and what to do.
fn cannot_listen(listen: &Listen, open: &[Bound], e: &io::Error) -> String {
    let unix = matches!(listen.address, Address::Unix(_));
    let same_port =
        |one: &&Bound| !unix && tcp_port(&one.listen.address) == tcp_port(&listen.address);
    if let (io::ErrorKind::AddrInUse, Some(own)) = (e.kind(), open.iter().find(same_port)) {
        return format!(
            "cannot listen on {listen}: galgo itself listens on {}: restart galgo to make this change",
            own.listen
        );
    }
    let why = match (e.kind(), unix) {
        (io::ErrorKind::AddrInUse, false) => {
            "another program listens there already. Stop it (ss -ltnp shows which), \
             or choose another port with --listen; port 0 takes a free one"
        }
        (io::ErrorKind::AddrInUse, true) => {
            "another program listens there already, or the file is not a socket: choose another path, or remove the file if it is no socket"
        }
        (io::ErrorKind::PermissionDenied, false) => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE. Choose a port such as 8080, \
             or start with sudo and --user"
        }
        (io::ErrorKind::PermissionDenied, true) => {
            let user = user_name_of(effective_uid());
            return format!(
                "cannot listen on {listen}: user {user} cannot create a file in its folder"
            );
        }
        (io::ErrorKind::NotFound, true) => "its folder does not exist: create it",
        (io::ErrorKind::AddrNotAvailable, _) => {
            "this machine has no such address (ip addr shows those it has)"
        }
        _ => return format!("cannot listen on {listen}: {e}"),
    };
    format!("cannot listen on {listen}: {why}")
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use crate::sockets::listening::*;

    /// Two servers begin to listen at the same moment: one does, and the other gets an error.
    #[test]
    fn of_two_servers_at_once_one_has_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listen: Listen = format!("unix:{}", path.display()).parse().unwrap();
        let (config, meet) = (Config::default(), Barrier::new(2));
        let server = || {
            let begin = |_| {
                meet.wait();
                let bound = bind_listener(&listen, &config);
                meet.wait();
                match &bound {
                    Err(e) => assert_eq!(e.kind(), io::ErrorKind::AddrInUse, "{e}"),
                    Ok((_, file)) => file.as_ref().unwrap().remove(),
                }
                bound.is_ok()
            };
            (0..1000).map(begin).collect::<Vec<_>>()
        };
        let [a, b] = std::thread::scope(|threads| {
            [threads.spawn(server), threads.spawn(server)].map(|one| one.join().unwrap())
        });
        assert!(a.iter().zip(&b).all(|(a, b)| a != b));
    }
}
