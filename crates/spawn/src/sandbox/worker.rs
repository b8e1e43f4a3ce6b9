//! The sandbox of the processes that compile and run modules: they see listed folders, and start nothing.

use super::{
    filter,
    install::{self, FilteredThreads},
};
use crate::domain::{self, AccessRights, Ports};
use rustix::{
    fs::{Mode, OFlags, open},
    thread::set_no_new_privs,
};
use std::{io, path::PathBuf};

/// Leaves to this thread, and to threads that it starts later, only the folders `read` and `write`, if they exist, and with
/// `network` the Internet protocols. No program can be executed and no process started. An openat2(2) by the C library raises
/// SIGSYS ([`open_without_waiting`](super::open_without_waiting)). Returns whether the kernel confines files (Landlock).
///
/// # Errors
/// The kernel has no filters of system calls, or refuses a feature that it has.
pub fn confine_worker(read: &[PathBuf], write: &[PathBuf], network: bool) -> io::Result<bool> {
    let read = read.iter().map(|path| (path, AccessRights::READ));
    let write = write.iter().map(|path| (path, AccessRights::STORE));
    // A missing folder needs no rule.
    let opened = |(path, rights)| {
        let folder = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        Some((folder.ok()?, rights))
    };
    let files = read.chain(write).filter_map(opened);
    let ports = if network { Ports::ALL } else { Ports::NONE };
    let ruleset = domain::make_confining_ruleset(files, None, ports)?;
    set_no_new_privs(true)?;
    if let Some(ruleset) = &ruleset {
        domain::enter_domain(ruleset)?;
    }
    install::install_filter(FilteredThreads::Worker, &filter::worker(network))?;
    Ok(ruleset.is_some())
}
