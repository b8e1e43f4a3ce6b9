//! Programs that take more than their share, and programs that are replaced while they are used.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::harness::{list, new_site, watch::Watch};
use galgo_testkit::{Reply, wait_until};

fn memory_bomb() {
    let server = new_site().defaults("memory = \"64M\"").start();
    let watch = Watch::begin(&server).memory(24 << 20);
    // A program below the limit is not stopped.
    assert_eq!(server.get("/cgi-bin/t?head&eat=1000000").text(), "ate");
    let reply = server.get("/cgi-bin/t?eat=1000000000&head");
    assert_eq!(reply.status, 502);
    server.says("SIGABRT");
    watch.after(&["ok", "script_error"]);
}

fn file_bomb() {
    let server = new_site().defaults("file_size = \"1M\"").start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/cgi-bin/t?head&write=1000000").text(), "wrote");
    let reply = server.get("/cgi-bin/t?write=1000000000&head");
    assert_eq!(reply.status, 502);
    server.says("SIGXFSZ");
    assert_eq!(fs::metadata(server.mark("large")).unwrap().len(), 1 << 20);
    watch.after(&["ok", "script_error"]);
}

fn ten_thousand_open_files() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let reply = server.get("/cgi-bin/t?head&files=10000");
    // The default is 1024; the standard streams take three.
    assert_eq!(reply.text(), "1021");
    watch.after(&["ok"]);
}

fn endless_computation() {
    let server = new_site().file("cgi-bin/busy", "#!/bin/sh\nwhile :; do :; done\n", 0o755);
    let server = server.defaults("cpu = 1").start();
    let watch = Watch::begin(&server);
    let reply = server.get("/cgi-bin/busy");
    assert_eq!(reply.status, 502);
    server.says("SIGXCPU");
    watch.after(&["script_error"]);
}

/// RLIMIT_NPROC counts the processes of a user; it does not limit root.
fn fork_bomb() {
    let server = new_site()
        .defaults("processes = 40")
        .file("cgi-bin/ids", "", 0o644);
    let server = if rustix::process::geteuid().is_root() {
        use std::os::unix::fs::PermissionsExt;
        let Some(user) = unused_user() else {
            crate::harness::skip!("needs a user that runs nothing else: games, news or uucp");
        };
        // The user that the server becomes must reach its programs and write its logs.
        for folder in ["", "marks"] {
            let open = fs::Permissions::from_mode(0o777);
            fs::set_permissions(server.path(folder), open).unwrap();
        }
        if !server.is_reachable() {
            crate::harness::skip!("needs a target folder that other users may enter");
        }
        server.arguments(&["--user", user])
    } else {
        crate::harness::skip!("needs root: the tests' own user runs more processes")
    };
    let server = server.start();
    let watch = Watch::begin(&server);
    let reply = server.get("/cgi-bin/t?head&spawn=1000");
    let started: usize = reply.text().parse().expect("how many processes there were");
    assert!((1..40).contains(&started), "{started} processes");
    // The spawned processes hold the output open.
    watch.after(&["script_error"]);
}

/// Returns a user of the system that owns no process.
fn unused_user() -> Option<&'static str> {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    ["games", "news", "uucp"].into_iter().find(|name| {
        let line = users.lines().find(|l| l.starts_with(&format!("{name}:")));
        let Some(uid) = line.and_then(|l| l.split(':').nth(2)) else {
            return false;
        };
        let owned = |status: String| {
            let line = status
                .lines()
                .find(|l| l.starts_with("Uid:"))
                .unwrap_or("")
                .to_owned();
            line.split_whitespace().nth(1) == Some(uid)
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        !all.filter_map(|e| fs::read_to_string(e.path().join("status")).ok())
            .any(owned)
    })
}

