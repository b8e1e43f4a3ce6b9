//! Workers of `fastcgi = { run = … }` that run as other users, and in strict sandboxes: their users, processes that can reach
//! them, resources they can reach, and their end.

pub(super) mod strict;

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::{harness::list, secrets::ATTACK};
use galgo_testkit::{
    Reply, Server, Site, eventually,
    process::{children, command_line, parent, pids},
    wait_until,
};
use rustix::process::Signal;

use super::{
    GAMES, MAN, NOBODY, helpers, kill, mode, needs_a_lasting_place, own, spawner, uid_of, written,
};

list![
    they_run_as_their_user,
    the_owner_of_the_program_decides,
    no_other_process_connects,
    a_worker_attacks_the_server_its_helper_and_others,
    they_are_replaced,
    ones_that_end_at_once_are_replaced,
    a_helper_with_a_worker_does_not_leave,
    what_they_leave_running_ends,
    a_server_that_ends_ends_them,
    they_have_the_grace_of_term_and_the_log_is_true,
    a_reload_without_them_gives_them_the_grace,
    a_server_that_is_killed_takes_them_along,
    a_reload_changes_their_user_and_loses_no_request,
    what_may_not_run_is_said,
];

/// A FastCGI application that runs the body of each request in a shell, and answers with the shell's output. With `judge` and
/// a command as arguments, that command's output is the whole answer.
pub(super) const SHELL: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static unsigned char in[1 << 20];

static void say(int to, int kind, const char *text, int n) {
  unsigned char record[8 + 4096] = {1, kind, 0, 1, n >> 8, n & 255};
  memcpy(record + 8, text, n);
  if (write(to, record, 8 + n) < 0) _exit(9);
}

/* The bodies of the records of standard input, up to the empty one; an authorizer gets none but that of the variables. */
static int hears(int from, char *body, int judges) {
  for (long length = 0, at = 0, said = 0;;) {
    long n = read(from, in + length, sizeof in - length);
    if (n <= 0) return 0;
    length += n;
    while (length - at >= 8) {
      long content = in[at + 4] << 8 | in[at + 5], whole = 8 + content + in[at + 6];
      if (length - at < whole) break;
      if (judges && in[at + 1] == 4 && !content) return 1;
      if (in[at + 1] == 5) {
        memcpy(body + said, in + at + 8, content);
        body[said += content] = 0;
        if (!content) return 1;
      }
      at += whole;
    }
  }
}

int main(int argc, char **argv) {
  int judges = argc > 2 && !strcmp(argv[1], "judge");
  static char body[1 << 16], text[4096];
  for (int conn; (conn = accept4(0, 0, 0, SOCK_CLOEXEC)) >= 0; close(conn)) {
    if (!hears(conn, body, judges)) continue;
    if (!judges) say(conn, 6, text, sprintf(text, "Content-Type: text/plain\n\n"));
    FILE *out = popen(judges ? argv[2] : body, "re");
    for (int n; (n = fread(text, 1, sizeof text, out)) > 0;) say(conn, 6, text, n);
    pclose(out);
    say(conn, 6, text, 0);
    say(conn, 3, "\0\0\0\0\0\0\0\0", 8);
  }
}
"#;

/// Tries to connect to every Unix socket with a name, and to every descriptor of the processes in the query.
const CONNECTS: &str = r#"#!/usr/bin/python3
import os, socket
print('Content-Type: text/plain\n')
named = [line.split()[7] for line in open('/proc/net/unix').readlines()[1:] if len(line.split()) > 7]
ours = [path for path in named if 'galgo' in path or '/proc/' in path]
for pid in os.environ['QUERY_STRING'].split('&'):
    ours += [f'/proc/{pid}/fd/{n}' for n in range(300)]
    ours += [path.replace('/self/', f'/{pid}/') for path in named if path.startswith('/proc/self/')]
print('tried', len(named) > 0 and len(ours) > 300)
for path in ours:
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
            print('connected', path)
        except OSError:
            pass
"#;

const APP: &str = "[[route]]\npath = \"/app\"\nuser = \"games\"\nenv = { FOO = \"bar\" }\n\
    fastcgi = { run = [\"games/app\", \"one\", \"two words\"], workers = 1 }\n";

fn files() -> Site {
    let site = super::site()
        .compiled("games/app", SHELL, &[])
        .compiled("own/app", SHELL, &[])
        .file("cgi-bin/connects", CONNECTS, 0o755)
        .file("games/connects", CONNECTS, 0o755)
        .file("secret", "of the server\n", 0o644)
        .file("scripts/page", "a page\n", 0o644)
        .file("temporary/.keep", "", 0o644);
    for name in ["app", "connects"] {
        own(&site, &format!("games/{name}"), GAMES);
    }
    mode(&site, "temporary", 0o1777);
    site
}

