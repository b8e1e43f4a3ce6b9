//! Accounts of this machine that end with a test.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The accounts. They are gone when this is dropped.
#[derive(Debug, Default)]
pub struct Accounts(Vec<String>);

impl Accounts {
    /// Makes `count` of them, each with a group of its own: their names begin with `prefix`, and no other test's are the same.
    /// `home` says where the home of one is; it is not made.
    pub fn new(prefix: &str, count: usize, home: impl Fn(&str) -> PathBuf) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut all = Self::default();
        for _ in 0..count {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{prefix}{n}-{}", std::process::id());
            add(&name, &home(&name));
            all.0.push(name);
        }
        all
    }

    /// Their names.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// No test makes or removes accounts as long as this is there: the files that say who there are stay the same.
#[derive(Debug)]
pub struct SameAccounts(#[allow(dead_code, reason = "closing it gives the lock back")] File);

impl SameAccounts {
    /// Waits for those that are being made.
    pub fn keep() -> Self {
        let lock = lock();
        lock.lock_shared().unwrap();
        Self(lock)
    }
}

/// Of all tests on this machine.
fn lock() -> File {
    let path = std::env::temp_dir().join("galgo-tests-accounts");
    let mut options = File::options();
    options.create(true).append(true).open(path).unwrap()
}

/// What useradd(8) says where there is such a user.
const TAKEN: i32 = 9;
/// What userdel(8) says where there is no such user.
const ABSENT: i32 = 6;
/// How long an account is waited for that cannot be removed.
const LONGEST: Duration = Duration::from_secs(10);

fn add(name: &str, home: &Path) {
    let mut useradd = Command::new("useradd");
    useradd.args(["--no-create-home", "--user-group", "--home-dir"]);
    useradd.arg(home).arg(name);
    let lock = lock();
    lock.lock().unwrap();
    let mut done = useradd.output().unwrap();
    // Of tests that were killed, whose process had this number.
    if done.status.code() == Some(TAKEN) {
        run_userdel(name);
        done = useradd.output().unwrap();
    }
    assert!(done.status.success(), "{done:?}");
}

impl Drop for Accounts {
    fn drop(&mut self) {
        for name in &self.0 {
            // Its processes may be about to end, and others may hold the lock of the accounts.
            let over = Instant::now() + LONGEST;
            while !remove(name) && Instant::now() < over {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Whether it is gone, or was never there.
fn remove(name: &str) -> bool {
    let lock = lock();
    lock.lock().unwrap();
    run_userdel(name)
}

fn run_userdel(name: &str) -> bool {
    let done = Command::new("userdel").arg(name).output();
    done.is_ok_and(|done| done.status.success() || done.status.code() == Some(ABSENT))
}

/// The id of a user, which is that of its own group, too.
pub fn uid(name: &str) -> u32 {
    let id = Command::new("id").args(["-u", name]).output().unwrap();
    let id = String::from_utf8(id.stdout).unwrap();
    id.trim().parse().unwrap()
}
