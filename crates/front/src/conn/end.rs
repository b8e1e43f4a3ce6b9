//! The end of a request: reads the rest of its body, and decides the future of the connection.

use galgo_io::turn;
use galgo_service::client::Next;

use super::input::Input;
use crate::request_body::RequestBody;

/// The future of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Wait for the next request.
    KeepAlive,
    /// Close the connection once the response has arrived.
    Close,
    /// Close the connection: the client said that it sends nothing after this request.
    Over,
    /// Reset the connection, because the response was cut and the client has to see that.
    Reset,
}

/// Limit on the rest of a request body that is read and dropped after the response, so that the connection can go on.
pub(super) const DRAIN: u64 = 256 << 10;

/// Reads and drops the rest of a request body, so that the next head is at the front of the buffer.
pub(super) async fn drain_body(input: &mut Input, body: &mut RequestBody) -> After {
    let start = body.bytes_taken();
    loop {
        match body.next(&mut input.buf) {
            Ok(Next::End) => {
                let owed = body.take_owed();
                return if owed.is_empty() || input.sock.try_write(&owed).is_ok() {
                    After::KeepAlive
                } else {
                    After::Reset
                };
            }
            Ok(Next::Data(n)) if body.bytes_taken() - start <= DRAIN => {
                body.consume(&mut input.buf, n);
                turn::wait_for_turn().await;
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
