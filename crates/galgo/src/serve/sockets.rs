//! The sockets that are listened on: kept from one configuration to the next where both name them.

use std::io;

use crate::{
    config::{Address, Config, Listen},
    listen::Listener,
    socket_file::SocketFile,
};

/// An address that is listened on.
#[derive(Debug)]
pub struct Bound {
    /// As it is configured.
    pub(super) asked: Address,
    /// With its real port.
    pub listen: Listen,
    /// The file of a Unix socket.
    file: Option<SocketFile>,
}

impl Bound {
    fn of(listener: &mut Listener) -> Self {
        Self {
            asked: listener.asked.clone(),
            listen: listener.listen.clone(),
            file: listener.take_socket_file(),
        }
    }

    /// Nobody can come by the file of its socket any more.
    pub(super) fn remove(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
    }
}

/// Sockets that are listened on, and not yet accepted from. Dropped before they are [taken](New::take), none is left.
#[derive(Debug, Default)]
pub(super) struct New {
    pub(super) bound: Vec<Bound>,
    /// For each worker.
    queues: Vec<Vec<Listener>>,
}

impl New {
    /// Binds what `config` names and is not `open`.
    ///
    /// # Errors
    /// What could not be bound, why, and what to do.
    pub(super) fn bind(config: &Config, open: &[Bound]) -> Result<Self, String> {
        let mut new = Self::default();
        new.queues.resize_with(config.workers, Vec::new);
        for (n, listen) in config.listen.iter().enumerate() {
            if !open.iter().any(|one| one.asked == listen.address) {
                let bound = Listener::bind(listen, config);
                let mut listener = bound.map_err(|e| cannot_listen(listen, open, &e))?;
                new.bound.push(Bound::of(&mut listener));
                new.share(n, listener)
                    .map_err(|e| format!("cannot listen once for each event loop: {e}"))?;
            }
        }
        Ok(new)
    }

    /// Gives each event loop a queue, or all of them to one; of several listeners each to another.
    fn share(&mut self, n: usize, listener: Listener) -> io::Result<()> {
        let home = n % self.queues.len();
        for i in (0..self.queues.len()).filter(|&i| i != home) {
            self.queues[i].extend(listener.another()?);
        }
        self.queues[home].push(listener);
        Ok(())
    }

    /// What is bound, and the listeners of each worker.
    pub(super) fn take(mut self) -> (Vec<Bound>, Vec<Vec<Listener>>) {
        (
            std::mem::take(&mut self.bound),
            std::mem::take(&mut self.queues),
        )
    }
}

impl Drop for New {
    fn drop(&mut self) {
        self.bound.iter().for_each(Bound::remove);
    }
}

/// Why nothing can be bound there, and what to do.
fn cannot_listen(listen: &Listen, open: &[Bound], e: &io::Error) -> String {
    let unix = matches!(listen.address, Address::Unix(_));
    let port = |address: &Address| match address {
        Address::Tcp(at) => Some(at.port()),
        Address::Unix(_) => None,
    };
    let same_port = |one: &&Bound| !unix && port(&one.listen.address) == port(&listen.address);
    if let (io::ErrorKind::AddrInUse, Some(own)) = (e.kind(), open.iter().find(same_port)) {
        return format!(
            "cannot listen on {listen}: galgo itself listens on {} until it is started again, which this takes",
            own.listen
        );
    }
    let why = match (e.kind(), unix) {
        (io::ErrorKind::AddrInUse, false) => {
            "another program listens there already. Stop it (ss -ltnp shows which), \
             or choose another port with --listen; port 0 takes a free one"
        }
        (io::ErrorKind::AddrInUse, true) => {
            "another program listens there already, or the file is no socket"
        }
        (io::ErrorKind::PermissionDenied, false) => {
            "ports below 1024 need root or CAP_NET_BIND_SERVICE. Choose a port such as 8080, \
             or start with sudo and --user"
        }
        (io::ErrorKind::PermissionDenied, true) => "this user may not create a file in that folder",
        (io::ErrorKind::NotFound, true) => "its folder does not exist: create it",
        (io::ErrorKind::AddrNotAvailable, _) => {
            "this machine has no such address (ip addr shows those it has)"
        }
        _ => return format!("cannot listen on {listen}: {e}"),
    };
    format!("cannot listen on {listen}: {why}")
}
