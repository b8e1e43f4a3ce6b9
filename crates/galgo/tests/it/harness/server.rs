//! A folder to serve, and the server that serves it.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Client, Reply, eventually, watch::Watch};

/// A folder with a program `cgi-bin/t` ([`super::child`]), and its configuration.
#[derive(Debug)]
pub struct Site {
    dir: TempDir,
    top: String,
    defaults: String,
    routes: String,
    arguments: Vec<String>,
    /// What starts the server, where that is another program.
    through: Vec<String>,
    galgo: PathBuf,
    waits: bool,
}

impl Site {
    /// The usual site: programs at `/cgi-bin/`, files at `/`, a constant answer at `/health`.
    pub fn new() -> Self {
        // Beside the test binary, so that programs can be links to it.
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for folder in ["cgi-bin", "public", "marks"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let site = Self {
            dir,
            top: String::new(),
            defaults: String::new(),
            routes: String::new(),
            arguments: Vec::new(),
            through: Vec::new(),
            galgo: env!("CARGO_BIN_EXE_galgo").into(),
            waits: true,
        };
        site.program("cgi-bin/t")
    }

    /// Adds keys to the top of the configuration.
    pub fn top(mut self, toml: &str) -> Self {
        self.top.push_str(toml);
        self.top.push('\n');
        self
    }

    /// Adds keys to `[defaults]`.
    pub fn defaults(mut self, toml: &str) -> Self {
        self.defaults.push_str(toml);
        self.defaults.push('\n');
        self
    }

    /// Adds a table such as `[[route]]`.
    pub fn table(mut self, toml: &str) -> Self {
        self.routes.push_str(toml);
        self.routes.push('\n');
        self
    }

    /// Adds command line arguments behind `serve DIR`.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// The server is started by another program: its command line, to which the server's is appended.
    pub fn through(mut self, command: &[&str]) -> Self {
        self.through = command.iter().map(ToString::to_string).collect();
        self
    }

    /// The server is a copy of the binary, in a folder of the site.
    pub fn copied(mut self, path: &str) -> Self {
        let to = self.dir.path().join(path);
        copy(&self.galgo, &to);
        self.galgo = to;
        self
    }

    /// The server runs as another user from its first moment on, who owns the folder. For root only.
    pub fn owned_by(self, uid: u32) -> Self {
        for folder in ["", "cgi-bin", "marks", "public"] {
            std::os::unix::fs::chown(self.dir.path().join(folder), Some(uid), Some(uid)).unwrap();
        }
        let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
        self.through(&["setpriv", &user, &group, "--clear-groups"])
    }

    /// Requests do not wait for templates that are being loaded, as without tests.
    pub fn without_waiting(mut self) -> Self {
        self.waits = false;
        self
    }

    /// Adds a C program.
    pub fn compiled(self, path: &str, source: &str, flags: &[&str]) -> Self {
        compile(&self.dir.path().join(path), source, flags);
        self
    }

    /// Adds the test program under another name.
    pub fn program(self, path: &str) -> Self {
        let (from, to) = (std::env::current_exe().unwrap(), self.dir.path().join(path));
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).unwrap();
        }
        self
    }

    /// Adds a file with permission bits `mode`, and the folders it is in.
    pub fn file(self, path: &str, content: impl AsRef<[u8]>, mode: u32) -> Self {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Whether every folder on the way to it may be entered by anybody.
    pub fn is_reachable(&self) -> bool {
        let open = |folder: &Path| fs::metadata(folder).is_ok_and(|m| m.mode() & 0o001 != 0);
        self.path().ancestors().skip(1).all(open)
    }

    /// Writes the configuration and starts the server; returns when it serves.
    pub fn start(self) -> Server {
        let routes = &self.routes;
        let config = format!(
            "listen = [\"127.0.0.1:0\"]\naccess_log = \"access.log\"\nlog_format = \"json\"\n{}\n\
             [defaults]\n{}\n{routes}\n\
             [[route]]\npath = \"/health\"\nrespond = {{ type = \"text/plain\", body = \"fine\" }}\n",
            self.top,
            warm(&self.defaults),
        );
        let mut config = config;
        // Longer than a machine stands still: what is no test of these clocks does not meet them.
        for clock in ["head_timeout", "queue_wait", "shutdown_grace"] {
            if !self.top.contains(clock) {
                config = format!("{clock} = \"2m\"\n{config}");
            }
        }
        for (path, kind, folder) in [("/cgi-bin/", "cgi", "cgi-bin"), ("/", "files", "public")] {
            if !routes.contains(&format!("path = \"{path}\"\n")) {
                config.push_str(&format!(
                    "[[route]]\npath = \"{path}\"\n{kind} = \"{folder}\"\n"
                ));
            }
        }
        fs::write(self.dir.path().join("galgo.toml"), config).unwrap();
        Server::start(self)
    }
}

/// Copies a program in one step, by another process: a descriptor open for writing that a test beside this one hands on
/// to its child would make it busy (ETXTBSY).
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    let draft = to.with_extension("draft");
    let mut cp = Command::new("cp");
    assert!(cp.arg(from).arg(&draft).status().unwrap().success());
    fs::rename(draft, to).unwrap();
}

