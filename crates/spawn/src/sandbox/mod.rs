//! What holds for every program with `sandbox = "standard"`, and how it comes to hold without a step of its own in each start.
//!
//! The server enters a filter of system calls once ([`confine`]), with the thread from which all others descend; threads and
//! programs inherit it. To install it in each child would take a fifth of the time of a start. The filter holds for the
//! server, too: the calls that galgo makes on its programs, and that it refuses to them, have a key (`key`). A program that is to be without it is started by a thread that is
//! outside ([`Outside`]).
//!
//! A strict sandbox ([`Confinement`]) is that of a helper, made once and inherited by all that it starts: its namespaces and
//! its filter, and the Landlock domain that each program enters in the place of the one of `standard`.
//!
//! A server whose programs are all started by helpers enters a domain of its own ([`VisibleFiles`]), and a filter that refuses
//! execve(2) ([`confine_and_execute_nothing`]).

mod allowed;
mod calls;
mod changes;
mod confinement;
mod filter;
mod install;
mod kernel;
mod listed_file;
mod loopback;
mod namespaces;
mod network;
mod opens;
mod outside;
mod visible;

use install::FilteredThreads;
use std::io;

pub use changes::ListedFileWatch;
pub use confinement::{Confinement, ForWorker, Prepared};
pub use install::is_available;
pub use kernel::{Kernel, kernel};
pub use namespaces::Ipc;
pub(crate) use namespaces::enter_ipc;
pub use network::Network;
pub use opens::{OPEN_HOW, open_without_waiting};
pub use outside::Outside;
pub use visible::{FileAccess, VisibleFiles};

/// What a program is kept from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// Nothing, but for what its user and its limits keep it from.
    Off,
    /// A Landlock domain of its own, which keeps it apart from other processes (Linux 6.12), and the filter of system calls
    /// that the server has entered ([`confine`]). Where a program may gain privileges (no_new_privs is off) it has no
    /// filter, and a domain only as root.
    #[default]
    Standard,
}

impl Sandbox {
    /// As it is written in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Standard => "standard",
        }
    }
}

/// Gives up new privileges and enters the filter, for good: this thread, and all threads and processes that it starts from
/// now on. Where the kernel has no filters it gives up new privileges alone; [`is_available`] tells.
///
/// # Errors
/// The kernel refuses what it has.
pub fn confine(ipc: Ipc) -> io::Result<()> {
    install::enter(FilteredThreads::This, |key| filter::standard(ipc, &[], key))
}

/// The same for all threads of this process, which executes nothing from now on: for a server whose programs are all started by
/// helpers.
///
/// # Errors
/// As [`confine`].
pub fn confine_and_execute_nothing() -> io::Result<()> {
    let executing = [libc::SYS_execve, libc::SYS_execveat];
    install::enter(FilteredThreads::All, |key| {
        filter::standard(Ipc::Machine, &executing, key)
    })
}
