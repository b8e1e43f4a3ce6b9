//! A site in a folder of its own, the binary, and a server that ends with the test.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

pub(crate) const GALGO: &str = env!("CARGO_BIN_EXE_galgo");

/// What runs modules lies beside galgo, where cargo puts it for the tests of its own package.
pub(crate) fn host() -> PathBuf {
    let host = Path::new(GALGO).with_file_name("galgo-wasm");
    let missing = "is missing: cargo build -p galgo-wasm-host, or test the whole workspace";
    assert!(host.exists(), "{} {missing}", host.display());
    host
}

pub(crate) struct Site(tempfile::TempDir);

impl Site {
    /// A site with an empty `cgi-bin/`, which every user may enter.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("cgi-bin")).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// An executable file in `cgi-bin/`. It is written by another process: a descriptor open for writing
    /// that a test beside this one hands on to its child would make it busy (ETXTBSY).
    pub(crate) fn program(&self, name: &str, text: &str) {
        let path = self.path("cgi-bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut sh = Command::new("sh")
            .args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        sh.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(sh.wait().unwrap().success());
    }

    /// A shell program.
    pub(crate) fn sh(&self, name: &str, text: &str) {
        self.program(name, &format!("#!/bin/sh\n{text}\n"));
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(GALGO);
        command.args(args).current_dir(self.0.path());
        command.env_remove("NO_COLOR");
        command
    }

    pub(crate) fn galgo(&self, args: &[&str]) -> Done {
        self.command(args)
            .stdin(Stdio::null())
            .output()
            .unwrap()
            .into()
    }

    pub(crate) fn serve(&self, args: &[&str]) -> Server {
        Server::start(self.command(&[&["serve"], args].concat()))
    }
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Done {
    fn from(o: Output) -> Self {
        Self {
            code: o.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&o.stdout).into_owned(),
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// The lines of its standard output up to the end of the table.
    pub(crate) table: String,
    /// What its first line names.
    pub(crate) at: String,
    _out: BufReader<std::process::ChildStdout>,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut table = String::new();
        // The table stands between two empty lines.
        let mut empty = 0;
        while empty < 2 {
            let mut line = String::new();
            if out.read_line(&mut line).unwrap() == 0 {
                break;
            }
            empty += usize::from(line == "\n");
            table.push_str(&line);
        }
        let first = table.lines().next().unwrap_or_default();
        let at = first
            .strip_prefix("listening on ")
            .unwrap_or_default()
            .to_owned();
        Self {
            child,
            table,
            at,
            _out: out,
        }
    }

    pub(crate) fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.at.strip_prefix("http://").unwrap()).unwrap()
    }

    /// The whole response to a GET.
    pub(crate) fn page(&self, path: &str) -> String {
        ask(self.tcp(), path, "")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a GET with further header lines over a connection and returns all that comes back.
pub(crate) fn ask(mut to: impl Read + Write, path: &str, fields: &str) -> String {
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    to.write_all(head.as_bytes()).unwrap();
    let mut all = Vec::new();
    to.read_to_end(&mut all).unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

pub(crate) fn unix(path: &Path) -> UnixStream {
    UnixStream::connect(path).unwrap()
}

/// Waits until a process is gone, or is a zombie that only waits for its parent.
pub(crate) fn assert_gone(pid: i32) {
    for _ in 0..18_000 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("process {pid} is still there");
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
