//! A running server.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Signal, kill_process};

use crate::{
    client::{self, Client, Reply},
    config::Config,
    file::whole_lines,
    process,
    site::Site,
    stream::{self, Spoken},
    wait::eventually,
};

const RELOADED: &str = "reloaded the configuration";
const NOT_RELOADED: &str = "still using the previous configuration";
const UPGRADED: &str = "has taken over: this process ends";
const NOT_UPGRADED: &str = "this process keeps serving";
const LISTENING: &str = "listening on ";

impl Site {
    /// Writes the configuration and starts the server. Returns once it serves.
    pub fn start(mut self) -> Server {
        let command = self.serving_command();
        Server::start(command, &self)
    }

    /// Starts a server by `galgo serve` with these arguments. The folder is left as it is.
    pub fn serve(&self, args: &[&str]) -> Server {
        Server::start(self.command(&[&["serve"], args].concat()), self)
    }
}

/// A running server. Dropping this ends the server and every program that it started.
#[derive(Debug)]
pub struct Server {
    /// The site that the server serves.
    pub site: Site,
    /// Process of the server, for tests of its end.
    pub child: Child,
    /// Output of the server up to the end of the table of its programs.
    pub table: String,
    killed: bool,
    /// Process that replaced the server's own after SIGUSR2; 0 if there is none.
    successor: AtomicU32,
}

