//! How a response ended.

use std::io;

use galgo_proto::fcgi::Outcome;

use crate::fault::Fault;

pub(super) enum ResponseEnd {
    /// As it should.
    Whole { reusable: bool },
    /// With this.
    Broken(Fault),
}

pub(super) fn broken(e: &io::Error) -> ResponseEnd {
    ResponseEnd::Broken(Fault::Script(format!(
        "the connection to the application broke: {e}"
    )))
}

pub(super) fn ended(outcome: Outcome, rest: &[u8]) -> ResponseEnd {
    let script = |words: &str| ResponseEnd::Broken(Fault::Script(words.into()));
    match outcome {
        // Bytes behind the end belong to no request.
        Outcome::COMPLETE => ResponseEnd::Whole {
            reusable: rest.is_empty(),
        },
        Outcome::OVERLOADED => {
            ResponseEnd::Broken(Fault::Busy("the application says that it is overloaded"))
        }
        Outcome::CANNOT_MULTIPLEX => {
            script("the application says that it is busy with another request on this connection")
        }
        Outcome::UNKNOWN_ROLE => script(
            "the application says that it does not do what it is asked for (FCGI_UNKNOWN_ROLE)",
        ),
        _ => script("the application ended the request with a status that FastCGI does not know"),
    }
}
