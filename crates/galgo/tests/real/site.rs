//! A folder with a configuration, and a server on it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{curl::curl, processes::wait_until};

/// Patient, for a busy machine must not change what a test says.
const PATIENT: &str = r#"
min_rate = 0
head_timeout = "5m"
queue_wait = "5m"
[defaults]
first_byte_timeout = "5m"
idle_timeout = "5m"
"#;

/// A folder that is about to be served.
pub(crate) struct Site {
    folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("galgo-real-")
            .tempdir()
            .unwrap();
        // Somebody else may be the one who runs the programs.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("cgi-bin")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file, with the folders above it.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A program in `cgi-bin`.
    pub(crate) fn program(&self, name: &str, source: &str) {
        let path = self.file(&format!("cgi-bin/{name}"), source);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A named pipe: whoever opens it waits for the other side.
    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        path
    }

    /// Serves it; `config` is what stands in galgo.toml besides patience.
    pub(crate) fn serve(self, config: &str) -> Server {
        // Every program a second time, kept loaded.
        let warm = std::env::var_os("GALGO_TEST_START").is_some_and(|start| start == "warm");
        let start = if warm && !config.contains("start =") {
            "start = \"warm\""
        } else {
            ""
        };
        self.file("galgo.toml", format!("{PATIENT}{start}\n{config}"));
        let folder = self.folder.path().to_owned();
        self.serve_folder(&folder)
    }

    /// Serves it as another user, which root alone can.
    pub(crate) fn serve_as(self, user: &str, config: &str) -> Server {
        self.file(
            "galgo.toml",
            format!("user = \"{user}\"\n{PATIENT}\n{config}"),
        );
        let folder = self.folder.path().to_owned();
        self.serve_folder(&folder)
    }

    /// Serves it on one more address; `top` stands at the top of galgo.toml.
    pub(crate) fn serve_also(self, top: &str, config: &str, listen: &str) -> Server {
        self.file("galgo.toml", format!("{top}\n{PATIENT}\n{config}"));
        let folder = self.folder.path().to_owned();
        self.serve_on(&folder, &["--listen", listen])
    }

    /// Serves another folder, which has a configuration of its own.
    pub(crate) fn serve_folder(self, folder: &Path) -> Server {
        self.serve_on(folder, &[])
    }

    fn serve_on(self, folder: &Path, more: &[&str]) -> Server {
        let log = fs::File::create(self.path("error.log")).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_galgo"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(more)
            .arg(folder)
            .env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let Some(url) = line.strip_prefix("listening on ") else {
            let log = fs::read_to_string(self.path("error.log")).unwrap();
            panic!("the server did not start: {line}{log}");
        };
        let url = url.trim().to_owned();
        // The access log: nobody must be kept waiting by a full pipe.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        Server {
            process,
            url,
            site: self,
            killed: false,
        }
    }

    /// Serves it with `cgi-bin` at `/cgi-bin/`.
    pub(crate) fn serve_programs(self, config: &str) -> Server {
        self.serve(&format!(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n{config}"
        ))
    }
}

/// A running server; it ends with the value.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
    pub(crate) site: Site,
    killed: bool,
}

impl Server {
    /// Kills it: nothing is ended or cleaned up by it.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.killed = true;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Puts `to` in the place of `from` in its configuration, has it read again, and waits until that is done.
    pub(crate) fn reload(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.site.path("galgo.toml")).unwrap();
        assert!(text.contains(from), "{from:?} is not in {text}");
        self.site.file("galgo.toml", text.replacen(from, to, 1));
        let said = || {
            self.log()
                .matches("the configuration was read again")
                .count()
        };
        let before = said();
        kill_process(Pid::from_child(&self.process), Signal::HUP).unwrap();
        wait_until("the configuration to be read", || said() > before);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Asks for a module of the demo site until it is compiled: on a busy machine that takes longer than the clocks there allow.
    pub(crate) fn compiled(&self, name: &str) {
        let host = Path::new(env!("CARGO_BIN_EXE_galgo")).with_file_name("galgo-wasm");
        let missing = "is missing: cargo build -p galgo-wasm-host, or test the whole workspace";
        assert!(host.exists(), "{} {missing}", host.display());
        let url = self.url(&format!("/cgi-bin/{name}"));
        wait_until("a module is compiled", || curl(&[&url]).status != 504);
    }

    /// What it and its programs wrote to standard error.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.site.path("error.log")).unwrap()).into_owned()
    }

    /// The log is written beside the requests, so a line may come after the response it belongs to.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, words: &str) {
        wait_until(words, || self.log().contains(words));
    }
}

#[allow(clippy::print_stderr, reason = "what a failed test is understood by")]
impl Drop for Server {
    /// SIGTERM must end it properly, and nothing may have panicked in it.
    fn drop(&mut self) {
        if self.killed {
            return;
        }
        let pid = Pid::from_child(&self.process);
        kill_process(
            pid,
            if std::thread::panicking() {
                Signal::KILL
            } else {
                Signal::TERM
            },
        )
        .unwrap();
        let status = self.process.wait().unwrap();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
            return;
        }
        assert!(status.success(), "{status}\n{}", self.log());
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Something the test cannot do without.
pub(crate) fn needed(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    assert!(
        path.exists(),
        "{} is missing: `scripts/need test` installs it",
        path.display()
    );
    path.to_owned()
}

/// The demo site, built once from `examples/`: every program of it, or the test fails.
pub(crate) fn demo() -> &'static Path {
    static DEMO: OnceLock<PathBuf> = OnceLock::new();
    DEMO.get_or_init(|| {
        let root = root().canonicalize().unwrap();
        let site = root.join(".build/demo");
        let output = Command::new(root.join("examples/build"))
            .arg("--strict")
            .arg(&site)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "`scripts/need test` installs what is missing: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        site
    })
}
