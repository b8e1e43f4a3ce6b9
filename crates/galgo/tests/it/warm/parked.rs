//! Node programs that cannot be forked: each request gets a process that was started before the request.

use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{becomes, c, has_templates, kill, says, site};
use crate::harness::{list, needs_root};
use galgo_testkit::{
    Server, Site, eventually,
    process::{parent, pids},
    wait_until,
};

list![
    a_script_that_cannot_be_forked,
    parked_as_if_it_had_been_executed,
    parked_processes_killed_under_load,
    a_parked_process_that_stands_still,
    the_next_request_sees_a_change,
    parked_processes_are_bounded,
];

/// A package that starts a thread when it is loaded. The thread reports the query in its own environment.
const PACKAGE: &str = r#"
const { Worker } = require("worker_threads");
const text = 'require("worker_threads").parentPort.postMessage(process.env.QUERY_STRING)';
exports.asked = new Promise((tell) => new Worker(text, { eval: true }).once("message", tell));
"#;

/// Returns a program that prints its pid, the query that the thread had at its start, and `says`.
fn script(says: &str) -> String {
    format!(
        "#!/usr/bin/env node\nconst fs = require('fs');\n\
         require('pack').asked.then((query) => console.log('Content-Type: text/plain\\n\\n' +\
         [process.pid, query, {says}].join('\\n')));\n"
    )
}

fn with(says: &str) -> Site {
    site().file("cgi-bin/p", script(says), 0o755).file(
        "cgi-bin/node_modules/pack/index.js",
        PACKAGE,
        0o644,
    )
}

/// Returns Node processes that are children of these parents and read from descriptor 3.
fn waiting(parents: &[u32]) -> Vec<u32> {
    needs_root();
    let reads = |pid: &u32| {
        let socket = fs::read_link(format!("/proc/{pid}/fd/3")).unwrap_or_default();
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        exe.ends_with("node")
            && socket.to_string_lossy().starts_with("socket:")
            && call.split(' ').nth(1) == Some("0x3")
    };
    pids()
        .filter(|pid| parent(*pid).is_some_and(|of| parents.contains(&of)) && reads(pid))
        .collect()
}

fn has_parked(server: &Server, count: usize) -> Vec<u32> {
    have_parked(&[server.pid()], count)
}

/// Waits until these parents have `count` parked processes, and returns them.
pub fn have_parked(parents: &[u32], count: usize) -> Vec<u32> {
    eventually(&format!("{count} parked processes"), || {
        let all = waiting(parents);
        (all.len() == count).then_some(all)
    })
}

/// Asks until the log has said `times` times that the program must be parked.
fn becomes_parked(server: &Server, target: &str, times: usize) {
    wait_until("a program that is parked", || {
        assert_eq!(server.get(target).status, 200, "{}", server.errors());
        says(server, "/p:", "parked, because it cannot be forked") == times
    });
}

/// Returns the pid and the other lines of an answer.
fn answer(server: &Server, target: &str) -> (u32, Vec<String>) {
    let reply = server.get(target);
    assert_eq!(reply.status, 200, "{}", server.errors());
    let text = reply.text();
    let mut lines = text.lines().map(str::to_owned);
    let pid = lines.next().unwrap().parse().expect("a pid");
    (pid, lines.collect())
}

fn a_script_that_cannot_be_forked() {
    let server = with("fs.readlinkSync('/proc/self')").start();
    becomes_parked(&server, "/cgi-bin/p", 1);
    let why =
        "parked, because it cannot be forked: it uses process.stdout while loading its modules";
    assert_eq!(says(&server, "/p:", why), 1, "{}", server.errors());
    let mut used = BTreeSet::new();
    for n in 0..6 {
        let before = has_parked(&server, 2);
        let (pid, said) = answer(&server, &format!("/cgi-bin/p?n={n}"));
        assert!(before.contains(&pid), "{pid} was not there: {before:?}");
        assert_eq!(said, [format!("n={n}"), pid.to_string()]);
        assert!(used.insert(pid), "{pid} served twice");
        wait_until("its end", || !pids().any(|other| other == pid));
    }
    // Replacements are parked without a message.
    assert_eq!(says(&server, "/p:", "parked for warm starts in"), 1);
    assert_eq!(says(&server, "/p:", "started cold"), 0);
}

/// Prints all that a process can see of how it was started.
const SHOWS: &str = r#"...[
    ...process.argv, ...process.execArgv, process.argv0, process.title, process.cwd(), process.umask(), process.exitCode,
    ...Object.entries(process.env).map((e) => `variable ${e.join('=')}`),
    ...require('child_process').execFileSync('/usr/bin/env', { encoding: 'utf8' }).split('\n').map((v) => `child's ${v}`),
    fs.readFileSync('/proc/self/cmdline', 'utf8'), fs.readFileSync('/proc/self/limits', 'utf8'),
    ...fs.readFileSync('/proc/self/status', 'utf8').split('\n').filter((l) => /^(Name|Umask|Uid|Gid|Groups|NSpgid|Sig[IBC]|Shd|Cap|NoNewPrivs|Seccomp:)/.test(l)),
    ...[0, 1, 2].map((fd) => `${fd} ${fs.readlinkSync('/proc/self/fd/' + fd).replace(/\d+/, '')}`),
    fs.readdirSync('/proc/self/fd').filter((fd) => { try { return /socket|memfd/.test(fs.readlinkSync('/proc/self/fd/' + fd)) } catch { return false } }).length,
    Object.keys(require.cache), process._preload_modules.length, process.listeners('exit').length,
]"#;

