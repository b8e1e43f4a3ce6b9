//! Work that may have to wait for a file system: that of another machine or of a user's process (NFS, FUSE), or any that is
//! mounted below a folder. No event loop does such work. Each owner has a few threads for it, so that a file system that hangs
//! harms only its owner.
//!
//! An event loop first looks by itself, and gets `beneath::WAITS` if it would have to wait. So a local file system, which is
//! nearly every one, costs nothing here. The search for a program is then repeated, with the results of a thread (`stat_path`). A
//! file is answered as a whole by a thread ([`crate::files`]).

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use galgo_io::off_loop::off_loop;
use galgo_service::{fault::Fault, lock::lock};
use rustix::{
    fs::{CWD, ResolveFlags, Stat, fstat},
    io::Errno,
};
use tokio::{sync::Semaphore, time::timeout};

use crate::{beneath, root::Folder};

/// Time limit for an answer of a file system.
const PATIENCE: Duration = Duration::from_secs(5);
/// Threads for the folders of one owner. A hanging thread stays until the file system answers or is unmounted.
const THREADS: usize = 4;
/// Limit of the files that are looked at for one path: more than the path has names.
const LOOKS: usize = 256;

static OWNERS: LazyLock<Mutex<HashMap<u64, Arc<Semaphore>>>> = LazyLock::new(Mutex::default);

/// Has a thread of the folder's owner do something that looks into the folder.
///
/// # Errors
/// The file system does not answer in time, or there is no thread.
pub async fn run_in_folder<T: Send + 'static>(
    folder: &Folder,
    does: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    let done = run_for_owner(folder.owner_uid().into(), does).await;
    done.ok_or_else(|| {
        let path = folder.current_path().unwrap_or_default();
        let path = path.display();
        Fault::Stalled(format!(
            "{path}: its file system does not answer within {} s, or a file system that is mounted below it",
            PATIENCE.as_secs()
        ))
    })
}

/// Has a thread of that owner do something. `None`: the work takes too long, or there is no thread.
pub async fn run_for_owner<T: Send + 'static>(
    owner: u64,
    does: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let new = || Arc::new(Semaphore::new(THREADS));
    let threads = lock(&OWNERS).entry(owner).or_insert_with(new).clone();
    let done = timeout(PATIENCE, async {
        let thread = threads.acquire_owned().await.ok()?;
        let done = off_loop("waits", move || {
            // Even if the caller has given up, the thread still counts.
            let _thread = thread;
            does()
        });
        done.await.ok()
    });
    done.await.ok().flatten()
}

/// The result of a look at a file, by its folder and path.
type SeenFile = ((u64, Vec<u8>), Result<Stat, Errno>);

thread_local! {
    /// Results of threads for the present search.
    static SEEN: RefCell<Vec<SeenFile>> = const { RefCell::new(Vec::new()) };
    /// The file that this event loop may not look at.
    static UNSEEN: RefCell<Option<(Folder, Vec<u8>)>> = const { RefCell::new(None) };
}

/// Looks at a path beneath the folder, or at an absolute path in another account's folder.
pub(crate) fn stat_path(folder: &Folder, path: &[u8]) -> Result<Stat, Errno> {
    let known = SEEN.with_borrow(|seen| {
        let mut seen = seen.iter();
        let found = seen.find(|((number, at), _)| *number == folder.number() && at == path);
        found.map(|(_, stat)| *stat)
    });
    let stat = known.unwrap_or_else(|| stat_uncached(folder, path));
    if stat.is_err_and(|errno| errno == beneath::WAITS) {
        UNSEEN.set(Some((folder.clone(), path.to_vec())));
    }
    stat
}

fn stat_uncached(folder: &Folder, path: &[u8]) -> Result<Stat, Errno> {
    let found = match path.starts_with(b"/") {
        false => beneath::open_path(folder.local_descriptor()?, path, beneath::NAME),
        true if beneath::may_wait() => {
            beneath::resolve(CWD, path, beneath::NAME, ResolveFlags::NO_MAGICLINKS)
        }
        true => Err(beneath::WAITS),
    };
    fstat(found?)
}

/// Searches by `find`, which uses `look`. If this thread may not look at a file, another thread does, and the search is
/// repeated.
///
/// # Errors
/// The error of the search, or a file system does not answer.
pub async fn search<T>(mut find: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    UNSEEN.set(None);
    let found = find();
    // Nearly every folder is at hand. The result is not a part of the future that waits for a thread.
    if UNSEEN.with_borrow(Option::is_none) {
        return found;
    }
    drop(found);
    let unseen = UNSEEN.take().ok_or(Fault::NotFound)?;
    Box::pin(search_again(find, unseen)).await
}

async fn search_again<T>(
    mut find: impl FnMut() -> Result<T, Fault>,
    (mut folder, mut path): (Folder, Vec<u8>),
) -> Result<T, Fault> {
    let mut all: Vec<SeenFile> = Vec::new();
    for _ in 0..LOOKS {
        let (number, own) = (folder.number(), folder.clone());
        let seen = run_in_folder(&folder, move || {
            let stat = stat_uncached(&own, &path);
            ((number, path), stat)
        });
        all.push(seen.await?);
        SEEN.set(all);
        let found = find();
        all = SEEN.take();
        match UNSEEN.take() {
            None => return found,
            Some(next) => (folder, path) = next,
        }
    }
    Err(Fault::NotFound)
}
