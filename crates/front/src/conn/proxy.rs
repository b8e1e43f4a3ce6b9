//! Reads the PROXY protocol header that a listener demands before anything else.

use galgo_proto::{
    Parsed,
    proxy::{Ends, parse_header},
};
use galgo_service::fault::Fault;

use super::input::Input;

/// Reads the header. The bytes after it stay in the buffer.
pub(super) async fn read_header(input: &mut Input) -> Result<Ends, Fault> {
    loop {
        match parse_header(input.buf.as_slice()) {
            Ok(Parsed::Complete(ends, used)) => {
                input.buf.consume(used);
                return Ok(ends);
            }
            Ok(Parsed::Partial) => {
                if input.fill_buffer(0).await? == 0 {
                    return Err(Fault::Gone("the proxy closed the connection"));
                }
            }
            Err(_) => return Err(Fault::Client(400, "not a PROXY protocol version 2 header")),
        }
    }
}
