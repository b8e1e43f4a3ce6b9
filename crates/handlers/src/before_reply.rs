//! Steps before there is a reply: waits during which the client may leave, and requests that may be sent again.

use std::{
    pin::{Pin, pin},
    task::Poll,
};

use galgo_io::rate_allowance::poll_once;
use galgo_proto::h1::Head;
use galgo_service::{fault::Fault, producer::OutputEvent, request::Request};
use tokio::time::Instant;

use crate::upstream::exchange::Exchange;

/// Waits for a permit, or a connection, and notices a client that leaves meanwhile. The time counts as spent in the queue.
pub(crate) async fn wait_for<T>(
    request: &mut Request<'_>,
    permit: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let mut permit = pin!(permit);
    // Nearly always a permit is free at once: no clock is read then.
    if let Poll::Ready(found) = poll_once(permit.as_mut()).await {
        return found;
    }
    Box::pin(wait_long(request, permit)).await
}

async fn wait_long<T>(
    request: &mut Request<'_>,
    permit: Pin<&mut impl Future<Output = Result<T, Fault>>>,
) -> Result<T, Fault> {
    let began = Instant::now();
    let found = request.client.await_while_connected(permit).await??;
    request.entry.borrow_mut().queue += began.elapsed();
    Ok(found)
}

/// Returns whether the request's method allows sending it again without harm (RFC 9110, 9.2.2).
pub(crate) fn may_repeat(head: &Head) -> bool {
    ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"].contains(&head.method.as_str())
}

/// Waits until an exchange has brought the first byte. `None`: its connection was stale, and the request may be sent again.
///
/// # Errors
/// The client has left, or a clock has run out: the exchange is ended.
pub(crate) async fn await_first_byte(
    request: &mut Request<'_>,
    mut exchange: Box<Exchange>,
) -> Result<Option<Box<Exchange>>, Fault> {
    while exchange.may_be_stale() {
        match exchange.next_event(request.client).await {
            Ok(OutputEvent::HalfClosed) => request.client.probe_connection(),
            Ok(_) => {}
            Err(fault) => {
                request.stderr = exchange.stderr_tail();
                exchange.abandon(matches!(fault, Fault::Gone(_)), |_exit| {});
                return Err(fault);
            }
        }
    }
    Ok((!exchange.is_stale()).then_some(exchange))
}
