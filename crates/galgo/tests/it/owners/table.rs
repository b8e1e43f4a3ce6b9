//! The tables `attack x configuration x result` of docs/security.md: the test makes them and compares them with the page. To
//! write them anew, run the test with GALGO_WRITE_TABLE=1.

mod attacks;
mod modules;
mod sites;

use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
    thread,
};

use crate::harness::{list, skip};
use galgo_testkit::{
    Client, Server,
    accounts::Accounts,
    eventually,
    process::{self, command_line, parent, pids, waits_for_a_request},
    wait_until,
};
use rustix::process::Signal;

use super::{helpers, needs_a_lasting_place, spawner, uid_of};
use sites::{FOLDERS, Users};

list![the_tables_are_what_happens];

/// The attack behind each line that the program prints.
const ROWS: [&str; 36] = [
    "signals, looks into, traces or changes the server, or takes a descriptor of it",
    "the spawner",
    "a helper",
    "templates of its own user",
    "children of them that wait for a request",
    "a program of another user",
    "another program of its own user",
    "changes limits or priority of the server",
    "of the spawner",
    "of a helper",
    "of templates of its own user",
    "of children of them that wait for a request",
    "of a program of another user",
    "of another program of its own user",
    "reads a file that another user alone may read",
    "reads a file that the server's user alone may read",
    "reads the key of a certificate, which only the user that starts galgo may read",
    "reads the configuration, which everybody may read",
    "reads the access log",
    "reads a file outside of its folder that everybody may read",
    "changes the key, the configuration or the log",
    "changes its own program, which belongs to its user",
    "changes a file outside of its folder that everybody may change",
    "leaves a file in /tmp for others",
    "leaves a set-user-ID file",
    "connects to a port of this machine",
    "listens on a TCP port",
    "connects to an abstract socket of another process",
    "sees the machine's processes",
    "makes a user namespace",
    "gains root's rights by a set-user-ID program",
    "has descriptors beside 0, 1 and 2",
    "takes more memory than `memory`",
    "starts more processes than `processes`",
    "writes a larger file than `file_size`",
    "computes longer than `cpu`, deaf to SIGXCPU",
];
/// Result of an attack for which WASI has no call.
const NO_CALL: &str = "no call";
/// Leftover processes, in the order of the attacks' numbers.
const STAYS: [&str; 5] = [
    "keeps a process running, in a session of its own",
    "by two forks",
    "in its process group, with its descriptors closed",
    "deaf to TERM, HUP and INT",
    "by more forks, each in a session, and tries to lower RLIMIT_LOCKS",
];

/// (configuration, path of its attacks below a folder)
const COLUMNS: [(&str, &str); 8] = [
    ("program", "cold/attacks"),
    ("strict", "strict/attacks"),
    ("warm", "warm/attacks"),
    ("warm, strict", "warm-strict/attacks"),
    ("worker", "worker"),
    ("worker, strict", "worker-strict"),
    ("module", "cold/attacks.wasm"),
    ("module, strict", "strict/attacks.wasm"),
];

const TITLES: [&str; 4] = [
    "Root starts galgo, and programs run as the server's user",
    "Root starts galgo, and programs run as another user (`user`)",
    "An ordinary user starts galgo",
    "Root starts galgo without `user`, and all runs as root",
];

/// The attacking programs of one folder on a server, and the arguments for them.
struct Attackers<'a> {
    server: &'a Server,
    folder: &'a str,
    told: String,
    same: u32,
    _same: Client,
}

/// Starts a program that runs until its client disconnects, and returns its pid.
fn stays(server: &Server, path: &str) -> (Client, u32) {
    let mut client = server.connect();
    client.get(&format!("{path}?stay"));
    assert_eq!(client.head().status, 200, "{}", server.errors());
    let pid = String::from_utf8(client.chunk().unwrap()).unwrap();
    (client, pid.trim().parse().unwrap())
}

fn runs(pid: u32) -> bool {
    pids().any(|p| p == pid)
}

fn with_argument(argument: &str) -> Vec<u32> {
    pids()
        .filter(|pid| command_line(*pid).contains(argument))
        .collect()
}

