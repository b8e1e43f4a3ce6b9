//! Closing a connection so that its last response arrives.

use std::time::Duration;

use galgo_io::{buf::Buf, transport::Transport};
use tokio::time::{Instant, timeout_at};

/// Longest time for which a connection with unread data stays open, so that the response arrives.
const LINGER: Duration = Duration::from_secs(2);

/// Closes so that sent data arrives. Unread data would make the kernel send a reset, which may overtake the response (RFC 9112,
/// 9.6).
pub(crate) async fn linger(sock: &Transport) {
    if sock.end_output().is_err() {
        return;
    }
    let until = Instant::now() + LINGER;
    let mut last = Buf::default();
    while matches!(timeout_at(until, sock.fill_buffer(&mut last, 64 << 10)).await, Ok(Ok(n)) if n > 0)
    {
        let all = last.len();
        last.consume(all);
    }
}
