//! git repositories to serve, always the same to the last byte.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Returns git without the configuration of the user that runs the tests.
pub(crate) fn command(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.org")
        .env("GIT_AUTHOR_DATE", "2024-02-29T12:00:00Z")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.org")
        .env("GIT_COMMITTER_DATE", "2024-02-29T12:00:00Z")
        .stdin(Stdio::null());
    git
}

/// Runs a command, which must succeed.
#[track_caller]
pub(crate) fn run(git: &mut Command) -> Output {
    let output = git
        .output()
        .expect("git is missing: `scripts/need test` installs it");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{git:?}: {error}");
    output
}

/// Runs git with these arguments and returns its output.
#[track_caller]
pub(crate) fn git(folder: &Path, args: &[&str]) -> String {
    let output = run(command(folder).args(args));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes a bare repository with two commits: README, `src/größe.txt` and some binary bytes.
pub(crate) fn small(folder: &Path, name: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let bare = folder.join(name);
    let work = folder.join(format!("{name}-work"));
    git(
        folder,
        &["init", "-q", "-b", "main", work.to_str().unwrap()],
    );
    std::fs::create_dir(work.join("src")).unwrap();
    std::fs::write(work.join("README"), "first line\n<b>bold & more</b>\n").unwrap();
    std::fs::write(work.join("src/größe.txt"), "naïve\n").unwrap();
    std::fs::write(work.join("noise.bin"), noise(100_000)).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "the first commit"]);
    std::fs::write(
        work.join("README"),
        "first line\n<b>bold & more</b>\nlast line\n",
    )
    .unwrap();
    git(&work, &["commit", "-q", "-a", "-m", "the second commit"]);
    git(
        folder,
        &["clone", "-q", "--bare", work.to_str().unwrap(), name],
    );
    std::fs::remove_dir_all(work).unwrap();
    std::fs::write(bare.join("description"), "a small repository\n").unwrap();
    bare
}

/// Returns bytes that cannot be compressed; they are the same each time.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64; // xorshift64*
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Returns the SHA-256 sum as computed by coreutils.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use std::io::Write;
    let mut sum = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sum.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = sum.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}
