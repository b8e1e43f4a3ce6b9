//! The end of a request: what is left of its body, and what becomes of the connection.

use galgo_io::turn;
use galgo_service::client::Next;

use super::{body::RequestBody, input::Input};

/// What becomes of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// The next request may come.
    KeepAlive,
    /// It is closed once the response has arrived.
    Close,
    /// It is closed: the client said that it sends nothing behind this request.
    Over,
    /// The response was cut: it is closed so that the client sees that.
    Reset,
}

/// What the service left unread of a request body is taken in up to this size, so that the connection can go on.
pub(super) const DRAIN: u64 = 256 << 10;

/// Takes in what is left of a request body, so that the next head is found behind it.
pub(super) async fn rest_of_body(input: &mut Input, body: &mut RequestBody) -> After {
    let start = body.taken();
    loop {
        match body.next(&mut input.buf) {
            Ok(Next::End) => {
                let owed = body.owed();
                return if owed.is_empty() || input.sock.try_write(&owed).is_ok() {
                    After::KeepAlive
                } else {
                    After::Reset
                };
            }
            Ok(Next::Data(n)) if body.taken() - start <= DRAIN => {
                body.take(&mut input.buf, n);
                turn::left().await;
            }
            Ok(Next::More) => {
                // The response is whole: a reset might overtake it.
                if input.fill_body().await.is_err() {
                    return After::Close;
                }
            }
            _ => return After::Close,
        }
    }
}
