//! A helper's own namespaces: empty places for temporary files, a /proc that shows a program only itself, and, if asked for, a
//! network with nothing but loopback.
//!
//! Landlock rights to a folder hold for all below it, across mounts. A rule for the new /tmp would therefore allow programs to
//! write to files that are mounted again below it. Such a mount is read-only, unless it is listed to be written to.

use super::listed_file::ListedFile;
use crate::{
    domain::AccessRights, leftover, raw::syscall, refusable::set_umask,
    trusted_path::open_without_links,
};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{
        AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, open, openat, openat2,
        symlinkat,
    },
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
        mount_change, move_mount, open_tree,
    },
    thread::{UnshareFlags, unshare_unsafe},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
};

/// Folders for temporary files: one file system, which ends with its helper.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", SHARED_MEMORY];
const SHARED_MEMORY: &str = "/dev/shm";

/// The limit of bytes and files of that file system, which is in memory.
const SIZE: &std::ffi::CStr = c"mode=1777,size=64m,nr_inodes=16k";

/// The owner of the memory, queues and semaphores that processes share by a number or a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipc {
    /// The machine: the objects outlive the processes that make them.
    Machine,
    /// A helper: the objects end with it.
    Own,
}

/// Limits of an IPC namespace, below /proc/sys/kernel (proc(5)): 64 MiB of shared memory, 4 MiB of messages, 128 sets of
/// semaphores.
const IPC_LIMITS: [(&str, &str); 3] = [
    ("shmall", "16384"),
    ("msgmni", "256"),
    ("sem", "250 32000 32 128"),
];

/// The folder in which POSIX message queues are files.
const QUEUES: &str = "/dev/mqueue";

/// The folder in which services have their sockets.
const RUN: &str = "/run";

/// Moves this process into new namespaces. Until [`mount_own`] it sees the same files as before.
///
/// # Errors
/// The kernel refuses the namespaces.
pub(super) fn enter_namespaces(loopback: bool) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    flags.set(UnshareFlags::NEWNET, loopback);
    // SAFETY: no descriptors are unshared, only namespaces; this process has one thread.
    unsafe { unshare_unsafe(flags) }.map_err(add_context("unshare"))?;
    if loopback {
        super::loopback::bring_up()?;
    }
    limit_ipc();
    keep_mounts().map_err(add_context("mounting"))?;
    cover_queues().map_err(add_context(QUEUES))
}

/// Mounts places for temporary files, and a /proc that shows a process only itself. `listed` files below a folder that begins
/// empty are mounted again, with the `links` that lead there. Returns the new places, and the rights of programs there.
///
/// # Errors
/// The kernel refuses a mount.
pub(super) fn mount_own(
    listed: &[ListedFile],
    links: &[(PathBuf, PathBuf)],
) -> io::Result<Vec<ListedFile>> {
    let covered = TEMPORARY.iter().chain([&RUN]).copied();
    let covered: Vec<&str> = covered.filter(|path| is_folder(path)).collect();
    // The trees are opened before new mounts cover them.
    let kept = open_kept_trees(listed, &covered)?;
    let mut mounted: Vec<(PathBuf, Rc<OwnedFd>)> = Vec::new();
    for path in covered {
        let first = mounted.first().map(|(first, _)| &**first);
        cover_folder(path, first).map_err(add_context(path))?;
        mounted.push((path.into(), Rc::new(open_without_links(path.as_ref())?)));
    }
    let new = mounted.iter().filter(|(path, _)| path != Path::new(RUN));
    let mut new: Vec<_> = new
        .map(|(path, file)| ListedFile {
            path: path.clone(),
            file: file.clone(),
            access: AccessRights::WRITE,
        })
        .collect();
    // The folders made here must be accessible to other users.
    set_umask(Mode::from_raw_mode(0o22));
    for KeptTree { path, tree, .. } in kept {
        let failed = |e: io::Error| {
            io::Error::new(e.kind(), format!("mounting {} again: {e}", path.display()))
        };
        mount_back(path, &tree, &mounted).map_err(failed)?;
        mounted.push((path.to_owned(), tree));
    }
    for (link, to) in links {
        if let Some((new, below)) = find_new_mount(link, &mounted)
            && let (Some(folders), Some(name)) = (below.parent(), below.file_name())
        {
            match symlinkat(to, make_folders(new, folders)?, name) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(add_context("symlink")(e)),
            }
        }
    }
    if mount_proc() {
        new.push(ListedFile {
            path: "/proc".into(),
            file: Rc::new(open_without_links("/proc".as_ref())?),
            access: AccessRights::READ,
        });
    }
    Ok(new)
}