fn parked_as_if_it_had_been_executed() {
    let shows = SHOWS.replace('\n', " ");
    let server = with(&shows)
        .config("umask = \"027\"")
        .defaults("cpu = 7\nopen_files = 199\nfile_size = \"1M\"")
        .config(
            "[[route]]\npath = \"/cold/\"\ncgi = \"cgi-bin\"\nstart = \"cold\"\nenv = { OURS = \"1\" }\n\
             [[route]]\npath = \"/warm/\"\ncgi = \"cgi-bin\"\nenv = { OURS = \"1\" }\n",
        )
        .start();
    becomes_parked(&server, "/warm/p", 1);
    let before = has_parked(&server, 2);
    let shown = |target: &str| -> (u32, BTreeSet<String>) {
        let (pid, said) = answer(&server, target);
        // Each program has its own mark: this limit.
        let mark = "Max file locks";
        let own = [
            "UNIQUE_ID=",
            "REMOTE_PORT=",
            "SCRIPT_NAME=",
            "REQUEST_URI=",
            mark,
        ];
        // The columns of limits are padded according to the number of digits of the pid.
        let columns = |line: String| {
            line.split(' ')
                .filter(|c| !c.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let pgid = |line: String| columns(line.replace(&pid.to_string(), "PID"));
        let usual = |l: &String| !own.iter().any(|name| l.contains(name));
        (pid, said.into_iter().filter(usual).map(pgid).collect())
    };
    let ((_, cold), (pid, warm)) = (shown("/cold/p?a=b"), shown("/warm/p?a=b"));
    assert!(before.contains(&pid));
    assert_eq!(cold, warm);
    for line in ["a=b", "variable OURS=1", "NSpgid:\tPID", "Umask:\t0027"] {
        assert!(warm.contains(line), "{line}: {warm:#?}");
    }
}

/// The test kills a parked process only before it has begun to read its request, so no request is lost.
fn parked_processes_killed_under_load() {
    let server = with("'fine'").without_waiting().start();
    becomes_parked(&server, "/cgi-bin/p", 1);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..3 {
            let (server, over) = (&server, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let (_, said) = answer(server, &format!("/cgi-bin/p?{client}"));
                    assert_eq!(said, [client.to_string(), "fine".into()]);
                    thread::sleep(Duration::from_millis(30 * client));
                }
            });
        }
        let mut killed = 0;
        wait_until("parked processes to be killed", || {
            for pid in waiting(&[server.pid()]) {
                stop(pid);
                // The process may have taken a request before it stopped.
                if waiting(&[server.pid()]).contains(&pid) {
                    kill(pid);
                    killed += 1;
                } else {
                    signal(pid, Signal::CONT);
                }
            }
            thread::sleep(Duration::from_millis(20));
            killed >= 12
        });
        over.store(true, Ordering::Relaxed);
    });
    has_parked(&server, 2);
}

fn signal(pid: u32, signal: Signal) {
    // The process may have ended meanwhile.
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// Stops a process, and waits until it stands still.
fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    wait_until("a process that stands still", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || [") T ", ") Z ", ") X "].iter().any(|s| stat.contains(s))
    });
}

/// The stopped process does not take its request: another process does.
fn a_parked_process_that_stands_still() {
    let server = with("'fine'").without_waiting().start();
    becomes_parked(&server, "/cgi-bin/p", 1);
    let all = has_parked(&server, 2);
    all.iter().copied().for_each(stop);
    wait_until("the end of both", || {
        let (pid, said) = answer(&server, "/cgi-bin/p?q");
        assert_eq!(said, ["q", "fine"]);
        assert!(!all.contains(&pid));
        !pids().any(|pid| all.contains(&pid))
    });
}

fn the_next_request_sees_a_change() {
    let server = with("'0'").start();
    becomes_parked(&server, "/cgi-bin/p", 1);
    let program = server.path("cgi-bin/p");
    for n in 1..4 {
        let before = has_parked(&server, 2);
        fs::write(&program, script(&format!("'{n}'"))).unwrap();
        let (pid, said) = answer(&server, "/cgi-bin/p?q");
        assert_eq!(said, ["q".to_owned(), n.to_string()]);
        assert!(!before.contains(&pid));
        wait_until("the end of what was there for the old one", || {
            !pids().any(|pid| before.contains(&pid))
        });
        becomes_parked(&server, "/cgi-bin/p", n + 1);
    }
    // After the obstacle is removed, the program is forked again.
    let mended = "exports.asked = Promise.resolve('mended')";
    fs::write(server.path("cgi-bin/node_modules/pack/index.js"), mended).unwrap();
    fs::write(&program, script("'forked'")).unwrap();
    let loaded = says(&server, "/p:", "loaded for warm starts");
    assert_eq!(answer(&server, "/cgi-bin/p").1, ["mended", "forked"]);
    wait_until("a template", || {
        answer(&server, "/cgi-bin/p");
        says(&server, "/p:", "loaded for warm starts") > loaded + 1
    });
    assert_eq!(
        says(&server, "/p:", "parked, because it cannot be forked"),
        4
    );
}

/// The number of parked processes and their idle time are limited.
fn parked_processes_are_bounded() {
    let server = with("'fine'")
        .compiled("cgi-bin/other", &c(""), &[])
        .config("max_templates = 2")
        .start();
    becomes_parked(&server, "/cgi-bin/p", 1);
    server.says("/p: parked for warm starts in");
    has_parked(&server, 2);
    becomes(&server, "/cgi-bin/other", "warm");
    has_parked(&server, 0);
    has_templates(&server, 2);
    let server = with("'fine'").config("template_idle = \"2s\"").start();
    for _ in 0..3 {
        wait_until("a process that is parked again", || {
            answer(&server, "/cgi-bin/p");
            !waiting(&[server.pid()]).is_empty()
        });
        has_parked(&server, 0);
    }
}
