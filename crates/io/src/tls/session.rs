//! A TLS session, between the socket and the code that reads and writes its content.

use std::{
    io::{self, IoSlice, Read, Write},
    os::fd::BorrowedFd,
    task::{Context, Poll, ready},
};

use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, sendmsg},
};
use rustls::ServerConnection;

use super::{
    clients::{ClientCertificate, UserIs},
    server::{Agreed, TlsServer},
};
use crate::{buf::Buf, sock::Sock, turn, watch::Direction};

/// A TLS session. Encrypted bytes that could not be sent wait in it, about [`PENDING`] bytes at most: the next write sends them
/// first.
#[derive(Debug)]
pub(crate) struct Session {
    tls: ServerConnection,
    /// Bytes that were received and not yet decrypted.
    received: Buf,
    /// Set if the client was asked for a certificate; inside is the part of it that names the user.
    asked: Option<Option<UserIs>>,
    /// Bytes that were encrypted for a write which has not returned yet.
    taken: usize,
    /// Whether the client has said that it sends no more (close_notify).
    ended: bool,
}

/// Encrypted bytes that may wait to be sent, more or less.
const PENDING: usize = 64 << 10;
/// Least overhead of a record, in bytes: its head and its tag (RFC 8446, 5.2). The overhead shows how many records have come.
const RECORD: usize = 5 + 16;
/// Most reads in a row that bring no data for the caller: parts of records, or empty records.
const EMPTY: usize = 8;