/// Moves this process into its own IPC namespace, if it may. If it may mount, it also gets its own /dev/shm and /dev/mqueue.
pub(crate) fn enter_ipc() -> Ipc {
    let flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    // SAFETY: no descriptors are unshared, only namespaces; this process has one thread.
    if unsafe { unshare_unsafe(flags) }.is_err() {
        return Ipc::Machine;
    }
    limit_ipc();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    // In some containers and below chroot(2) nothing can be mounted: then these folders stay the machine's.
    let _ = keep_mounts().and_then(|()| cover_queues()).and_then(|()| {
        if is_folder(SHARED_MEMORY) {
            mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, SIZE)
        } else {
            Ok(())
        }
    });
    Ipc::Own
}

/// Returns whether the mounts of [`enter_namespaces`] and [`mount_own`] can be made. Call this in new namespaces. Allocates nothing.
pub(super) fn can_mount() -> bool {
    let done = keep_mounts()
        .and_then(|()| cover_queues())
        .and_then(|()| cover_folder(TEMPORARY[0], None));
    done.is_ok()
}

/// Keeps receiving later mounts of the machine, while mounts made here stay invisible to the machine.
fn keep_mounts() -> Result<(), Errno> {
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave)
}

/// Limits a new IPC namespace. If /proc/sys is read-only, as in containers, the kernel's limits stay.
fn limit_ipc() {
    for (name, limit) in IPC_LIMITS {
        let _ = fs::write(format!("/proc/sys/kernel/{name}"), limit);
    }
}

/// Shows the message queues of this IPC namespace instead of the machine's.
fn cover_queues() -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if is_folder(QUEUES) {
        mount("mqueue", QUEUES, "mqueue", flags, None)
    } else {
        Ok(())
    }
}

fn add_context(what: &'static str) -> impl Fn(Errno) -> io::Error {
    move |e| io::Error::new(e.kind(), format!("{what}: {e}"))
}

/// Returns whether this folder exists and is no link: the target of a link is covered under its own name.
fn is_folder(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
}

fn cover_folder(path: &'static str, first: Option<&Path>) -> Result<(), Errno> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match first {
        Some(first) if path != RUN => mount_bind(first, path),
        None if path != RUN => mount("tmpfs", path, "tmpfs", flags, SIZE),
        _ => mount("tmpfs", path, "tmpfs", flags, c"mode=755,size=1m"),
    }
}

/// A listed file or folder below a folder that begins empty, with all that is mounted below it.
struct KeptTree<'l> {
    path: &'l Path,
    tree: Rc<OwnedFd>,
    is_written: bool,
}

/// Returns the trees that must be mounted again, outer folders first.
fn open_kept_trees<'l>(
    listed: &'l [ListedFile],
    covered: &[&str],
) -> io::Result<Vec<KeptTree<'l>>> {
    let is_written = |path: &Path| {
        let mut above = listed.iter().filter(|one| path.starts_with(&one.path));
        above.any(|one| one.access.allows_writing())
    };
    let mut below: Vec<_> = listed
        .iter()
        .filter(|one| covered.iter().any(|folder| one.path.starts_with(folder)))
        .collect();
    below.sort_by_key(|one| &one.path);
    let mut kept: Vec<KeptTree<'l>> = Vec::new();
    for one in below {
        let path = &*one.path;
        let is_written = is_written(path);
        // An outer tree includes this tree, unless only this tree may be written to.
        let holds =
            |outer: &KeptTree<'_>| path.starts_with(outer.path) && outer.is_written == is_written;
        if kept.iter().any(holds) {
            continue;
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(&*one.file, "", flags).map_err(add_context("open_tree"))?;
        if !is_written {
            make_read_only(&tree)?;
        }
        kept.push(KeptTree {
            path,
            tree: Rc::new(tree),
            is_written,
        });
    }
    Ok(kept)
}

