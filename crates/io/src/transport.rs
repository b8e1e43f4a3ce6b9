//! A client's connection: a socket, plain or under TLS.
//!
//! Callers read and write both kinds alike. Over a plain socket the kernel moves bytes itself if it can, without a copy
//! (sendfile(2), splice(2)). Under TLS the bytes go through a buffer.

use std::{
    cell::{Cell, OnceCell, RefCell},
    future::poll_fn,
    io::{self, IoSlice},
    os::fd::AsFd,
    task::{Context, Poll},
};

use rustix::buffer::spare_capacity;

use crate::{
    buf::Buf,
    pool,
    sock::Sock,
    tls::{Agreed, Session, TlsServer},
};

/// A connection that the event loop of this thread serves.
#[derive(Debug)]
pub struct Transport {
    sock: Sock,
    /// The TLS session, once it has begun.
    tls: OnceCell<Box<RefCell<Session>>>,
    /// Whether the connection ends so that the client sees that something is missing.
    cut: Cell<bool>,
}

impl Transport {
    /// Creates a plain connection.
    pub fn new(sock: Sock) -> Self {
        Self {
            sock,
            tls: OnceCell::new(),
            cut: Cell::new(false),
        }
    }

    /// Shakes hands for TLS. `buf` holds the bytes that were received already. Afterwards it holds what the client sent after
    /// the handshake.
    ///
    /// # Errors
    /// The handshake failed. The client was told why, as far as TLS has alerts for it.
    pub async fn accept(&self, server: &TlsServer, buf: &mut Buf) -> io::Result<()> {
        let session = RefCell::new(Session::new(server, std::mem::take(buf))?);
        let tls = self.tls.get_or_init(|| Box::new(session));
        let mut waits = false;
        poll_fn(|cx| {
            let mut session = tls.borrow_mut();
            session.poll_handshake(&self.sock, buf, &mut waits, cx)
        })
        .await
    }

    /// Returns the terms on which the handshake agreed; `None` if nothing is encrypted.
    pub fn agreed(&self) -> Option<Agreed> {
        self.tls.get()?.borrow().agreed()
    }

    /// Returns whether the handshake agreed on this protocol (ALPN, RFC 7301): [`H2`](crate::tls::H2), or
    /// [`ACME`](crate::tls::ACME).
    pub fn alpn_is(&self, protocol: &[u8]) -> bool {
        let tls = self.tls.get();
        tls.is_some_and(|tls| tls.borrow().alpn_protocol() == Some(protocol))
    }

    /// Returns the socket if bytes may be sent without encryption.
    pub fn plain_sock(&self) -> Option<&Sock> {
        match self.tls.get() {
            None => Some(&self.sock),
            Some(_) => None,
        }
    }

    /// Returns the socket, for calls that neither read nor write its bytes.
    pub fn sock(&self) -> &Sock {
        &self.sock
    }

    /// Reads like [`Sock::poll_fill`].
    pub fn poll_fill(
        &self,
        buf: &mut Buf,
        want: usize,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let sock = &self.sock;
        match self.tls.get() {
            None => sock.poll_fill(buf, want, waits, cx),
            Some(tls) => {
                let mut tls = tls.borrow_mut();
                tls.poll_read(sock, buf, cx, |received, cx| {
                    sock.poll_fill(received, want, waits, cx)
                })
            }
        }
    }

    /// Does the same as [`Transport::poll_fill`], as a future.
    pub async fn fill_buffer(&self, buf: &mut Buf, want: usize) -> io::Result<usize> {
        let mut waits = false;
        poll_fn(|cx| self.poll_fill(buf, want, &mut waits, cx)).await
    }

    /// Waits for the next request like [`Sock::poll_read_idle`].
    pub fn poll_read_idle(&self, buf: &mut Buf, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let sock = &self.sock;
        match self.tls.get() {
            None => sock.poll_read_idle(buf, cx),
            Some(tls) => {
                let mut tls = tls.borrow_mut();
                tls.poll_read(sock, buf, cx, |received, cx| {
                    sock.poll_read_idle(received, cx)
                })
            }
        }
    }

    /// Does the same as [`Transport::poll_read_idle`], as a future.
    pub async fn read_idle(&self, buf: &mut Buf) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read_idle(buf, cx)).await
    }

    /// Writes as much of `bufs` as fits. `more`: more data follows, or the end of the connection, so a part of a segment may
    /// wait for that.
    pub fn write(
        &self,
        bufs: &[IoSlice<'_>],
        more: bool,
    ) -> impl Future<Output = io::Result<usize>> {
        let mut waits = false;
        poll_fn(move |cx| self.poll_write(bufs, more, &mut waits, cx))
    }

    /// Does the same as [`Transport::write`], as a poll function. `waits`: a write was tried already, and this call waits for
    /// room. A caller that has begun to write must go on with bytes that begin the same: under TLS they may have been encrypted
    /// already.
    pub fn poll_write(
        &self,
        bufs: &[IoSlice<'_>],
        more: bool,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match self.tls.get() {
            None if more => self.sock.poll_write_more(bufs, waits, cx),
            None => self.sock.poll_write(bufs, waits, cx),
            Some(tls) => {
                let mut tls = tls.borrow_mut();
                tls.poll_write(&self.sock, bufs, more, waits, cx)
            }
        }
    }

    /// Writes like [`Sock::try_write`].
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self.tls.get() {
            None => self.sock.try_write(bytes),
            Some(tls) => tls.borrow_mut().try_write(&self.sock, bytes),
        }
    }

    /// Sends bytes of a file, and advances `offset`. If nothing is encrypted, the bytes are not copied.
    pub async fn sendfile(
        &self,
        file: impl AsFd,
        offset: &mut u64,
        len: usize,
    ) -> io::Result<usize> {
        if self.tls.get().is_none() {
            let (sock, mut waits) = (&self.sock, false);
            return poll_fn(|cx| sock.poll_sendfile(&file, offset, len, &mut waits, cx)).await;
        }
        let mut piece = pool::take_buffer();
        let read = rustix::io::pread(file, spare_capacity(&mut piece), *offset)?;
        let sent = match read.min(len) {
            0 => 0,
            n => self.write(&[IoSlice::new(&piece[..n])], n < len).await?,
        };
        pool::return_buffer(piece);
        *offset += sent as u64;
        Ok(sent)
    }

    /// Returns how many written bytes the client has not acknowledged; `None` if the system does not know.
    pub fn unacknowledged_bytes(&self) -> Option<usize> {
        let pending = self.tls.get().map_or(0, |tls| tls.borrow().pending_len());
        self.sock.unacknowledged_bytes().map(|sent| sent + pending)
    }

    /// Shuts down the sending side.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn end_output(&self) -> io::Result<()> {
        self.send_close_notify();
        self.sock.end_output()
    }

    /// Makes closing reset the connection, so that the client sees that something is missing.
    pub fn reset_on_close(&self) {
        self.cut.set(true);
        self.sock.reset_on_close();
    }

    fn send_close_notify(&self) {
        if let Some(tls) = self.tls.get()
            && !self.cut.replace(true)
        {
            tls.borrow_mut().send_close_notify(&self.sock);
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.send_close_notify();
    }
}
