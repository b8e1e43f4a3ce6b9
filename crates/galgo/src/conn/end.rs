//! The end of a request and of its connection: what is left of the body, and closing so that the response
//! arrives.

use std::{os::fd::AsFd, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{Conn, body::RequestBody, send::After};
use crate::{buf::Buf, client::Next, sock::Sock};

/// A request body that nobody read is taken in up to this size, so that the connection can go on.
pub(super) const DRAIN: u64 = 256 << 10;
/// A connection that is closed with unread data lingers this long, so that the response arrives.
const LINGER: Duration = Duration::from_secs(2);

impl Conn<'_> {
    /// Takes in what is left of a request body, so that the next head is found behind it.
    pub(super) async fn rest_of_body(&mut self, body: &mut RequestBody) -> After {
        let start = body.taken();
        loop {
            match body.next(&mut self.input.buf) {
                Ok(Next::End) => {
                    let owed = body.owed();
                    return match owed.is_empty() || self.sock.try_write(&owed).is_ok() {
                        true => After::KeepAlive,
                        false => After::Reset,
                    };
                }
                Ok(Next::Data(n)) if body.taken() - start <= DRAIN => {
                    body.take(&mut self.input.buf, n);
                }
                Ok(Next::More) => {
                    // The response is whole: a reset might overtake it.
                    if self.input.fill_body().await.is_err() {
                        return After::Close;
                    }
                }
                _ => return After::Close,
            }
        }
    }

    /// Whether all that has come was read: closing then makes no reset.
    pub(super) fn is_drained(&self) -> bool {
        self.input.buf.is_empty() && rustix::io::ioctl_fionread(&*self.sock) == Ok(0)
    }

    /// Closes so that what was sent arrives: unread data would make the kernel send a reset, which
    /// may overtake the response (RFC 9112, 9.6).
    pub(super) async fn linger(&mut self) {
        if rustix::net::shutdown(self.sock.as_fd(), rustix::net::Shutdown::Write).is_err() {
            return;
        }
        let until = Instant::now() + LINGER;
        let mut last = Buf::default();
        while matches!(timeout_at(until, self.sock.fill(&mut last, 64 << 10)).await, Ok(Ok(n)) if n > 0)
        {
            let all = last.len();
            last.consume(all);
        }
    }
}

/// Closes so that the client sees that the response was cut.
pub(super) fn reset(sock: &Sock) {
    let _ = rustix::net::sockopt::set_socket_linger(sock.as_fd(), Some(Duration::ZERO));
}
