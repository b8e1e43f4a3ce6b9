//! Paths whose file system does not answer: that of another machine or of a user's process (NFS, FUSE).
//!
//! Nothing ends a call that waits for such a file system. So a thread reads the configuration, and notes each path before it looks
//! there ([`look_at`]). If one look takes too long, its path counts as hanging, and the reading begins again on another thread
//! ([`call_in_time`]). Looks at a hanging path, or below it, fail at once until the file system has answered.

use crate::lock::lock;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Time limit of the first look that takes too long, and of further ones: many file systems may hang.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(200)];
/// Interval for checking what a thread looks at.
const CHECK: Duration = Duration::from_millis(20);

static HANGING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The path that a thread looks at, and since when.
type NotedLook = Arc<Mutex<Option<(PathBuf, Instant)>>>;

thread_local! {
    static NOTED: RefCell<Option<NotedLook>> = const { RefCell::new(None) };
}

/// Looks at a path by `look`.
///
/// # Errors
/// The error of the look. `TimedOut`: the path's file system hangs.
pub fn look_at<T>(path: &Path, look: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    if lock(&HANGING).iter().any(|hangs| path.starts_with(hangs)) {
        let words = "its file system does not answer";
        return Err(io::Error::new(io::ErrorKind::TimedOut, words));
    }
    let Some(noted) = NOTED.with_borrow(Clone::clone) else {
        return look();
    };
    *lock(&noted) = Some((path.to_owned(), Instant::now()));
    let done = look();
    *lock(&noted) = None;
    lock(&HANGING).remove(path);
    done
}

/// Returns the paths that hang.
pub fn list_hanging() -> Vec<PathBuf> {
    lock(&HANGING).iter().cloned().collect()
}

/// Replaces the paths that hang, by those that another process has found.
pub fn set_hanging(paths: impl IntoIterator<Item = PathBuf>) {
    *lock(&HANGING) = paths.into_iter().collect();
}

/// Calls `does` on a thread, again for each path that turns out to hang.
///
/// # Errors
/// A sentence: it took longer than `most`.
pub fn call_in_time<T: Send + 'static>(
    does: &Arc<impl Fn() -> T + Send + Sync + ?Sized + 'static>,
    most: Duration,
) -> Result<T, String> {
    let (ends, mut patience) = (Instant::now() + most, PATIENCE[0]);
    loop {
        let (noted, (tell, told)) = (NotedLook::default(), channel());
        let (does, notes) = (does.clone(), noted.clone());
        let thread = thread::Builder::new().name("reload".into());
        let started = thread.spawn(move || {
            NOTED.set(Some(notes));
            let _ = tell.send(does());
        });
        started.map_err(|e| format!("cannot start a thread to read the configuration: {e}"))?;
        loop {
            match told.recv_timeout(CHECK) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the thread that reads the configuration has ended".into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let looks = lock(&noted);
            if Instant::now() >= ends {
                let at = looks.as_ref().map(|(path, _)| path.display().to_string());
                return Err(format!(
                    "the configuration was not read within {} s, because {} does not answer",
                    most.as_secs(),
                    at.unwrap_or("the name service".into())
                ));
            }
            if let Some((path, since)) = &*looks
                && since.elapsed() >= patience
            {
                lock(&HANGING).insert(path.clone());
                patience = PATIENCE[1];
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_hangs_costs_its_own_looks_until_it_answers() {
        let (answer, hears) = channel::<()>();
        let hears = Mutex::new(hears);
        let [hangs, below, other] = ["/hang", "/hang/below", "/other"].map(Path::new);
        let kind = |done: io::Result<()>| done.err().map(|e| e.kind());
        let reads = Arc::new(move || {
            let waits = || {
                let _ = lock(&hears).recv();
                Ok(())
            };
            [
                kind(look_at(hangs, waits)),
                kind(look_at(below, || Ok(()))),
                kind(look_at(other, || Ok(()))),
            ]
        });
        let late = Some(io::ErrorKind::TimedOut);
        let most = Duration::from_secs(60);
        assert_eq!(call_in_time(&reads, most).unwrap(), [late, late, None]);
        assert_eq!(list_hanging(), [hangs]);
        assert_eq!(call_in_time(&reads, most).unwrap(), [late, late, None]);
        answer.send(()).unwrap();
        while !list_hanging().is_empty() {
            thread::sleep(CHECK);
        }
        drop(answer);
        assert_eq!(call_in_time(&reads, most).unwrap(), [None; 3]);
    }
}
