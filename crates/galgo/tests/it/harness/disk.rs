//! A file system for one test, which the test can fill or freeze.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A small ext4 file system. It is mounted, and unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    /// A folder beside the test binary, like all files of tests.
    dir: TempDir,
}

/// A frozen disk: processes that write to it wait until this is dropped.
#[derive(Debug)]
pub struct Frozen(PathBuf);

/// Runs a program of this system as root. Fails the test if this machine cannot do that.
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
    /// Makes a disk of this size, on which every user may write.
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

    /// Returns the mount point.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Returns the number of free bytes.
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Freezes the disk: from now on writes stall.
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

/// Returns the size of a process's open files whose paths begin with `place`. Paths of files without a name still do.
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