fn site() -> Site {
    files().config(APP)
}

/// Runs a command in the worker's shell.
fn ask(server: &Server, command: &str) -> Reply {
    let mut client = server.connect();
    client.post("/app", command.as_bytes());
    client.reply()
}

fn runs(server: &Server, command: &str) -> String {
    let reply = ask(server, command);
    let said = reply.text();
    assert_eq!(reply.status, 200, "{said}{}", server.errors());
    said
}

/// Returns the pid of the worker that answers.
fn worker(server: &Server) -> u32 {
    runs(server, "echo $PPID").trim().parse().unwrap()
}

fn gone(pid: u32) {
    wait_until("the end of a process", || !pids().any(|p| p == pid));
}

fn they_run_as_their_user() {
    let server = site().start();
    let said = runs(
        &server,
        "id -u; id -g; id -G; grep -E '^(NoNewPrivs|Seccomp):' /proc/$PPID/status; umask; pwd -P; \
         tr '\\0' '|' </proc/$PPID/cmdline; echo; tr '\\0' '|' </proc/$PPID/environ; echo",
    );
    let folder = server.path("games").canonicalize().unwrap();
    let folder = folder.display();
    let app = server.path("games/app");
    let want = format!(
        "5\n60\n60\nNoNewPrivs:\t1\nSeccomp:\t2\n0022\n{folder}\n{}|one|two words|\n\
         PATH=/usr/local/bin:/usr/bin:/bin|FOO=bar|\n",
        app.display()
    );
    assert_eq!(said, want);
    let pid = worker(&server);
    assert_eq!(uid_of(pid), "5 5 5 5");
    assert_eq!(helpers(&server), [parent(pid).unwrap()]);
    // Descriptors 0 to 4: listener, log pipe, connection, and the pipe from the shell. The worker closes the other end of
    // that pipe as soon as the shell runs.
    wait_until("no other descriptor", || {
        runs(&server, "ls /proc/$PPID/fd") == "0\n1\n2\n3\n4\n"
    });
    runs(&server, "echo for the log >&2");
    server.says("for the log");
}

fn the_owner_of_the_program_decides() {
    let app = APP.replace("games/app", "own/app");
    let app = app.replace("\"games\"", "\"owner\"");
    let site = files().config(&app);
    own(&site, "own/app", NOBODY);
    let server = site.start();
    assert_eq!(runs(&server, "id -u"), "65534\n");
    assert_eq!(helpers(&server).len(), 1);
    let site = files().config(&app);
    own(&site, "own/app", MAN);
    let server = site.start();
    wait_until("the refusal", || server.get("/app").status == 502);
    server.says("min_uid = 1000");
    assert_eq!(helpers(&server), [0; 0]);
}

fn no_other_process_connects() {
    let site = site();
    let temporary = site.path("temporary");
    let folder = format!("TMPDIR={}", temporary.display());
    let site = site.through(&["env", &folder]);
    let empty = || fs::read_dir(&temporary).unwrap().count() == 1;
    let mut server = site.start();
    let pid = worker(&server);
    let mut all = vec![server.pid(), spawner(&server), pid];
    all.extend(helpers(&server));
    let all: Vec<String> = all.iter().map(u32::to_string).collect();
    for folder in ["cgi-bin", "games"] {
        let tried = server.get(&format!("/{folder}/connects?{}", all.join("&")));
        assert_eq!(tried.text(), "tried True\n", "{folder} {}", server.errors());
    }
    // The socket of this worker was made while the server was running.
    fs::rename(server.path("games/app"), server.path("games/old")).unwrap();
    kill(pid);
    wait_until("no worker for requests", || {
        server.get("/app").status == 502
    });
    fs::rename(server.path("games/old"), server.path("games/app")).unwrap();
    wait_until("a worker", || server.get("/app").status == 200);
    let tried = server.get(&format!("/cgi-bin/connects?{}", server.pid()));
    assert_eq!(tried.text(), "tried True\n");
    assert!(empty());
    server.kill();
    assert!(empty());
}

