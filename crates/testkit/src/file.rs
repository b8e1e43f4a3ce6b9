//! Files that tests make, and logs that they read.

use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Copies a program in one step, by another process. Otherwise a test that runs at the same time could pass a descriptor that
/// is open for writing to its child, and the program would be busy (ETXTBSY).
pub fn copy(from: impl AsRef<Path>, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let draft = to.with_extension("draft");
    let mut cp = Command::new("cp");
    assert!(
        cp.arg(from.as_ref())
            .arg(&draft)
            .status()
            .unwrap()
            .success()
    );
    fs::rename(draft, to).unwrap();
}

/// Writes an executable file, by another process for the same reason as [`copy`].
pub fn script(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut sh = Command::new("sh")
        .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    sh.stdin.take().unwrap().write_all(text.as_ref()).unwrap();
    assert!(sh.wait().unwrap().success());
    path
}

/// Compiles a C program.
pub fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let to = folder.join(name);
    let from = to.with_extension("source.c");
    fs::write(&from, source).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(&to).arg(&from).args(flags);
    assert!(cc.status().unwrap().success(), "cc {}", to.display());
    fs::remove_file(from).unwrap();
    to
}

/// Returns the whole lines of a log; none if the file does not exist yet. The kernel shows a write to a reader page by page, so
/// the file may end in half a line.
pub fn whole_lines(path: &Path) -> String {
    let mut bytes = match fs::read(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
        bytes => bytes.unwrap(),
    };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    bytes.truncate(whole.map_or(0, |end| end + 1));
    String::from_utf8(bytes).unwrap()
}

/// Sets the permission bits of a file.
pub fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes a named pipe. The kernel lets a process open one end once another process opens the other end.
pub fn fifo(path: &Path) {
    let mut mkfifo = Command::new("mkfifo");
    assert!(mkfifo.arg(path).status().unwrap().success());
}

/// Returns the path of galgo-wasm, which runs modules. Because its package has tests, cargo puts this binary beside galgo.
pub fn wasm_host(galgo: &str) -> PathBuf {
    let host = Path::new(galgo).with_file_name("galgo-wasm");
    let missing = "is missing: cargo build -p galgo-wasm-host, or test the whole workspace";
    assert!(host.exists(), "{} {missing}", host.display());
    host
}
