//! A client's connection: a socket, plain or under TLS.
//!
//! What is written and read is the same in both. Over a plain socket nothing is copied that the kernel can move itself
//! (sendfile(2), splice(2)); under TLS it goes through a buffer.

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

/// A connection, with an event loop of its own thread.
#[derive(Debug)]
pub struct Transport {
    sock: Sock,
    /// The session, once it has begun.
    tls: OnceCell<Box<RefCell<Session>>>,
    /// It ends so that the client sees that something is missing.
    cut: Cell<bool>,
}

impl Transport {
    /// A plain connection.
    pub fn new(sock: Sock) -> Self {
        Self {
            sock,
            tls: OnceCell::new(),
            cut: Cell::new(false),
        }
    }

    /// Begins TLS. `buf` has what was received already, and then what the client sends behind the handshake.
    ///
    /// # Errors
    /// There was no agreement; the client has been told why, as far as TLS has words for it.
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

    /// What was agreed upon; `None` where nothing is encrypted.
    pub fn agreed(&self) -> Option<Agreed> {
        self.tls.get()?.borrow().agreed()
    }

    /// Whether that was agreed upon (ALPN, RFC 7301): [`H2`](crate::tls::H2), or [`ACME`](crate::tls::ACME).
    pub fn alpn_is(&self, protocol: &[u8]) -> bool {
        let tls = self.tls.get();
        tls.is_some_and(|tls| tls.borrow().alpn() == Some(protocol))
    }

    /// The socket, where bytes may go by it as they are.
    pub fn raw(&self) -> Option<&Sock> {
        match self.tls.get() {
            None => Some(&self.sock),
            Some(_) => None,
        }
    }

    /// The socket, for what is not about its bytes.
    pub fn sock(&self) -> &Sock {
        &self.sock
    }

    /// As [`Sock::poll_fill`].
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

    /// As [`Transport::poll_fill`], awaited.
    pub async fn fill(&self, buf: &mut Buf, want: usize) -> io::Result<usize> {
        let mut waits = false;
        poll_fn(|cx| self.poll_fill(buf, want, &mut waits, cx)).await
    }

    /// As [`Sock::poll_read_idle`].
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

    /// As [`Transport::poll_read_idle`], awaited.
    pub async fn read_idle(&self, buf: &mut Buf) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read_idle(buf, cx)).await
    }

    /// Writes what fits of `bufs`. `more` follows, or the end of the connection: what does not fill a segment waits for that.
    pub fn write(
        &self,
        bufs: &[IoSlice<'_>],
        more: bool,
    ) -> impl Future<Output = io::Result<usize>> {
        let mut waits = false;
        poll_fn(move |cx| self.poll_write(bufs, more, &mut waits, cx))
    }

    /// As [`Transport::write`], polled. `waits`: it was tried at once already, and is awaited. Whoever has begun to write goes on
    /// with bytes that begin the same: under TLS they may have been encrypted already.
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

    /// As [`Sock::try_write`].
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match self.tls.get() {
            None => self.sock.try_write(bytes),
            Some(tls) => tls.borrow_mut().try_write(&self.sock, bytes),
        }
    }

    /// Sends bytes of a file, without copying them where nothing is encrypted; moves `offset`.
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
        let mut piece = pool::take();
        let read = rustix::io::pread(file, spare_capacity(&mut piece), *offset)?;
        let sent = match read.min(len) {
            0 => 0,
            n => self.write(&[IoSlice::new(&piece[..n])], n < len).await?,
        };
        pool::give(piece);
        *offset += sent as u64;
        Ok(sent)
    }

    /// Bytes that were written and that the client has not acknowledged, where the system knows.
    pub fn unacknowledged(&self) -> Option<usize> {
        let pending = self.tls.get().map_or(0, |tls| tls.borrow().pending());
        self.sock.unacknowledged().map(|sent| sent + pending)
    }

    /// Shuts down the sending side.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn end_output(&self) -> io::Result<()> {
        self.close();
        self.sock.end_output()
    }

    /// Closing resets the connection, so that the client sees that something is missing.
    pub fn reset_on_close(&self) {
        self.cut.set(true);
        self.sock.reset_on_close();
    }

    fn close(&self) {
        if let Some(tls) = self.tls.get()
            && !self.cut.replace(true)
        {
            tls.borrow_mut().close(&self.sock);
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.close();
    }
}