/// Sends requests while `replace` replaces the program. Each request must be answered by one version or the other.
fn replaced_under_load(name: &str, replace: impl Fn(&std::path::Path, &str, usize) + Sync) {
    let version = |n: usize| format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n{n}'\n");
    let site = new_site().file(&format!("cgi-bin/{name}"), version(0), 0o755);
    let server = site.config("max_running = 4").start();
    let watch = Watch::begin(&server);
    let path = server.path("cgi-bin").join(name);
    let over = AtomicBool::new(false);
    let asked: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (server, over) = (&server, &over);
                scope.spawn(move || {
                    let mut client = server.connect();
                    let mut asked = 0;
                    while !over.load(Ordering::Relaxed) {
                        client.get(&format!("/cgi-bin/{name}"));
                        let reply = client.reply();
                        assert_eq!(reply.status, 200, "{}", server.errors());
                        reply.text().parse::<usize>().expect("a version");
                        asked += 1;
                    }
                    asked
                })
            })
            .collect();
        for n in 1..=20 {
            replace(&path, &version(n), n);
        }
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|c| c.join().unwrap()).sum()
    });
    assert_eq!(server.get(&format!("/cgi-bin/{name}")).text(), "20");
    watch.after(&vec!["ok"; asked + 1]);
}

fn replaced_by_a_rename_under_load() {
    use std::os::unix::fs::PermissionsExt;
    replaced_under_load("renamed", |path, version, n| {
        let new = path.with_file_name(format!(".new{n}"));
        fs::write(&new, version).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, path).unwrap();
        thread::sleep(Duration::from_millis(5));
    });
}

/// A program whose file is open for writing cannot be executed (ETXTBSY); the request waits.
fn replaced_in_place() {
    // Cold starts, because a template runs the program: its file could not be opened for writing.
    let cold = new_site().defaults("start = \"cold\"");
    let server = cold.own_binary("cgi-bin/other").start();
    let watch = Watch::begin(&server);
    let path = server.path("cgi-bin/copy");
    fs::copy(server.path("cgi-bin/other"), &path).unwrap();
    assert_eq!(server.get("/cgi-bin/copy?head&out=old").text(), "old");
    let mut outcomes = vec!["ok"];
    busy_for_a_moment(&mut outcomes, || {
        let busy = fs::File::options().write(true).open(&path).unwrap();
        let mut client = server.connect();
        client.get("/cgi-bin/copy?head&out=new");
        // Long enough that the first attempt fails.
        thread::sleep(Duration::from_millis(60));
        drop(busy);
        move || {
            let reply = client.reply();
            assert!(reply.status == 502 || reply.text() == "new");
            reply
        }
    });
    watch.after(&outcomes);
}

/// Asks for a program whose file is busy meanwhile, until it was busy for so short a time that the server waits:
/// half a second. The closure that `ask` returns waits for the answer.
pub(crate) fn busy_for_a_moment<A: FnOnce() -> Reply>(
    outcomes: &mut Vec<&str>,
    ask: impl Fn() -> A,
) {
    wait_until("a moment", || {
        let began = Instant::now();
        let answer = ask();
        let short = began.elapsed() < Duration::from_millis(400);
        let status = answer().status;
        assert!(status == 200 || !short, "{status}");
        outcomes.push(if status == 200 { "ok" } else { "script_error" });
        status == 200
    });
}

/// If the file stays busy, the log names it.
fn written_to_for_long() {
    let server = new_site().own_binary("cgi-bin/other").start();
    let watch = Watch::begin(&server);
    let path = server.path("cgi-bin/copy");
    fs::copy(server.path("cgi-bin/other"), &path).unwrap();
    let busy = fs::File::options().write(true).open(&path).unwrap();
    assert_eq!(server.get("/cgi-bin/copy?head").status, 502);
    drop(busy);
    server.says("cgi-bin/copy");
    watch.after(&["script_error"]);
}

/// A lease on a file (fcntl(2)). Opening the file waits until the lease is given up, as on a file system that
/// does not answer.
pub(super) struct Leased(Child);

impl Leased {
    pub(super) fn new(path: &Path) -> Self {
        let take = "$SIG{IO} = 'IGNORE'; open F, '<', $ARGV[0]; fcntl F, 1024, 1 or die $!; print qq(taken\n); \
                    close STDOUT; <STDIN>";
        let mut perl = Command::new("perl");
        perl.args(["-e", take]).arg(path);
        let piped = perl.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut said = String::new();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        assert_eq!(said, "taken\n");
        Self(child)
    }