/// Returns the templates of the warm programs, and their waiting children.
fn kept_loaded(server: &Server, folder: &str) -> (Vec<u32>, Vec<u32>) {
    let program = server.path(folder).join("bystander");
    let program = program.canonicalize().unwrap().display().to_string();
    eventually("templates with children that wait", || {
        for route in ["warm", "warm-strict"] {
            let said = server.get(&format!("/{folder}/{route}/bystander")).text();
            assert_eq!(said, "GOOD", "{}", server.errors());
        }
        let mut starts = helpers(server);
        starts.push(server.pid());
        let ours = |pid: &u32| {
            parent(*pid).is_some_and(|of| starts.contains(&of))
                && command_line(*pid).contains(&program)
                && waits_for_a_request(*pid)
        };
        // A template reads orders from descriptor 3; see `warm::templates`.
        let reads_orders = |pid: &u32| {
            let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            call.split(' ').nth(1) == Some("0x3")
        };
        let (templates, waiting): (Vec<u32>, Vec<u32>) =
            pids().filter(ours).partition(reads_orders);
        (templates.len() == 4 && waiting.len() > 1).then_some((templates, waiting))
    })
}

fn listed(pids: &[u32]) -> String {
    let all: Vec<_> = pids.iter().map(u32::to_string).collect();
    all.join(",")
}

impl<'a> Attackers<'a> {
    fn new(server: &'a Server, folder: &'a str, told: &str) -> Self {
        let (templates, waiting) = kept_loaded(server, folder);
        let (_same, same) = stays(server, &format!("/{folder}/cold/bystander"));
        // A helper for the same user.
        let helper = eventually("a helper", || {
            let user = |pid| uid_of(pid).rsplit(' ').next().map(str::to_owned);
            let of_same = |pid: &u32| user(*pid) == user(same);
            helpers(server).into_iter().find(of_same)
        });
        let at = |name: &str| {
            let path = server.path(name).canonicalize().unwrap();
            format!("{name}={}", path.display())
        };
        let files = ["users", "servers", "open", "shared", "rooted"].map(at);
        let told = format!(
            "server={}&spawner={}&helper={helper}&same={same}&templates={}&waiting={}&{}&{}&{}&{}&{told}",
            server.pid(),
            spawner(server),
            listed(&templates),
            listed(&waiting),
            files.join("&"),
            at("tls.key").replacen("tls.key", "key", 1),
            at("galgo.toml").replacen("galgo.toml", "config", 1),
            at("access.log").replacen("access.log", "log", 1),
        );
        Self {
            server,
            folder,
            told,
            same,
            _same,
        }
    }

    /// Returns the results of each attack in one configuration.
    fn column(&self, at: usize) -> Vec<String> {
        if is_module(at) {
            return modules::column(self, at);
        }
        let server = self.server;
        let path = format!("/{}/{}", self.folder, COLUMNS[at].1);
        let stays = self.mark(at);
        let left = format!("/tmp/galgo-left-{stays}");
        let program = server.path(self.folder).join("attacks");
        let program = program.display();
        let told = format!("{}&stays={stays}&left={left}&program={program}", self.told);
        let said = if is_worker(at) {
            let mut client = server.connect();
            let command = format!("QUERY_STRING='{told}' ./attacks 2>&1 | tail -n +3");
            client.post(&path, command.as_bytes());
            client.reply().text()
        } else {
            let said = server.get(&format!("{path}?{told}")).text();
            // galgo makes a template after the first request of a kind. That request starts cold unless it waits for the
            // template.
            assert!(server.errors().contains("attacks: loaded") || !path.contains("warm"));
            said
        };
        let mut said: Vec<String> = said.lines().map(String::from).collect();
        assert_eq!(
            said.len(),
            ROWS.len(),
            "{path} {said:?} {}",
            server.errors()
        );
        if fs::remove_file(left).is_err() {
            let at = ROWS.iter().position(|row| row.contains("/tmp")).unwrap();
            if said[at] == "done" {
                said[at] = "in a /tmp of its own".into();
            }
        }
        said
    }

    /// Returns a number that marks the arguments of the processes that an attack leaves behind.
    fn mark(&self, at: usize) -> String {
        let folder = FOLDERS.iter().position(|f| *f == self.folder).unwrap();
        format!("{}{folder}{at}", 1_000_000 + self.server.pid())
    }

    /// Returns how many processes an attack has left behind: by this way, or by any way.
    fn left(&self, at: usize, way: Option<usize>) -> usize {
        let way = way.map_or(String::new(), |way| way.to_string());
        with_argument(&format!("sleep {}{way}", self.mark(at))).len()
    }

