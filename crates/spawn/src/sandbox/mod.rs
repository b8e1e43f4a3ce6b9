//! The rules for every program with `sandbox = "standard"`, and how they hold without a step in each start.
//!
//! The server enters a filter of system calls once ([`confine`]), in the thread from which all others descend; threads and
//! programs inherit the filter. Installing it in each child would take a fifth of the time of a start. The filter holds for the
//! server, too. galgo passes a key (`key`) when it makes calls on its programs that the filter refuses to them. A program that
//! must run without the filter is started by a thread that is outside ([`Outside`]).
//!
//! A strict sandbox ([`Confinement`]) belongs to a helper, which makes it once; all programs of the helper inherit it. It
//! consists of namespaces, a filter, and the Landlock domain that each program enters instead of the `standard` domain.
//!
//! If helpers start all programs, the server enters a domain of its own ([`VisibleFiles`]) and a filter that refuses execve(2)
//! ([`confine_and_execute_nothing`]).
//!
//! The processes that compile and run modules confine themselves further ([`confine_worker`]).

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
mod worker;

use install::FilteredThreads;
use std::io;

pub use changes::ListedFileWatch;
pub use confinement::{Confinement, ForWorker, Prepared};
pub use install::is_available;
pub use kernel::{Kernel, kernel};
pub use namespaces::Ipc;
pub(crate) use namespaces::enter_ipc;
pub use network::Network;
pub use opens::open_without_waiting;
pub use outside::Outside;
pub use visible::{FileAccess, VisibleFiles};
pub use worker::confine_worker;

/// The restrictions of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sandbox {
    /// No restrictions besides the rights of its user and its limits.
    Off,
    /// The program's own Landlock domain, which keeps it apart from other processes (Linux 6.12), and the filter of system
    /// calls that the server has entered ([`confine`]). If a program may gain privileges (no_new_privs is off), it has no
    /// filter, and a domain only as root.
    #[default]
    Standard,
}

impl Sandbox {
    /// Returns the name that a configuration uses.
    pub fn config_name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Standard => "standard",
        }
    }
}

/// Gives up new privileges and enters the filter, for good: this thread, and all threads and processes that it starts from now
/// on. If the kernel has no filters, this only gives up new privileges; [`is_available`] tells.
///
/// # Errors
/// The kernel has filters but refuses this one.
pub fn confine(ipc: Ipc) -> io::Result<()> {
    install::enter_filter(FilteredThreads::This, |key| filter::standard(ipc, &[], key))
}

/// Does the same as [`confine`] for all threads of this process, and forbids it to execute programs from now on. This is for a
/// server whose programs are all started by helpers.
///
/// # Errors
/// The same errors as [`confine`].
pub fn confine_and_execute_nothing() -> io::Result<()> {
    let executing = [libc::SYS_execve, libc::SYS_execveat];
    install::enter_filter(FilteredThreads::All, |key| {
        filter::standard(Ipc::Machine, &executing, key)
    })
}
