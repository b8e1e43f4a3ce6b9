//! Accounts of this machine that are removed at the end of a test.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Accounts of a test. Dropping this removes the accounts.
#[derive(Debug, Default)]
pub struct Accounts(Vec<String>);

impl Accounts {
    /// Makes `count` accounts, each with a group of its own. Their names begin with `prefix` and are unique among all
    /// tests. `home` returns the home folder for a name; that folder is not made.
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

    /// Returns the names of the accounts.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// Keeps tests from making or removing accounts as long as it exists: /etc/passwd and /etc/group stay the same.
#[derive(Debug)]
pub struct SameAccounts(#[allow(dead_code, reason = "closing it gives the lock back")] File);

impl SameAccounts {
    /// Waits until no test is making or removing accounts.
    pub fn keep() -> Self {
        let lock = lock();
        lock.lock_shared().unwrap();
        Self(lock)
    }
}

/// Opens the lock file that all tests on this machine share.
fn lock() -> File {
    let path = std::env::temp_dir().join("galgo-tests-accounts");
    let mut options = File::options();
    options.create(true).append(true).open(path).unwrap()
}

/// Exit status of useradd(8) if the user exists already.
const TAKEN: i32 = 9;
/// Exit status of userdel(8) if the user does not exist.
const ABSENT: i32 = 6;
/// Time to keep trying to remove an account.
const LONGEST: Duration = Duration::from_secs(10);

fn add(name: &str, home: &Path) {
    let mut useradd = Command::new("useradd");
    useradd.args(["--no-create-home", "--user-group", "--home-dir"]);
    useradd.arg(home).arg(name);
    let lock = lock();
    lock.lock().unwrap();
    let mut done = useradd.output().unwrap();
    // The account is left over from a killed test whose process had the same number.
    if done.status.code() == Some(TAKEN) {
        run_userdel(name);
        done = useradd.output().unwrap();
    }
    assert!(done.status.success(), "{done:?}");
}

impl Drop for Accounts {
    fn drop(&mut self) {
        for name in &self.0 {
            // Processes of this user may be about to end, and other tests may hold the lock of the accounts.
            let over = Instant::now() + LONGEST;
            while !remove(name) && Instant::now() < over {
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Removes the account. Returns whether it is gone, or never existed.
fn remove(name: &str) -> bool {
    let lock = lock();
    lock.lock().unwrap();
    run_userdel(name)
}

fn run_userdel(name: &str) -> bool {
    let done = Command::new("userdel").arg(name).output();
    done.is_ok_and(|done| done.status.success() || done.status.code() == Some(ABSENT))
}

/// Returns the id of a user. The user's own group has the same id.
pub fn uid(name: &str) -> u32 {
    let id = Command::new("id").args(["-u", name]).output().unwrap();
    let id = String::from_utf8(id.stdout).unwrap();
    id.trim().parse().unwrap()
}
