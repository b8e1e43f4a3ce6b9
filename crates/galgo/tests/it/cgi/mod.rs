//! RFC 3875, clause by clause, and the parts that it leaves to the server: streaming, clocks, framing.

mod clocks;
mod framing;
mod request;
mod response;

use crate::harness::Test;

/// Returns the tests of this module and of its submodules.
pub fn tests() -> Vec<Test> {
    [
        request::tests(),
        response::tests(),
        framing::tests(),
        clocks::tests(),
    ]
    .concat()
}
