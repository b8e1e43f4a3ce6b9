//! Accepting connections, and which event loop serves them.
//!
//! Each event loop accepts from queues of its own, which the kernel fills, or one of them does for all
//! ([`Listener::hands_over`]): that one hands each connection to the event loop that has fewest.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use galgo_io::{address::Address, sock::register};
use galgo_service::{fault::is_shortage, log::Level};
use rustix::net as sys;
use tokio::{io::Interest, sync::oneshot};

use crate::{
    event_loop::EventLoop,
    listener::{BACKLOG, Listener},
    settings::Speaks,
    shared::{Accepted, Handed, Shared},
    site::{NewSite, SiteService},
};

/// Connections accepted in a row before those that are there get their turn.
pub const IN_A_ROW: usize = 16;
/// Connections beyond `max_connections` that are let in while idle ones are closed for them, or while no event loop has
/// looked at them; beside those that each takes in a row.
pub const CROWD: usize = 64;
/// How long the closing of idle connections is waited for.
const SHED: Duration = Duration::from_millis(2);
/// Without descriptors, accepting is tried again after this.
const RETRY: Duration = Duration::from_millis(50);

/// Serves a connection on an event loop, in a task of its own.
pub(crate) type Serve<S> = fn(Rc<EventLoop<S>>, Accepted);

/// The listeners of one event loop; all are closed when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Open>);

/// A listener that a task accepts from.
#[derive(Debug)]
struct Open {
    asked: Address,
    speaks: Rc<Cell<Speaks>>,
    close: oneshot::Sender<()>,
}

impl Listeners {
    /// Has the new site answer from now on. Closes what it does not name, and accepts from what is new.
    pub(crate) fn follow<S: SiteService>(
        &mut self,
        event_loop: &Rc<EventLoop<S>>,
        new: NewSite<S>,
        serve: Serve<S>,
    ) {
        event_loop.replace(new.make);
        let site = event_loop.site();
        let listen = &site.settings().listen;
        let named = |asked: &Address| listen.iter().find(|l| l.address == *asked);
        for one in self.0.extract_if(.., |one| named(&one.asked).is_none()) {
            let _ = one.close.send(());
        }
        for one in &self.0 {
            if let Some(listen) = named(&one.asked) {
                one.speaks.set(listen.speaks);
            }
        }
        for listener in new.listeners {
            let (close, closed) = oneshot::channel();
            let speaks = Rc::new(Cell::new(listener.listen.speaks));
            self.0.push(Open {
                asked: listener.asked.clone(),
                speaks: speaks.clone(),
                close,
            });
            let acceptor = Acceptor {
                event_loop: event_loop.clone(),
                listener,
                speaks,
                serve,
            };
            tokio::task::spawn_local(acceptor.run(closed));
        }
        drop(new.taken);
    }
}

/// Accepts the connections of one listener.
struct Acceptor<S: SiteService> {
    event_loop: Rc<EventLoop<S>>,
    listener: Listener,
    speaks: Rc<Cell<Speaks>>,
    serve: Serve<S>,
}

impl<S: SiteService> Acceptor<S> {
    /// Accepts until the listener is closed.
    async fn run(self, closed: oneshot::Receiver<()>) {
        tokio::select! {
            biased;
            closed = closed => {
                // A connection that was let in before the listener closed is served, unless the server ends.
                for _ in 0..if closed.is_ok() { BACKLOG } else { 0 } {
                    let Ok(come) = accept_one(&self.listener.fd) else { return };
                    self.place(come);
                }
            }
            Err(e) = self.accept_all() => {
                let errors = &self.event_loop.shared.logs.error;
                errors.write(Level::Error, "listen", &e.to_string());
            }
        }
    }

    /// Accepts connections; never ends but by failing.
    async fn accept_all(&self) -> io::Result<()> {
        let shared = &self.event_loop.shared;
        let fd = register(self.listener.fd.as_raw_fd(), Interest::READABLE)?;
        loop {
            let mut guard = fd.readable().await?;
            for _ in 0..IN_A_ROW {
                if is_crowded(shared) {
                    tokio::time::sleep(SHED).await;
                    break;
                }
                match guard.try_io(|_| accept_one(&self.listener.fd)) {
                    Err(_would_block) => break,
                    Ok(Ok(come)) => self.place(come),
                    Ok(Err(e)) => {
                        not_accepted(shared, &e).await;
                        break;
                    }
                }
            }
        }
    }

    /// Serves a connection here; where no other event loop accepts from the listener, on the one that has fewest.
    fn place(&self, (fd, remote): (OwnedFd, Option<SocketAddr>)) {
        let accepted = Accepted {
            fd,
            remote,
            local: self.listener.only_address(),
            speaks: self.speaks.get(),
        };
        let (loops, here) = (&self.event_loop.shared.loops, self.event_loop.index);
        let connections = |i: &usize| loops[*i].connections();
        let least = (0..loops.len()).min_by_key(connections);
        let elsewhere =
            |least: &usize| self.listener.hands_over && connections(least) < connections(&here);
        let accepted = match least.filter(elsewhere) {
            None => accepted,
            Some(to) => match loops[to].hand(Handed::Connection(accepted)) {
                // That event loop takes nothing any more.
                Err(Handed::Connection(accepted)) => accepted,
                _ => return,
            },
        };
        loops[here].count();
        (self.serve)(self.event_loop.clone(), accepted);
    }
}

/// Whether many connections are open that were asked to close and have not closed yet, or that no event loop has looked
/// at. New ones wait in the kernel meanwhile: there might be no descriptor for what they need.
fn is_crowded<S>(shared: &Shared<S>) -> bool {
    let Shared { loops, crowd, .. } = shared;
    let open: usize = loops.iter().map(|one| one.connections()).sum();
    open.saturating_sub(crowd.staying()) > CROWD + IN_A_ROW * (loops.len() - 1)
}

/// A connection could not be accepted. Most errors concern a connection that is gone already (accept(2)).
async fn not_accepted<S>(shared: &Shared<S>, e: &io::Error) {
    if is_shortage(e) {
        // Descriptors are reserved, so this is the whole system's shortage.
        if let Some(shed) = shared.crowd.any() {
            shared.shed(shed);
        }
        let errors = &shared.logs.error;
        errors.write(Level::Error, "accept", &e.to_string());
        tokio::time::sleep(RETRY).await;
    }
}

fn accept_one(fd: impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let flags = sys::SocketFlags::CLOEXEC | sys::SocketFlags::NONBLOCK;
    let (fd, remote) = sys::acceptfrom_with(fd, flags)?;
    Ok((fd, remote.and_then(|r| SocketAddr::try_from(r).ok())))
}
