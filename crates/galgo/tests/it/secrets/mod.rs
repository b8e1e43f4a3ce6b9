//! Secrets and identity: what a request must not set, and what nobody must see.

mod apart;
mod others;
mod paths;
mod spellings;
mod variables;

use crate::harness::Test;
pub use variables::POSES;

/// The tests of this module and those below it.
pub fn tests() -> Vec<Test> {
    [
        variables::tests(),
        paths::tests(),
        spellings::tests(),
        others::tests(),
        apart::tests(),
    ]
    .concat()
}
