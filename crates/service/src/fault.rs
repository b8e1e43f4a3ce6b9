//! Reasons why a request fails, and whose fault that is: this decides status, log and metric.

use std::{fmt, io, time::Duration};

use galgo_io::{rate_allowance::GIVES_WAY, sock::is_short};
use galgo_proto::h1::HeadError;
use rustix::io::Errno;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The client sent something wrong: the status, and the reason.
    Client(u16, &'static str),
    /// The address asks more often than the route's `rate_limit` allows. After this time it may ask again: 429 with
    /// Retry-After.
    TooMany(Duration),
    /// The client left, or stopped moving bytes.
    Gone(&'static str),
    /// Nothing answers at this path.
    NotFound,
    /// The path exists but may not be used; words for the log.
    Refused(String),
    /// The program did something wrong; words on which its author can act: 502.
    Script(String),
    /// The program took too long; the name of the time limit: 504.
    Late(String),
    /// The server is at its capacity: 503 with Retry-After.
    Busy(&'static str),
    /// The process that starts programs does not answer, or lacks resources; words for the log: 503 with Retry-After.
    Stalled(String),
    /// The disk has no room for data that must be stored, or does not accept it; words for the log: 507.
    Storage(String),
    /// Our own fault: 500.
    Internal(String),
}

/// The fault if the kernel has no room for another watched descriptor.
pub const SHORT: Fault = Fault::Busy("the event loop has no room for another descriptor");

impl Fault {
    /// Returns the fault for an error during the wait for a client's body. The fault is `gone`, unless the client is too
    /// slow or the kernel has no room.
    pub fn from_body_error(e: &io::Error, gone: Self) -> Self {
        match e.kind() {
            _ if is_short(e) => SHORT,
            io::ErrorKind::TimedOut => Self::Client(408, "the client sends slower than min_rate"),
            GIVES_WAY => Self::Client(
                408,
                "the client sends slower than busy_rate while other requests wait (max_running)",
            ),
            _ => gone,
        }
    }

    /// Returns the status to answer with, if an answer can still be given.
    pub fn status(&self) -> u16 {
        self.status_and_outcome().0
    }

    /// Returns one word for the access log.
    pub fn outcome(&self) -> &'static str {
        self.status_and_outcome().1
    }

    /// Returns the status and the word for the access log.
    fn status_and_outcome(&self) -> (u16, &'static str) {
        match self {
            Self::Client(status, _) => (*status, "client_error"),
            Self::TooMany(_) => (429, "rate_limited"),
            Self::Gone(_) => (499, "client_gone"), // only in the log: there is no answer
            Self::NotFound => (404, "not_found"),
            Self::Refused(_) => (403, "refused"),
            Self::Script(_) => (502, "script_error"),
            Self::Late(_) => (504, "script_timeout"),
            Self::Busy(_) | Self::Stalled(_) => (503, "busy"),
            Self::Storage(_) => (507, "no_storage"),
            Self::Internal(_) => (500, "internal_error"),
        }
    }
}

/// Whether the system lacks a resource at this moment: then the fault is our capacity, not the request.
pub fn is_shortage(e: &io::Error) -> bool {
    const OUT_OF: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    Errno::from_io_error(e).is_some_and(|errno| OUT_OF.contains(&errno))
}

impl From<HeadError> for Fault {
    fn from(e: HeadError) -> Self {
        Self::Client(e.status, e.why)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(_, why) | Self::Gone(why) | Self::Busy(why) => f.write_str(why),
            Self::TooMany(_) => f.write_str(
                "the client's address sends more requests than the rate_limit of the route allows",
            ),
            Self::NotFound => f.write_str("nothing answers at this path"),
            Self::Refused(why)
            | Self::Script(why)
            | Self::Late(why)
            | Self::Stalled(why)
            | Self::Storage(why)
            | Self::Internal(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Fault {}
