//! Debian's database servers.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use galgo_testkit::wait_until;

use crate::site::needed;

/// A database server in a folder of its own. Both are removed with the test.
pub(crate) struct Database {
    process: Child,
    pub(crate) folder: tempfile::TempDir,
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            galgo_testkit::process::pid(self.process.id()),
            rustix::process::Signal::QUIT,
        );
        let _ = self.process.wait();
    }
}

/// Returns a command that runs as `user`; as the test's own user if that is `None`.
fn command(user: Option<&str>, program: &Path) -> Command {
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command
                .args([format!("--reuid={user}"), format!("--regid={user}")])
                .args(["--clear-groups", "--"])
                .arg(program);
            command
        }
        None => Command::new(program),
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.current_dir("/");
    command
}

/// Makes the folder of a database server. If the test runs as root, the folder belongs to `user`.
fn folder(user: &'static str) -> (tempfile::TempDir, Option<&'static str>) {
    let folder = tempfile::tempdir().unwrap();
    let user = rustix::process::geteuid().is_root().then_some(user);
    if let Some(user) = user {
        let done = Command::new("chown").arg(user).arg(folder.path()).status();
        assert!(done.unwrap().success());
        let shown = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), shown).unwrap();
    }
    (folder, user)
}

/// If two installations of MariaDB run at once, every tenth fails: they take turns.
static INSTALLS: Mutex<()> = Mutex::new(());

pub(crate) fn mariadb() -> Database {
    let install = needed("/usr/bin/mariadb-install-db");
    let server = needed("/usr/sbin/mariadbd");
    let (folder, user) = folder("mysql");
    let data = format!("--datadir={}/data", folder.path().display());
    let turn = INSTALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let made = command(user, &install)
        .args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            &data,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    drop(turn);
    assert!(made.status.success(), "{made:?}");
    let socket = folder.path().join("sock");
    let process = command(user, &server)
        .args([
            "--no-defaults",
            "--skip-networking",
            "--skip-grant-tables",
            &data,
        ])
        .arg(format!("--socket={}", socket.display()))
        .spawn()
        .unwrap();
    wait_until("MariaDB", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    Database { process, folder }
}

pub(crate) fn postgresql() -> Database {
    let versions = fs::read_dir(needed("/usr/lib/postgresql")).unwrap();
    let newest: PathBuf = versions.map(|v| v.unwrap().path()).max().unwrap();
    let (folder, user) = folder("postgres");
    let data = folder.path().join("data");
    let made = command(user, &needed(newest.join("bin/initdb")))
        .args(["-A", "trust", "-U", "postgres", "--no-sync", "-D"])
        .arg(&data)
        .status();
    assert!(made.unwrap().success());
    let process = command(user, &needed(newest.join("bin/postgres")))
        .args(["-F", "-c", "listen_addresses=", "-k"])
        .arg(folder.path())
        .arg("-D")
        .arg(&data)
        .spawn()
        .unwrap();
    let socket = folder.path().join(".s.PGSQL.5432");
    wait_until("PostgreSQL", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    Database { process, folder }
}
