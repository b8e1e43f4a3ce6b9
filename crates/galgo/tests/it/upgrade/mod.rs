//! SIGUSR2: another process takes the place of the server. Also sockets from a service manager, and messages to it.

mod failed;
mod load;
pub mod manager;
pub mod passed;
mod stopped;
mod taken;

use crate::harness::Test;

/// Returns the tests of these modules.
pub fn tests() -> Vec<Test> {
    [
        failed::tests(),
        load::tests(),
        manager::tests(),
        passed::tests(),
        stopped::tests(),
        taken::tests(),
    ]
    .concat()
}
