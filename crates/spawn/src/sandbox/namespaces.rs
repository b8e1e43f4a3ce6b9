//! Namespaces of a helper's own: places for temporary files that begin empty, a /proc that shows a program itself alone, and,
//! where asked for, a network with nothing but loopback.

use super::listed;
use crate::domain::AccessRights;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Mode},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
        mount_change, move_mount, open_tree,
    },
    thread::{UnshareFlags, unshare_unsafe},
};
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Where programs put temporary files: one file system, which ends with its helper.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", SHARED_MEMORY];
const SHARED_MEMORY: &str = "/dev/shm";

/// Its bytes and files, at most: it is memory.
const SIZE: &std::ffi::CStr = c"mode=1777,size=64m,nr_inodes=16k";

/// Whose the memory, queues and semaphores are that processes share by a number or a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipc {
    /// The machine's: they outlive whoever makes them.
    Machine,
    /// Those of a helper, with which they end.
    Own,
}

/// Limits of an IPC namespace, below /proc/sys/kernel (proc(5)): 64 MiB of shared memory, 4 MiB of messages, 128 sets of semaphores.
const IPC_LIMITS: [(&str, &str); 3] = [
    ("shmall", "16384"),
    ("msgmni", "256"),
    ("sem", "250 32000 32 128"),
];

/// Where POSIX message queues are files.
const QUEUES: &str = "/dev/mqueue";

/// Where services have their sockets.
const RUN: &str = "/run";

/// Has this process enter them. `shown` can be reached as before, also where it is below a folder that begins empty. What was
/// made, and what may be done there: places for temporary files, and a /proc that shows a process itself alone.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn enter<'p>(
    shown: impl Iterator<Item = &'p Path>,
    loopback: bool,
) -> io::Result<Vec<(PathBuf, AccessRights)>> {
    let said =
        |what: &'static str| move |e: Errno| io::Error::new(e.kind(), format!("{what}: {e}"));
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    flags.set(UnshareFlags::NEWNET, loopback);
    // SAFETY: no descriptors are unshared, only namespaces; this process has one thread.
    unsafe { unshare_unsafe(flags) }.map_err(said("unshare"))?;
    if loopback {
        super::loopback::up()?;
    }
    limit_ipc();
    keep_mounts().map_err(said("mounting"))?;
    cover_queues().map_err(said(QUEUES))?;
    let covered = TEMPORARY.iter().chain([&RUN]).copied();
    let covered: Vec<&str> = covered.filter(|path| is_folder(path)).collect();
    let below = |path: &&Path| covered.iter().any(|folder| path.starts_with(folder));
    let kept = shown.filter(below).map(|path| Ok((path, tree(path)?)));
    let kept: Vec<_> = kept
        .collect::<Result<_, Errno>>()
        .map_err(said("open_tree"))?;
    // The folders made here are for others to enter.
    rustix::process::umask(Mode::from_raw_mode(0o22));
    let mut new: Vec<(PathBuf, _)> = Vec::new();
    for path in covered {
        cover(path, new.first().map(|(first, _)| &**first)).map_err(said(path))?;
        if path != RUN {
            new.push((path.into(), AccessRights::WRITE));
        }
    }
    for (path, tree) in kept {
        put_back(path, &tree)?;
    }
    if own_processes() {
        new.push(("/proc".into(), AccessRights::READ));
    }
    Ok(new)
}

/// Has this process enter an IPC namespace of its own, if it may. There it has a /dev/shm and a /dev/mqueue of its own, if it may mount.
pub(crate) fn enter_ipc() -> Ipc {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    // SAFETY: no descriptors are unshared, only namespaces; this process has one thread.
    if unsafe { unshare_unsafe(flags) }.is_err() {
        return Ipc::Machine;
    }
    limit_ipc();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    // In some containers and below chroot(2) nothing can be mounted: then these folders are the machine's.
    let _ =
        keep_mounts()
            .and_then(|()| cover_queues())
            .and_then(|()| match is_folder(SHARED_MEMORY) {
                true => mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, SIZE),
                false => Ok(()),
            });
    Ipc::Own
}

/// What the machine mounts later is seen; what is mounted here is not the machine's.
fn keep_mounts() -> Result<(), Errno> {
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave)
}

/// In a new IPC namespace. Where /proc/sys is read-only, as in containers, the kernel's limits stay.
fn limit_ipc() {
    for (name, limit) in IPC_LIMITS {
        let _ = fs::write(format!("/proc/sys/kernel/{name}"), limit);
    }
}

/// Shows the message queues of this IPC namespace in the place of the machine's.
fn cover_queues() -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match is_folder(QUEUES) {
        true => mount("mqueue", QUEUES, "mqueue", flags, None),
        false => Ok(()),
    }
}

/// Whether there is such a folder, and no link in its place: what a link leads to is covered under its own name.
fn is_folder(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
}

fn cover(path: &'static str, first: Option<&Path>) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match first {
        Some(first) if path != RUN => mount_bind(first, path),
        None if path != RUN => mount("tmpfs", path, "tmpfs", flags, SIZE),
        _ => mount("tmpfs", path, "tmpfs", flags, c"mode=755,size=1m"),
    }
}

/// A file or folder as it is now, with all that is mounted below it.
fn tree(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(listed::hold(path)?, "", flags)
}

fn put_back(path: &Path, tree: &OwnedFd) -> io::Result<()> {
    let made = match rustix::fs::fstat(tree)?.st_mode & libc::S_IFMT {
        libc::S_IFDIR => fs::create_dir_all(path),
        _ => path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::File::create_new(path).map(drop)),
    };
    match made {
        // One that was put back before holds it.
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let from_tree = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(tree.as_fd(), "", CWD, path, from_tree)?)
}

/// Mounts a /proc in which a process sees only those that it may trace: itself and what it has started, as each program is in a
/// Landlock domain of its own. Whether that worked: in a container it may not.
fn own_processes() -> bool {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // `ptraceable` came with Linux 5.8; before, processes of other users are hidden.
    let options = [c"hidepid=4", c"hidepid=2"];
    options
        .into_iter()
        .any(|options| mount("proc", "/proc", "proc", flags, options).is_ok())
}