    /// Returns, for each configuration, how the leftover processes end.
    fn ends(&self) -> Vec<[&'static str; STAYS.len()]> {
        for at in (0..COLUMNS.len()).filter(|at| is_worker(*at)) {
            let name = COLUMNS[at].0;
            for (way, stay) in STAYS.iter().enumerate() {
                assert_eq!(self.left(at, Some(way)), 1, "{name}: {stay}");
            }
        }
        let app = self.server.path(self.folder).join("app");
        let app = app.display().to_string();
        for worker in with_argument(&app) {
            // The worker may be about to end by itself, because the next one begins.
            let _ = rustix::process::kill_process(process::pid(worker), Signal::KILL);
        }
        wait_until("the end of what was left running", || {
            (0..COLUMNS.len()).all(|at| self.left(at, None) == 0)
        });
        let end = |at| match at {
            at if is_worker(at) => "ends with the worker",
            at if is_module(at) => NO_CALL,
            _ => "is ended",
        };
        (0..COLUMNS.len())
            .map(|at| [end(at); STAYS.len()])
            .collect()
    }

    /// Returns all columns of this folder, and checks that the attacked processes still work.
    fn columns(&self) -> Vec<Vec<String>> {
        let mut columns: Vec<_> = (0..COLUMNS.len()).map(|at| self.column(at)).collect();
        for (column, end) in columns.iter_mut().zip(self.ends()) {
            column.extend(end.map(String::from));
        }
        // The templates answer as before, and none has ended by itself.
        kept_loaded(self.server, self.folder);
        let said = self.server.errors();
        assert!(!said.contains("replaced"), "{said}");
        assert!(runs(self.same), "{}", self.server.errors());
        columns
    }
}

fn is_module(at: usize) -> bool {
    COLUMNS[at].1.ends_with(".wasm")
}

fn is_worker(at: usize) -> bool {
    COLUMNS[at].1.starts_with("worker")
}

fn the_tables_are_what_happens() {
    needs_a_lasting_place();
    if !galgo_spawn::keeps_apart() {
        skip!("this kernel cannot isolate programs");
    }
    let accounts = Accounts::new("galgo-t", 4, |_| "/nonexistent".into());
    let users = Users::of(&accounts);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let [by_root, without_root, all_root] = [
        sites::by_root(users),
        sites::without_root(users),
        sites::all_root(users),
    ];
    let name = format!("galgo-test-{}", by_root.pid());
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let (_third, third) = stays(&by_root, "/third/bystander");
    let port = listener.local_addr().unwrap().port();
    let told = format!("other={third}&port={port}&abstract={name}");
    let [own, other] = FOLDERS;
    let all = [
        (&by_root, own),
        (&by_root, other),
        (&without_root, own),
        (&all_root, own),
    ];
    // Each folder uses all the processor time that it may, and no two folders have the same user.
    let columns = thread::scope(|scope| {
        let told = &told;
        let attack =
            |(server, folder)| scope.spawn(move || Attackers::new(server, folder, told).columns());
        all.map(attack).map(|columns| columns.join().unwrap())
    });
    assert!(runs(third), "{}", by_root.errors());
    let tables: String = TITLES.iter().zip(&columns).map(table).collect();
    compare(&tables);
}

fn table((title, columns): (&&str, &Vec<Vec<String>>)) -> String {
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    let rule = "---|".repeat(COLUMNS.len() + 1);
    let mut table = format!("\n**{title}:**\n\n| a program … | {names} |\n|{rule}\n");
    for (at, row) in ROWS.iter().chain(&STAYS).enumerate() {
        let results: Vec<_> = columns.iter().map(|column| &*column[at]).collect();
        writeln!(table, "| {row} | {} |", results.join(" | ")).unwrap();
    }
    table
}

/// Compares the tables with those in the documentation.
fn compare(tables: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- made by owners::table -->\n").unwrap();
    let (there, after) = rest.split_once("<!-- end -->\n").unwrap();
    if std::env::var_os("GALGO_WRITE_TABLE").is_some() {
        let page = format!("{before}<!-- made by owners::table -->\n{tables}<!-- end -->\n{after}");
        fs::write(path, page).unwrap();
        return;
    }
    assert_eq!(tables, there, "docs/security.md says otherwise");
}