impl Session {
    /// Creates a session before its first message. `received` holds bytes that came before the session began.
    pub(crate) fn new(server: &TlsServer, received: Buf) -> io::Result<Self> {
        let mut tls = ServerConnection::new(server.config.clone()).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(PENDING));
        Ok(Self {
            tls,
            received,
            asked: server.clients.as_ref().map(|clients| clients.user),
            taken: 0,
            ended: false,
        })
    }

    /// Shakes hands. Data that the client sends after the handshake goes to `buf`.
    pub(crate) fn poll_handshake(
        &mut self,
        sock: &Sock,
        buf: &mut Buf,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.decrypt_and_flush(sock, buf)?;
        while self.tls.is_handshaking() || self.tls.wants_write() {
            if self.tls.wants_write() {
                ready!(self.poll_flush(sock, false, &mut false, cx))?;
                continue;
            }
            if ready!(sock.poll_fill(&mut self.received, 0, waits, cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.decrypt_and_flush(sock, buf)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Calls `fill` to read from the socket until `buf` has got some of the client's data. `fill` appends encrypted bytes to
    /// its argument. Returns 0 if the client has ended its side.
    pub(crate) fn poll_read(
        &mut self,
        sock: &Sock,
        buf: &mut Buf,
        cx: &mut Context<'_>,
        mut fill: impl FnMut(&mut Buf, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        for _ in 0..EMPTY {
            if self.ended {
                return Poll::Ready(Ok(0));
            }
            let read = ready!(fill(&mut self.received, cx))?;
            if read == 0 {
                // Without close_notify some data may be missing.
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            match self.decrypt_and_flush(sock, buf)? {
                0 => {}
                n => return Poll::Ready(Ok(n)),
            }
        }
        // Let other tasks run: a client may send empty records as fast as we read them.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Decrypts everything that was received. Then sends the session's own messages, above all alerts, as far as there is room
    /// for them.
    fn decrypt_and_flush(&mut self, sock: &Sock, buf: &mut Buf) -> io::Result<usize> {
        let decrypted = self.decrypt(buf);
        if self.tls.wants_write() && self.taken == 0 {
            let _ = self.try_flush(sock);
        }
        decrypted
    }

    fn decrypt(&mut self, buf: &mut Buf) -> io::Result<usize> {
        let received = std::mem::take(&mut self.received);
        let (mut left, mut decrypted) = (received.as_slice(), 0);
        while !left.is_empty() {
            // rustls takes no data after close_notify, and such data means nothing.
            if self.tls.read_tls(&mut left)? == 0 {
                break;
            }
            let state = self.tls.process_new_packets();
            let state = state.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            let here = state.plaintext_bytes_to_read();
            if here > 0 {
                let room = buf.reserve_read(here);
                let start = room.len();
                room.resize(start + here, 0);
                self.tls.reader().read_exact(&mut room[start..])?;
                decrypted += here;
            }
            self.ended |= state.peer_has_closed();
        }
        let around = received.len().saturating_sub(decrypted) / RECORD;
        turn::spend_units(turn::PIECE.saturating_mul(u32::try_from(around).unwrap_or(u32::MAX)));
        Ok(decrypted)
    }

    /// Encrypts as much of `bufs` as fits, and sends it. Resolves once all of that was sent.
    pub(crate) fn poll_write(
        &mut self,
        sock: &Sock,
        bufs: &[IoSlice<'_>],
        more: bool,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.taken == 0 {
            ready!(self.poll_flush(sock, true, waits, cx))?;
            self.taken = self.tls.writer().write_vectored(bufs)?;
        }
        ready!(self.poll_flush(sock, more, waits, cx))?;
        Poll::Ready(Ok(std::mem::take(&mut self.taken)))
    }

    /// Writes like [`Session::poll_write`], but never waits: `None` if there is no room.
    pub(crate) fn try_write(&mut self, sock: &Sock, bytes: &[u8]) -> io::Result<Option<usize>> {
        if self.taken > 0 || !self.try_flush(sock)? {
            return Ok(None);
        }
        let taken = self.tls.writer().write(bytes)?;
        self.try_flush(sock)?;
        Ok(Some(taken))
    }

    /// Tells the client that nothing more is sent (close_notify).
    pub(crate) fn send_close_notify(&mut self, sock: &Sock) {
        self.tls.send_close_notify();
        // If there is no room, the client has much unread data. It then learns of the end when the connection ends.
        let _ = self.try_flush(sock);
    }

    /// Returns about how many bytes wait to be sent.
    pub(crate) fn pending_len(&self) -> usize {
        if self.tls.wants_write() {
            self.taken.max(1)
        } else {
            0
        }
    }

    /// Returns the protocol that the handshake agreed on (RFC 7301).
    pub(crate) fn alpn_protocol(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    pub(crate) fn agreed(&self) -> Option<Agreed> {
        let cipher = self.tls.negotiated_cipher_suite()?.suite();
        let shown = self.tls.peer_certificates().and_then(<[_]>::first);
        let client = shown.and_then(|one| ClientCertificate::from_der(one));
        let user = self.asked.flatten().zip(client.as_ref());
        Some(Agreed {
            protocol: match self.tls.protocol_version()? {
                rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
                _ => "TLSv1.3",
            },
            // rustls marks the names of TLS 1.3 suites with `TLS13_`.
            cipher: cipher.as_str()?.replacen("TLS13_", "TLS_", 1),
            server_name: self.tls.server_name().map(str::to_owned),
            asked: self.asked.is_some(),
            user: user.and_then(|(is, client)| client.user_name(is).map(str::to_owned)),
            client,
        })
    }

    fn poll_flush(
        &mut self,
        sock: &Sock,
        more: bool,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let sent = sock.poll_call(Direction::Out, waits, cx, |fd| {
                self.send_encrypted(fd, more)
            });
            ready!(sent)?;
            *waits = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the encrypted bytes. Returns false if there is no room for all of them.
    fn try_flush(&mut self, sock: &Sock) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.send_encrypted(std::os::fd::AsFd::as_fd(sock), false) {
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    fn send_encrypted(&mut self, fd: BorrowedFd<'_>, more: bool) -> Result<usize, Errno> {
        let flags = if more {
            SendFlags::MORE | SendFlags::NOSIGNAL
        } else {
            SendFlags::NOSIGNAL
        };
        let sent = self.tls.write_tls(&mut Sends { fd, flags });
        sent.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
    }
}

/// Returns why a handshake failed, as a sentence; `None` if the client has just left.
pub fn explain_handshake_error(e: &io::Error) -> Option<String> {
    let why = e.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match why {
        // rustls returns this error if the server has no certificate to show.
        rustls::Error::General(_) => {
            "there is no certificate for the host that the client asked for".to_owned()
        }
        rustls::Error::NoCertificatesPresented => "the client sent no certificate".to_owned(),
        rustls::Error::InvalidCertificate(e) => {
            format!("the client's certificate is not accepted: {e}")
        }
        rustls::Error::AlertReceived(alert) => format!("the client sent the alert {alert:?}"),
        rustls::Error::InvalidMessage(_) => "the client does not speak TLS".to_owned(),
        why => why.to_string(),
    })
}

/// A socket to which rustls writes.
struct Sends<'f> {
    fd: BorrowedFd<'f>,
    flags: SendFlags,
}

impl Write for Sends<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(self.fd, bufs, &mut nothing, self.flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
