//! RFC 3875, clause by clause, and what it leaves to the server: streaming, clocks, framing.

mod clocks;
mod request;
mod response;

use crate::harness::Test;

/// The tests of this module and those below it.
pub fn tests() -> Vec<Test> {
    [request::tests(), response::tests(), clocks::tests()].concat()
}