    pub(super) fn give_up(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// A route to the same programs, whose first byte must come soon.
pub(super) const IN_TIME: &str =
    "[[route]]\npath = \"/in-time/\"\ncgi = \"cgi-bin\"\nfirst_byte_timeout = \"1s\"\n";

fn an_execve_that_takes_long_keeps_nobody() {
    let slow = "#!/bin/sh\nprintf 'Content-Type: text/plain\n\n'; echo late\n";
    let server = new_site().file("cgi-bin/slow", slow, 0o755);
    let server = server.config("workers = 1").config(IN_TIME).start();
    let watch = Watch::begin(&server);
    let lease = Leased::new(&server.path("cgi-bin/slow"));
    let mut late = server.connect();
    late.get("/in-time/slow");
    // The only event loop goes on meanwhile.
    assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
    assert_eq!(late.reply().status, 504);
    let mut gone = server.connect();
    gone.get("/cgi-bin/slow");
    gone.wait_until_read();
    assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
    gone.reset();
    let mut patient = server.connect();
    patient.get("/cgi-bin/slow");
    assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
    lease.give_up();
    assert_eq!(patient.reply().text(), "late\n");
    drop((late, patient));
    watch.after(&["ok", "script_timeout", "ok", "client_gone", "ok", "ok"]);
}

/// However many such requests there are, with a body or without: the only event loop goes on, and starts other programs.
fn many_that_take_long_to_be_executed() {
    let slow = "#!/bin/sh\nprintf 'Content-Type: text/plain\n\n'; echo late; cat\n";
    let site = new_site().file("cgi-bin/slow", slow, 0o755);
    let server = site.config("workers = 1\nmax_running = 20").start();
    let watch = Watch::begin(&server);
    let lease = Leased::new(&server.path("cgi-bin/slow"));
    let ask = |n| {
        let mut client = server.connect();
        match n % 2 {
            0 => client.get("/cgi-bin/slow"),
            _ => client.post("/cgi-bin/slow", b"body\n"),
        }
        client.wait_until_read();
        assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
        client
    };
    let mut all: Vec<_> = (0..10).map(ask).collect();
    lease.give_up();
    for (n, client) in all.iter_mut().enumerate() {
        let body = ["late\n", "late\nbody\n"][n % 2];
        assert_eq!(client.reply().text(), body);
    }
    drop(all);
    watch.after(&["ok"; 20]);
}

/// Neither reading a program's file nor executing it for a template holds up the only event loop.
fn a_template_that_takes_long_to_be_executed() {
    for leased in ["cgi-bin/slow", "bin/perl"] {
        let site = new_site().config("workers = 1").without_waiting();
        let interpreter = site.path("bin/perl");
        let perl = std::fs::read("/usr/bin/perl").unwrap();
        let says = "print \"Content-Type: text/plain\\n\\nlate\"";
        let slow = format!("#!{}\n{says};\n", interpreter.display());
        let server = site
            .defaults("start = \"warm\"")
            .file("bin/perl", perl, 0o755)
            .file("cgi-bin/slow", slow, 0o755)
            .start();
        let watch = Watch::begin(&server);
        let lease = Leased::new(&server.path(leased));
        let mut late = server.connect();
        late.get("/cgi-bin/slow");
        late.wait_until_read();
        for _ in 0..3 {
            assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
        }
        lease.give_up();
        assert_eq!(late.reply().text(), "late");
        if leased == "bin/perl" {
            wait_until("a template", || {
                assert_eq!(server.get("/cgi-bin/slow").text(), "late");
                server.errors().contains("slow: loaded for warm starts")
            });
        }
        watch.over();
    }
}

list![
    an_execve_that_takes_long_keeps_nobody,
    many_that_take_long_to_be_executed,
    a_template_that_takes_long_to_be_executed,
    memory_bomb,
    file_bomb,
    ten_thousand_open_files,
    endless_computation,
    fork_bomb,
    replaced_by_a_rename_under_load,
    replaced_in_place,
    written_to_for_long,
];
