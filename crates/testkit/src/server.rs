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

const RELOADED: &str = "the configuration was read again";
const NOT_RELOADED: &str = "the configuration of before stays in use";
const UPGRADED: &str = "has taken over: this one ends";
const NOT_UPGRADED: &str = "this galgo goes on serving";
const LISTENING: &str = "listening on ";

impl Site {
    /// Writes the configuration and starts the server; returns when it serves.
    pub fn start(mut self) -> Server {
        let command = self.serving_command();
        Server::start(command, &self)
    }

    /// Starts a server by `galgo serve` with these arguments, in the folder as it stands.
    pub fn serve(&self, args: &[&str]) -> Server {
        Server::start(self.command(&[&["serve"], args].concat()), self)
    }
}

/// A running server; ended when dropped, with every program it started.
#[derive(Debug)]
pub struct Server {
    /// What it serves.
    pub site: Site,
    /// Its process, for tests of its end.
    pub child: Child,
    /// What it printed up to the end of the table of its programs.
    pub table: String,
    killed: bool,
    /// The process that took the place of its own, by SIGUSR2; 0: none has.
    successor: AtomicU32,
}

impl Server {
    /// Starts a server by `command`; returns when it listens. Its standard error is the file `stderr` of `site`.
    #[track_caller]
    pub fn start(mut command: Command, site: &Site) -> Self {
        let errors = fs::File::create(site.path("stderr")).unwrap();
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(errors).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut table, mut empty) = (String::new(), 0);
        // The table stands between two empty lines.
        while empty < 2 {
            let begin = table.len();
            if out.read_line(&mut table).unwrap() == 0 {
                break;
            }
            empty += usize::from(&table[begin..] == "\n");
        }
        // An access log may follow: a full pipe must not stop the server.
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
            // The first of everything: threads, connections. A short `keep_alive` may close one before it is asked.
            eventually("the first answer", || {
                let mut client = server.connect();
                let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
                (client.try_send(head) && client.reply().status == 200).then_some(())
            });
        }
        server
    }

    /// Tells of the address of each TCP listener, and of what is spoken there.
    fn each_listener(&self, tell: impl Fn(SocketAddr, Option<Spoken>)) {
        let lines = self.table.lines();
        for at in lines.map_while(|line| line.strip_prefix(LISTENING)) {
            let address = at.rsplit(['/', '+']).next().unwrap_or(at);
            if let Ok(address) = address.parse() {
                tell(address, Spoken::at(at));
            }
        }
    }

    /// Where its listener number `n` is, as it says: `http://127.0.0.1:8080`, `fastcgi+127.0.0.1:9000`, `unix:/a/socket`.
    pub fn listener(&self, n: usize) -> &str {
        let line = self.table.lines().nth(n);
        let at = line.and_then(|line| line.strip_prefix(LISTENING));
        at.unwrap_or_else(|| panic!("no listener {n}: {}", self.table))
    }

    /// The address of its TCP listener number `n`.
    pub fn listens(&self, n: usize) -> SocketAddr {
        let address = self.listener(n).rsplit(['/', '+']).next().unwrap();
        address.parse().unwrap()
    }

    /// The address of its first listener.
    pub fn address(&self) -> SocketAddr {
        self.listens(0)
    }

    /// The URL of a path on its first listener.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.listener(0))
    }

    /// Its process id: after an upgrade that of the new process.
    pub fn pid(&self) -> u32 {
        match self.successor.load(Ordering::Relaxed) {
            0 => self.child.id(),
            pid => pid,
        }
    }

    /// A path in the folder of its site.
    pub fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }

    // Requests.

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// A new connection, as the system has it.
    pub fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address()).unwrap()
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

    /// The whole response to a GET, as it came.
    pub fn page(&self, target: &str) -> String {
        client::page(self.tcp(), target, "")
    }

    // Marks: files by which programs and tests wait for each other.

    /// Where a mark is.
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

    // Its configuration, signals and end.

    /// Adds keys, tables and routes to its configuration, as [`Config::merge`] does; [`reload`](Self::reload) has it read.
    pub fn configure(&self, toml: &str) {
        self.reconfigure(|config| config.merge(toml));
    }

    /// Changes its configuration.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Config)) {
        let file = self.path("galgo.toml");
        let mut config = Config::read(&file);
        change(&mut config);
        config.write(&file);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(process::pid(self.pid()), signal).unwrap();
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

    /// Has another process take the place of its own; returns once it has. False: it did not.
    pub fn upgrade(&self) -> bool {
        self.upgraded_by(|| self.signal(Signal::USR2))
    }

    /// Waits until another process has taken its place, for which `asks` asks. False: none has.
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

    /// Kills it: it ends and cleans up nothing.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.killed = true;
    }

    // Its logs.

    /// What it wrote to standard error so far: the error log, panics, and what its programs wrote.
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

    /// The lines of the access log so far.
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
        // A port may be that of another server next, which a test has started by itself.
        self.each_listener(|address, _| stream::is_spoken_at(address, None));
        if self.site.ends_by_term && !self.killed && !failed {
            let told = kill_process(process::pid(self.pid()), Signal::TERM);
            if self.pid() == self.child.id() {
                told.unwrap();
            } else {
                // It is no child of this process, and may have ended before.
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