/// Makes all mounts of a tree read-only (mount_setattr(2), Linux 5.12).
fn make_read_only(tree: &OwnedFd) -> io::Result<()> {
    /// The kernel's `struct mount_attr`.
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const RECURSIVE: u32 = 0x8000; // AT_RECURSIVE
    let attributes = MountAttributes {
        set: 1, // MOUNT_ATTR_RDONLY
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    let flags = AtFlags::EMPTY_PATH.bits() | RECURSIVE;
    let (at, size) = (&raw const attributes as usize, size_of::<MountAttributes>());
    let tree = tree.as_raw_fd() as usize;
    let path = c"".as_ptr() as usize;
    // SAFETY: the kernel reads an empty string and `size` bytes of `attributes`, which both outlive the call.
    let done = unsafe {
        syscall(
            libc::SYS_mount_setattr,
            [tree, path, flags as usize, at, size, 0],
        )
    };
    match done {
        0 => Ok(()),
        errno => {
            let e = io::Error::from_raw_os_error(-errno as i32);
            let words = "making a mount read-only (to list files below /tmp takes Linux 5.12)";
            Err(io::Error::new(e.kind(), format!("{words}: {e}")))
        }
    }
}

/// The mounts made here so far: the path, and the root of the file system.
type Mounted = [(PathBuf, Rc<OwnedFd>)];

/// Returns the innermost mount that holds a path, and the rest of the path.
fn find_outer_mount<'m, 'p>(
    path: &'p Path,
    mounted: &'m Mounted,
) -> Option<(&'m Path, &'m OwnedFd, &'p Path)> {
    let mut all = mounted.iter().rev();
    all.find_map(|(outer, root)| Some((&**outer, &**root, path.strip_prefix(outer).ok()?)))
}

/// Does the same as `outer`, but only for new file systems, which other processes cannot change.
fn find_new_mount<'m, 'p>(path: &'p Path, mounted: &'m Mounted) -> Option<(&'m OwnedFd, &'p Path)> {
    let (outer, root, below) = find_outer_mount(path, mounted)?;
    let mut new = TEMPORARY.iter().chain([&RUN]);
    new.any(|new| outer == Path::new(new))
        .then_some((root, below))
}

/// Mounts a tree at its path. Mount points are made only in new file systems.
fn mount_back(path: &Path, tree: &OwnedFd, mounted: &Mounted) -> io::Result<()> {
    let place = match find_new_mount(path, mounted) {
        Some((new, below)) => make_place(new, below, tree)?,
        None => {
            // INVARIANT: only trees below a new file system are put back.
            let (_, root, below) = find_outer_mount(path, mounted).ok_or(Errno::NOENT)?;
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            openat2(root, below, HELD, Mode::empty(), how)?
        }
    };
    let by_descriptors =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree.as_fd(), "", &place, "", by_descriptors)?)
}

const HELD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes the file or folder that a tree is mounted on.
fn make_place(new: &OwnedFd, below: &Path, tree: &OwnedFd) -> io::Result<OwnedFd> {
    let is_folder = FileType::from_raw_mode(fstat(tree)?.st_mode) == FileType::Directory;
    let (Some(folders), Some(name), false) = (below.parent(), below.file_name(), is_folder) else {
        return make_folders(new, below);
    };
    let folder = make_folders(new, folders)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(&folder, name, flags, Mode::RUSR) {
        Ok(_) | Err(Errno::EXIST) => Ok(openat(&folder, name, HELD, Mode::empty())?),
        Err(e) => Err(e.into()),
    }
}

/// Makes folders in a new file system. Returns the last of them.
fn make_folders(new: &OwnedFd, below: &Path) -> io::Result<OwnedFd> {
    let mut folder = openat(new, ".", HELD, Mode::empty())?;
    for name in below {
        match mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        folder = openat(&folder, name, HELD, Mode::empty())?;
    }
    Ok(folder)
}

/// Mounts a /proc in which a process sees only processes that it may trace: itself and its children, because each program is in
/// its own Landlock domain. Returns whether that worked: in a container it may not.
fn mount_proc() -> bool {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // `ptraceable` came with Linux 5.8; before, processes of other users are hidden.
    let options = [c"hidepid=4", c"hidepid=2"];
    // Templates and their leftover processes cannot be traced, so the helper looks for them in the first mount, below the next
    // one.
    let held = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if mount("proc", "/proc", "proc", flags, None).is_ok()
        && let Ok(proc) = open("/proc", held, Mode::empty())
    {
        leftover::use_proc(proc);
    }
    options
        .into_iter()
        .any(|options| mount("proc", "/proc", "proc", flags, options).is_ok())
}