fn a_worker_attacks_the_server_its_helper_and_others() {
    let site = site()
        .compiled("cgi-bin/p", ATTACK, &[])
        .config("[[route]]\npath = \"/other\"\nuser = \"man\"\nfastcgi = { run = [\"own/app\"], workers = 1 }\n");
    let server = site.start();
    let mut client = server.connect();
    client.get("/cgi-bin/p?stay");
    assert_eq!(client.head().status, 200);
    let cold = String::from_utf8(client.chunk().unwrap()).unwrap();
    let mut program = server.connect();
    program.get("/games/attack?stay");
    assert_eq!(program.head().status, 200);
    let same = String::from_utf8(program.chunk().unwrap()).unwrap();
    wait_until("the other worker", || {
        let all = helpers(&server);
        all.iter().flat_map(|h| children(*h)).count() >= 3
    });
    let mut all = vec![server.pid(), spawner(&server)];
    all.extend([cold, same].map(|pid| pid.trim().parse::<u32>().unwrap()));
    all.extend(helpers(&server));
    let own = worker(&server);
    let others = helpers(&server).into_iter().flat_map(children);
    all.extend(others.filter(|pid| *pid != own && !command_line(*pid).contains("attack")));
    let named: Vec<String> = all.iter().map(u32::to_string).collect();
    let query = named.join("&");
    let met = runs(&server, &format!("QUERY_STRING='{query}' ./attack"));
    for pid in &named {
        let of = |l: &&str| l.starts_with(&format!("{pid} "));
        let line = met.lines().find(of).unwrap();
        let failed = |e: &str| e == "1" || e == "13";
        assert!(line.split(' ').skip(1).all(failed), "{pid}: {met}");
    }
    assert!(all.iter().all(|pid| pids().any(|p| p == *pid)));
}

fn they_are_replaced() {
    let app = APP.replace("workers = 1", "workers = 1, max_requests = 2");
    let server = files().config(&app).start();
    let first = worker(&server);
    assert_eq!(worker(&server), first);
    let second = worker(&server);
    assert_ne!(second, first);
    gone(first);
    kill(second);
    gone(second);
    // The spare worker may answer the request after the crash.
    let third = worker(&server);
    assert!(third != second && uid_of(third) == "5 5 5 5");
    let helper = helpers(&server)[0];
    assert_eq!(parent(third), Some(helper));
    kill(helper);
    gone(helper);
    gone(third);
    // Asks for one answer only: after two answers the worker would be replaced.
    let fourth: u32 = eventually("a worker of another helper", || {
        let reply = ask(&server, "echo $PPID");
        (reply.status == 200).then(|| reply.text().trim().parse().unwrap())
    });
    assert_eq!(uid_of(fourth), "5 5 5 5");
    wait_until("one helper", || {
        helpers(&server) == [parent(fourth).unwrap()]
    });
}

/// The workers end before their helper can report that they run.
fn ones_that_end_at_once_are_replaced() {
    const LATER: &str =
        "#!/bin/sh\n[ -e twice ] && exec ./app\n[ -e once ] && : >twice\n: >once\nexit 3\n";
    let server = files()
        .file("games/later", LATER, 0o755)
        .config(&APP.replace(
            "[\"games/app\", \"one\", \"two words\"]",
            "[\"games/later\"]",
        ));
    own(&server, "games", GAMES);
    own(&server, "games/later", GAMES);
    let server = server.start();
    runs(&server, "true");
    for _ in 0..20 {
        let pid = worker(&server);
        kill(pid);
        gone(pid);
    }
}

fn a_helper_with_a_worker_does_not_leave() {
    let server = site().env("GALGO_TEST_HELPER_IDLE", "10").start();
    let first = worker(&server);
    assert!(server.get("/games/who").text().starts_with("5\n"));
    wait_until("the end of the helper that has nothing to do", || {
        helpers(&server).len() == 1
    });
    assert_eq!(helpers(&server), [parent(first).unwrap()]);
    assert_eq!(worker(&server), first);
}

fn what_they_leave_running_ends() {
    let server = site().start();
    let ways = ["session", "twice", "again", "deaf", "lower"];
    for way in ways {
        runs(&server, &format!("QUERY_STRING='{way}&{way}' ./stays"));
    }
    let left = ways.map(|way| -> u32 {
        let mark = fs::read_to_string(server.path("marks").join(way));
        mark.unwrap().parse().unwrap()
    });
    let worker = worker(&server);
    // A process that lowered its own limit is ended at once; the others stay as long as the worker runs.
    let all = left.iter().zip(ways).filter(|(_, way)| *way != "lower");
    assert!(all.into_iter().all(|(pid, _)| pids().any(|p| p == *pid)));
    kill(worker);
    left.into_iter().for_each(gone);
    assert_eq!(runs(&server, "id -u"), "5\n");
}

fn a_server_that_ends_ends_them() {
    let mut server = site().start();
    let all = [worker(&server), helpers(&server)[0], spawner(&server)];
    server.signal(Signal::TERM);
    all.into_iter().for_each(gone);
    server.kill();
}

