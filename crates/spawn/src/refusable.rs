//! Calls that no kernel refuses, but a filter of system calls may. rustix takes a refusal for impossible, and panics.

use rustix::{
    fs::Mode,
    process::{Resource, Rlimit},
};

/// Returns a limit of this process. `None`: the call is refused.
pub fn resource_limit(resource: Resource) -> Option<Rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes to `limit`, which outlives the call.
    let done = unsafe { libc::getrlimit(resource as _, &raw mut limit) };
    let known = |value| (value != libc::RLIM_INFINITY).then_some(value);
    (done == 0).then(|| Rlimit {
        current: known(limit.rlim_cur),
        maximum: known(limit.rlim_max),
    })
}

/// Sets the umask of this process. If that is refused, the umask stays.
pub(crate) fn set_umask(mode: Mode) {
    // SAFETY: a number is passed.
    unsafe { libc::umask(mode.bits()) };
}