/// Compiles a C program; in another folder, for one that is replaced by it.
pub fn compile(to: &Path, source: &str, flags: &[&str]) {
    let from = to.with_extension("source.c");
    fs::write(&from, source).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(to).arg(&from).args(flags);
    assert!(cc.status().unwrap().success(), "cc {}", to.display());
    fs::remove_file(from).unwrap();
}

/// With `GALGO_TEST_START=warm` all programs are, in every test that does not say how.
fn warm(defaults: &str) -> String {
    match std::env::var_os("GALGO_TEST_START") {
        Some(start) if start == "warm" && !defaults.contains("start =") => {
            format!("start = \"warm\"\n{defaults}")
        }
        _ => defaults.to_owned(),
    }
}

const RELOADED: &str = "the configuration was read again";
const NOT_RELOADED: &str = "the configuration of before stays in use";

/// A running server; ended when dropped, with every program it started.
#[derive(Debug)]
pub struct Server {
    site: Site,
    process: Child,
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(site: Site) -> Self {
        let errors = fs::File::create(site.path().join("stderr")).unwrap();
        let galgo = site.galgo.as_os_str();
        let mut words = site.through.iter().map(OsStr::new).chain([galgo]);
        let mut command = Command::new(words.next().unwrap_or(galgo));
        command.args(words);
        if let Some(way) = super::output() {
            command.env("GALGO_TEST_OUTPUT", way);
        }
        if site.waits {
            command.env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1");
        }
        let mut process = command
            .arg("serve")
            .arg(site.path())
            .args(&site.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let mut server = Self {
            site,
            process,
            stdout,
            address: String::new(),
        };
        let address = line.trim_end().strip_prefix("listening on http://");
        server.address = address
            .unwrap_or_else(|| panic!("not started: {line:?} {}", server.errors()))
            .to_owned();
        // The first of everything: threads, connections. A short `keep_alive` may close one before it is asked.
        eventually("the first answer", || {
            let mut client = server.connect();
            let sent = client.try_send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
            (sent && client.reply().status == 200).then_some(())
        });
        server
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address.parse().unwrap()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The folder it serves.
    pub fn path(&self) -> &Path {
        self.site.path()
    }

    /// The next line of its standard output, behind the first.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Its process, for tests of its end.
    pub fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// One GET on a connection of its own.
    pub fn get(&self, target: &str) -> Reply {
        let mut client = self.connect();
        client.get(target);
        client.reply()
    }

    /// Writes `request` on a connection of its own and reads one response.
    pub fn ask(&self, request: impl AsRef<[u8]>) -> Reply {
        let mut client = self.connect();
        client.send(request);
        client.reply()
    }

    /// Begins to watch what must hold afterwards.
    pub fn watch(&self) -> Watch<'_> {
        Watch::begin(self)
    }

    /// Where a program's mark is ([`super::child`]: `touch`, `await`).
    pub fn mark(&self, name: &str) -> PathBuf {
        self.path().join("marks").join(name)
    }

    /// Makes a mark that a program waits for.
    pub fn set(&self, name: &str) {
        fs::write(self.mark(name), "").unwrap();
    }

    /// Waits for a mark that a program makes.
    pub fn wait_for(&self, name: &str) {
        eventually(&format!("the mark {name}"), || {
            self.mark(name).exists().then_some(())
        });
    }

    /// Replaces `from` in its configuration, which must hold it, by `to`.
    pub fn configure(&self, from: &str, to: &str) {
        let file = self.path().join("galgo.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{from:?} is not in {text}");
        fs::write(&file, text.replacen(from, to, 1)).unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid() as i32).unwrap(), signal).unwrap();
    }

    /// Has it read its configuration again; returns once it has. False: there was something wrong with it.
    pub fn reload(&self) -> bool {
        let said = |words| self.errors().matches(words).count();
        let before = [RELOADED, NOT_RELOADED].map(said);
        self.signal(Signal::HUP);
        eventually("what came of the configuration", || {
            let now = [RELOADED, NOT_RELOADED].map(said);
            (now != before).then_some(now[1] == before[1])
        })
    }

    /// What it wrote to standard error so far: the error log, and panics.
    pub fn errors(&self) -> String {
        let bytes = fs::read(self.path().join("stderr")).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the error log holds `words`.
    pub fn says(&self, words: &str) {
        eventually(&format!("{words:?} in the error log"), || {
            self.errors().contains(words).then_some(())
        });
    }

    /// The lines of the access log so far.
    pub fn access(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path().join("access.log")).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let line = |line| serde_json::from_str(line).expect("a line of JSON");
        text[..whole].lines().map(line).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for pid in super::watch::processes_of(self.site.path()) {
            let pid = Pid::from_raw(pid as i32).unwrap();
            let _ = kill_process(pid, Signal::KILL);
        }
        if std::thread::panicking() {
            eprintln!("--- error log\n{}", self.errors());
        }
    }
}