/// Returns a site with a worker that logs the signals it gets, and that is slow to end by TERM or ignores it.
fn slow_to_end(keys: &str, on_term: &str) -> Site {
    let slow = format!(
        "#!/usr/bin/perl\n$| = 1;\n$SIG{{TERM}} = sub {{ {on_term} }};\nprint \"is up\\n\";\nsleep 1 while 1;\n"
    );
    let site = files().file("games/slow", slow, 0o755);
    own(&site, "games/slow", GAMES);
    site.config(&format!(
        "[[route]]\npath = \"/app\"\n{keys}\nfastcgi = {{ run = [\"games/slow\"], workers = 1 }}\n"
    ))
}

const ENDS: &str = "select undef, undef, undef, .2; print qq(bye\\n); exit 3";

const EACH_KIND: [&str; 4] = [
    "",
    "user = \"games\"",
    "sandbox = \"strict\"",
    "user = \"games\"\nsandbox = \"strict\"",
];

/// Returns the log lines about the worker after the server has ended.
fn said_at_the_end(site: Site) -> Vec<String> {
    let mut server = site.start();
    server.says("is up");
    server.signal(Signal::TERM);
    server.child.wait().unwrap();
    server.kill();
    of_the_worker(&server)
}

fn of_the_worker(server: &Server) -> Vec<String> {
    let errors = server.errors();
    let own = errors
        .lines()
        .filter_map(|line| line.split_once("games/slow: "));
    own.map(|(_, said)| said.to_owned()).collect()
}

fn they_have_the_grace_of_term_and_the_log_is_true() {
    needs_a_lasting_place();
    for keys in EACH_KIND {
        let said = said_at_the_end(slow_to_end(keys, ENDS).defaults("kill_grace = \"1m\""));
        let want = [
            "is up",
            "bye",
            "was stopped by galgo, and ended with status 3",
        ];
        assert_eq!(said, want, "{keys}");
        let stubborn = slow_to_end(keys, "").defaults("kill_grace = \"100ms\"");
        let said = said_at_the_end(stubborn);
        let want = [
            "is up",
            "did not end within kill_grace after TERM: sending KILL",
        ];
        assert_eq!(said, want, "{keys}");
    }
}

fn a_reload_without_them_gives_them_the_grace() {
    needs_a_lasting_place();
    for keys in EACH_KIND {
        let server = slow_to_end(keys, ENDS)
            .defaults("kill_grace = \"1m\"")
            .start();
        server.says("is up");
        server.reconfigure(|config| config.remove_route("/app"));
        assert!(server.reload());
        server.says("was stopped by galgo, and ended with status 3");
        let want = [
            "is up",
            "bye",
            "was stopped by galgo, and ended with status 3",
        ];
        assert_eq!(of_the_worker(&server), want, "{keys}");
    }
}

fn a_server_that_is_killed_takes_them_along() {
    let mut server = site().start();
    let all = [worker(&server), helpers(&server)[0], spawner(&server)];
    server.kill();
    all.into_iter().for_each(gone);
}

fn a_reload_changes_their_user_and_loses_no_request() {
    let site = files();
    for name in ["games", "games/app"] {
        own(&site, name, 0);
    }
    let app = APP.replace("workers = 1", "workers = 2");
    let server = site.config(&app).start();
    assert_eq!(runs(&server, "id -u"), "5\n");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            let (server, done) = (&server, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let said = runs(server, "id -u");
                    assert!(said == "5\n" || said == "6\n", "{said}");
                }
            });
        }
        for user in ["man", "games", "man"] {
            server.reconfigure(|config| {
                config.merge(&app.replace("\"games\"", &format!("{user:?}")));
            });
            assert!(server.reload(), "{}", server.errors());
            let want = if user == "man" { "6\n" } else { "5\n" };
            assert_eq!(runs(&server, "id -u"), want);
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn what_may_not_run_is_said() {
    let site = site();
    mode(&site, "games/app", 0o775);
    let server = site.start();
    let why = "is writable for its group: chmod g-w";
    wait_until("the refusal", || server.get("/app").status == 502);
    server.says(why);
    assert_eq!(children(helpers(&server)[0]), [0; 0]);
    // The server tries again.
    mode(&server.site, "games/app", 0o755);
    wait_until("a worker", || server.get("/app").status == 200);
    let site = written(files(), &format!("user = \"nobody\"\n{APP}"));
    let said = site.galgo(&["check"]).out;
    let fine =
        "runs as games, sandbox = \"standard\"; leftover processes are killed by their helper";
    let line = |words: &str, said: &str| {
        let of_app = |l: &&str| l.contains("fastcgi") && l.contains("games/app");
        let found = said.lines().find(of_app);
        assert!(found.is_some_and(|l| l.contains(words)), "{said}");
    };
    line(fine, &said);
    mode(&site, "games/app", 0o757);
    line(
        "is writable for others: chmod o-w",
        &super::fails(&site, &["check"]),
    );
}
