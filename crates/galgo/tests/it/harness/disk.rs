//! A file system of a test's own, which it fills or freezes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A small ext4 file system, mounted; gone when dropped.
#[derive(Debug)]
pub struct Disk {
    /// Beside the test binary, as every file of a test.
    dir: TempDir,
}

/// Whoever writes to the disk waits until this is dropped.
#[derive(Debug)]
pub struct Frozen(PathBuf);

/// Runs a program of this system as root; a machine that cannot fails the test.
fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output();
    let done = done.unwrap_or_else(|e| panic!("{program} (mount, e2fsprogs) is needed here: {e}"));
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "{program} {arguments:?}: a loop device and root are needed here: {words}"
    );
}

impl Disk {
    /// Makes one of so many bytes, all of which are anybody's.
    pub fn new(bytes: u64) -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (image, disk) = (dir.path().join("image"), dir.path().join("disk"));
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        fs::create_dir(&disk).unwrap();
        let (image, at) = (image.to_str().unwrap(), disk.to_str().unwrap());
        run("mkfs.ext4", &["-q", "-m", "0", "-O", "^has_journal", image]);
        run("mount", &["-o", "loop", image, at]);
        run("chmod", &["1777", at]);
        Self { dir }
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// From now on it stalls.
    pub fn freeze(&self) -> Frozen {
        run("fsfreeze", &["-f", self.path().to_str().unwrap()]);
        Frozen(self.path())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Bytes in open files of a process whose names begin so, as files without a name still do.
pub fn nameless(pid: u32, place: &Path) -> u64 {
    use std::{
        collections::BTreeMap,
        os::unix::{ffi::OsStrExt, fs::MetadataExt},
    };
    let place = place.as_os_str().as_bytes();
    let inside = |fd: fs::DirEntry| {
        let target = fs::read_link(fd.path()).ok()?;
        target
            .as_os_str()
            .as_bytes()
            .starts_with(place)
            .then_some(())?;
        let file = fs::metadata(fd.path()).ok()?;
        Some(((file.dev(), file.ino()), file.len()))
    };
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    // A file that is open twice is one file.
    let files: BTreeMap<_, _> = all.flatten().filter_map(inside).collect();
    files.values().sum()
}
