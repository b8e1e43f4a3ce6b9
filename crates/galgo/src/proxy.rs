//! Reads the PROXY protocol header that a listener demands before anything else.

use galgo_proto::{
    Parsed,
    proxy::{Ends, parse},
};

use crate::{conn::input::Input, fault::Fault, link::Link, log::Level, worker::Worker};

/// Reads the header; what follows it stays in the buffer.
pub async fn read(input: &mut Input) -> Result<Ends, Fault> {
    loop {
        match parse(input.buf.bytes()) {
            Ok(Parsed::Complete(ends, used)) => {
                input.buf.consume(used);
                return Ok(ends);
            }
            Ok(Parsed::Partial) => {
                if input.fill(0).await? == 0 {
                    return Err(Fault::Gone("the proxy closed the connection"));
                }
            }
            Err(_) => return Err(Fault::Client(400, "not a PROXY protocol version 2 header")),
        }
    }
}

/// There is no request that the access log could have, and whoever set up the proxy looks for a word.
pub fn unannounced(worker: &Worker, link: &Link, fault: &Fault) {
    if matches!(fault, Fault::Client(..)) && worker.says_unannounced() {
        let words =
            format!("the connection was closed: {fault}, which a proxy+ listener wants first");
        worker
            .server
            .logs
            .error
            .write(Level::Warn, &link.remote, &words);
    }
}