impl Server {
    /// Starts a server by `command`. Returns once it listens. The server's standard error is the file `stderr` of `site`.
    #[track_caller]
    pub fn start(mut command: Command, site: &Site) -> Self {
        let errors = fs::File::create(site.path("stderr")).unwrap();
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(errors).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut table, mut empty) = (String::new(), 0);
        // The table is enclosed by two empty lines.
        while empty < 2 {
            let begin = table.len();
            if out.read_line(&mut table).unwrap() == 0 {
                break;
            }
            empty += usize::from(&table[begin..] == "\n");
        }
        // An access log may follow on standard output. A full pipe must not stop the server.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let server = Self {
            site: site.clone(),
            child,
            table,
            killed: false,
            successor: AtomicU32::new(0),
        };
        let listens = server.table.starts_with(LISTENING);
        assert!(listens, "not started: {} {}", server.table, server.errors());
        server.each_listener(stream::is_spoken_at);
        if let Some(target) = site.probe {
            // This request makes the server start its threads and connections. A short `keep_alive` may close a connection
            // too early.
            eventually("the first answer", || {
                let mut client = server.connect();
                let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                (client.try_send(head) && client.reply().status == 200).then_some(())
            });
        }
        server
    }

    /// Calls `tell` with the address of each TCP listener and the protocol there.
    fn each_listener(&self, tell: impl Fn(SocketAddr, Option<Spoken>)) {
        let lines = self.table.lines();
        for at in lines.map_while(|line| line.strip_prefix(LISTENING)) {
            let address = at.rsplit(['/', '+']).next().unwrap_or(at);
            if let Ok(address) = address.parse() {
                tell(address, Spoken::at(at));
            }
        }
    }

    /// Returns the address of listener number `n` as the server prints it: `http://127.0.0.1:8080`,
    /// `fastcgi+127.0.0.1:9000`, `unix:/a/socket`.
    pub fn listener(&self, n: usize) -> &str {
        let line = self.table.lines().nth(n);
        let at = line.and_then(|line| line.strip_prefix(LISTENING));
        at.unwrap_or_else(|| panic!("no listener {n}: {}", self.table))
    }

    /// Returns the address of TCP listener number `n`.
    pub fn listens(&self, n: usize) -> SocketAddr {
        let address = self.listener(n).rsplit(['/', '+']).next().unwrap();
        address.parse().unwrap()
    }

    /// Returns the address of the first listener.
    pub fn address(&self) -> SocketAddr {
        self.listens(0)
    }

    /// Returns the URL of a path on the first listener.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.listener(0))
    }

    /// Returns the server's process id; after an upgrade, the id of the new process.
    pub fn pid(&self) -> u32 {
        match self.successor.load(Ordering::Relaxed) {
            0 => self.child.id(),
            pid => pid,
        }
    }

    /// Returns a path in the folder of the site.
    pub fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }

    // Requests.

    /// Opens a new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Opens a new connection, without a client around it.
    pub fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address()).unwrap()
    }

    /// Sends a GET on a connection of its own.
    pub fn get(&self, target: &str) -> Reply {
        let mut client = self.connect();
        client.get(target);
        client.reply()
    }

    /// Sends `request` on a connection of its own and reads a response.
    pub fn ask(&self, request: impl AsRef<[u8]>) -> Reply {
        let mut client = self.connect();
        client.send(request);
        client.reply()
    }

    /// Returns the whole response to a GET, as it arrives.
    pub fn page(&self, target: &str) -> String {
        client::page(self.tcp(), target, "")
    }

    // Marks: files through which programs and tests wait for each other.

    /// Returns the path of a mark.
    pub fn mark(&self, name: &str) -> PathBuf {
        self.path("marks").join(name)
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

    // Configuration, signals and end.

    /// Adds keys, tables and routes to the configuration, as [`Config::merge`] does. [`reload`](Self::reload) makes the
    /// server read it.
    pub fn configure(&self, toml: &str) {
        self.reconfigure(|config| config.merge(toml));
    }

    /// Changes the configuration.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Config)) {
        let file = self.path("galgo.toml");
        let mut config = Config::read(&file);
        change(&mut config);
        config.write(&file);
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(process::pid(self.pid()), signal).unwrap();
    }

    /// Makes the server read its configuration again and waits for the result. False: the server refused the
    /// configuration.
    pub fn reload(&self) -> bool {
        let said = |words| self.errors().matches(words).count();
        let before = [RELOADED, NOT_RELOADED].map(said);
        self.signal(Signal::HUP);
        eventually("what came of the configuration", || {
            let now = [RELOADED, NOT_RELOADED].map(said);
            (now != before).then_some(now[1] == before[1])
        })
    }

    /// Makes another process replace the server's own and waits for the result. False: the upgrade failed.
    pub fn upgrade(&self) -> bool {
        self.upgraded_by(|| self.signal(Signal::USR2))
    }

    /// Calls `asks` to ask for an upgrade, and waits until another process has replaced the server's own. False: the
    /// upgrade failed.
    pub fn upgraded_by(&self, asks: impl FnOnce()) -> bool {
        let said = |words: &str| self.errors().matches(words).count();
        let before = [UPGRADED, NOT_UPGRADED].map(said);
        asks();
        let upgraded = eventually("what came of the upgrade", || {
            let now = [UPGRADED, NOT_UPGRADED].map(said);
            (now != before).then_some(now[1] == before[1])
        });
        if upgraded {
            let errors = self.errors();
            let line = errors.lines().rfind(|line| line.contains(UPGRADED));
            let pid = line.and_then(|line| line.split("process ").nth(1)?.split(' ').next());
            let pid = pid.and_then(|pid| pid.parse().ok()).expect("its id");
            self.successor.store(pid, Ordering::Relaxed);
        }
        upgraded
    }

    /// Kills the server, so that it cleans up nothing.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.killed = true;
    }

    // Logs.

    /// Returns the server's standard error so far: the error log, panics, and output of its programs.
    pub fn errors(&self) -> String {
        let bytes = fs::read(self.path("stderr")).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the error log holds `words`.
    #[track_caller]
    pub fn says(&self, words: &str) {
        eventually(&format!("{words:?} in the error log"), || {
            self.errors().contains(words).then_some(())
        });
    }

    /// Returns the lines of the access log so far.
    pub fn access(&self) -> Vec<serde_json::Value> {
        let line = |line| serde_json::from_str(line).expect("a line of JSON");
        whole_lines(&self.path("access.log"))
            .lines()
            .map(line)
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        // A test may start the next server at this port by itself.
        self.each_listener(|address, _| stream::is_spoken_at(address, None));
        if self.site.ends_by_term && !self.killed && !failed {
            let told = kill_process(process::pid(self.pid()), Signal::TERM);
            if self.pid() == self.child.id() {
                told.unwrap();
            } else {
                // The new process is no child of the test, and may have ended before.
                process::assert_gone(self.pid());
            }
            let status = self.child.wait().unwrap();
            assert!(status.success(), "{status}\n{}", self.errors());
            assert!(!self.errors().contains("panicked"), "{}", self.errors());
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.pid() != self.child.id() {
            let _ = kill_process(process::pid(self.pid()), Signal::KILL);
        }
        for pid in process::of_site(self.site.folder()) {
            let _ = kill_process(process::pid(pid), Signal::KILL);
        }
        if failed {
            eprintln!("--- error log\n{}", self.errors());
        }
    }
}
