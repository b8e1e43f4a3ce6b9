//! The file that holds the server's process id.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use galgo_spawn::{identity::is_root, trusted_path};
use rustix::fs::OFlags;

/// A pid file, which gets its final name when the server serves.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    /// The file that is to be renamed to `path`; `None`: that is done.
    next: Option<PathBuf>,
}

impl PidFile {
    /// Writes the file under a temporary name, as the user that the server has become.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn prepare(path: &Path) -> Result<Self, String> {
        let failed = |e: io::Error| {
            let mend = match e.kind() {
                io::ErrorKind::PermissionDenied => {
                    ": its folder must belong to the user that galgo runs as"
                }
                io::ErrorKind::NotFound => ": create its folder",
                _ => "",
            };
            format!("cannot write the pid file {}: {e}{mend}", path.display())
        };
        if is_root()
            && trusted_path::open_roots_folder(path)
                .map_err(failed)?
                .is_none()
        {
            let words = "users other than root can change this path: choose a folder of root, such as /run/galgo";
            return Err(failed(io::Error::other(words)));
        }
        let own = std::process::id();
        let mut next = path.as_os_str().to_owned();
        next.push(format!(".{own}"));
        let next = PathBuf::from(next);
        // A leftover of an earlier process with this id.
        let _ = fs::remove_file(&next);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o644);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = Self {
            path: path.to_owned(),
            next: Some(next.clone()),
        };
        let written = options.open(&next).and_then(|mut to| writeln!(to, "{own}"));
        written.map_err(failed)?;
        Ok(file)
    }

    /// Renames the file to its final name.
    pub(super) fn publish(&mut self) -> io::Result<()> {
        if let Some(next) = &self.next {
            fs::rename(next, &self.path)?;
            self.next = None;
        }
        Ok(())
    }

    /// Leaves the file to the server that has taken over.
    pub(super) fn leave_to_successor(self) {
        std::mem::forget(self);
    }
}

impl Drop for PidFile {
    /// Removes the file, unless another process has replaced it by now.
    fn drop(&mut self) {
        let gone = match &self.next {
            Some(next) => Some(next),
            None => {
                let holds = fs::read_to_string(&self.path).unwrap_or_default();
                let own = holds.trim() == std::process::id().to_string();
                own.then_some(&self.path)
            }
        };
        if let Some(gone) = gone {
            let _ = fs::remove_file(gone);
        }
    }
}
