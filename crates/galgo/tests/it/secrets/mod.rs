//! Secrets and identity: values that a request must not set, and data that no client must see.

mod apart;
mod orphans;
mod others;
mod paths;
mod sandbox;
mod spellings;
mod variables;

use crate::harness::Test;
pub use apart::{ATTACK, WITHOUT as WITHOUT_LANDLOCK};
pub use orphans::STAYS;
pub use variables::POSES;

/// Returns the tests of this module and its submodules.
pub fn tests() -> Vec<Test> {
    [
        variables::tests(),
        paths::tests(),
        spellings::tests(),
        others::tests(),
        apart::tests(),
        sandbox::tests(),
        orphans::tests(),
    ]
    .concat()
}
