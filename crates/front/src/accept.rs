//! Accepts connections, and chooses the event loop that serves each connection.
//!
//! Either each event loop accepts from its own queues, which the kernel fills. Or a single event loop accepts for all
//! ([`Listener::hands_over`]), and hands each connection to the event loop that has fewest.

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
    front_settings::Speaks,
    listener::{BACKLOG, Listener},
    shared_by_loops::{Accepted, Handed, Shared},
    site::{NewSite, SiteService},
};

/// Connections accepted in a row before existing connections get their turn.
pub const IN_A_ROW: usize = 16;
/// Connections beyond `max_connections` that may be open while idle connections close for them, or before an event loop has
/// looked at them. Each other event loop may accept [`IN_A_ROW`] more.
pub const CROWD: usize = 64;
/// Time to wait for idle connections to close.
const SHED: Duration = Duration::from_millis(2);
/// Time until the next try to accept, if no descriptors were left.
const RETRY: Duration = Duration::from_millis(50);

/// Serves a connection on an event loop, in a task of its own.
pub(crate) type Serve<S> = fn(Rc<EventLoop<S>>, Accepted);

/// The listeners of one event loop. Dropping this closes them.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Open>);

/// A listener and the means to close it: a task accepts its connections.
#[derive(Debug)]
struct Open {
    asked: Address,
    speaks: Rc<Cell<Speaks>>,
    close: oneshot::Sender<()>,
}

impl Listeners {
    /// Replaces the site by the new one. Closes listeners that the new site does not name, and accepts from new listeners.
    pub(crate) fn switch_site<S: SiteService>(
        &mut self,
        event_loop: &Rc<EventLoop<S>>,
        new: NewSite<S>,
        serve: Serve<S>,
    ) {
        event_loop.replace_site(new.make);
        let site = event_loop.current_site();
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
            tokio::task::spawn_local(acceptor.accept_until_closed(closed));
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
    async fn accept_until_closed(self, closed: oneshot::Receiver<()>) {
        tokio::select! {
            biased;
            closed = closed => {
                // Serve connections that the kernel accepted before the listener closed, unless the server ends.
                for _ in 0..if closed.is_ok() { BACKLOG } else { 0 } {
                    let Ok(come) = accept_one(&self.listener.fd) else { return };
                    self.place_connection(come);
                }
            }
            Err(e) = self.accept_all() => {
                let errors = &self.event_loop.shared.logs.error;
                errors.write(Level::Error, "listen", &e.to_string());
            }
        }
    }

    /// Accepts connections. Ends only with an error.
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
                    Ok(Ok(come)) => self.place_connection(come),
                    Ok(Err(e)) => {
                        handle_accept_error(shared, &e).await;
                        break;
                    }
                }
            }
        }
    }

    /// Serves a connection here. If no other event loop accepts from this listener, the event loop with fewest connections
    /// serves it.
    fn place_connection(&self, (fd, remote): (OwnedFd, Option<SocketAddr>)) {
        let accepted = Accepted {
            fd,
            remote,
            local: self.listener.fixed_address(),
            speaks: self.speaks.get(),
        };
        let (loops, here) = (&self.event_loop.shared.loops, self.event_loop.index);
        let connections = |i: &usize| loops[*i].connection_count();
        let least = (0..loops.len()).min_by_key(connections);
        let elsewhere =
            |least: &usize| self.listener.hands_over && connections(least) < connections(&here);
        let accepted = match least.filter(elsewhere) {
            None => accepted,
            Some(to) => match loops[to].send_message(Handed::Connection(accepted)) {
                // The other event loop takes nothing any more: serve the connection here.
                Err(Handed::Connection(accepted)) => accepted,
                _ => return,
            },
        };
        loops[here].count_connection();
        (self.serve)(self.event_loop.clone(), accepted);
    }
}

/// Returns whether too many connections are open that were asked to close and have not closed yet, or that no event loop has
/// looked at. If so, new connections wait in the kernel: there might be no descriptors for the files they need.
fn is_crowded<S>(shared: &Shared<S>) -> bool {
    let Shared { loops, crowd, .. } = shared;
    let open: usize = loops.iter().map(|one| one.connection_count()).sum();
    open.saturating_sub(crowd.staying_count()) > CROWD + IN_A_ROW * (loops.len() - 1)
}

/// Handles an error of accept(2). Most errors concern a connection that is gone already (accept(2)).
async fn handle_accept_error<S>(shared: &Shared<S>, e: &io::Error) {
    if is_shortage(e) {
        // This process has descriptors in reserve, so the whole system is short of them.
        if let Some(shed) = shared.crowd.choose_to_close() {
            shared.request_close(shed);
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
