//! Workers that galgo starts, which die of requests and of clients that leave.

use crate::harness::{list, new_site};
use galgo_testkit::{Server, eventually, process, wait_until};

list![
    workers_that_crash_cost_only_the_requests_they_had,
    a_spare_answers_while_a_crashed_worker_is_replaced,
    workers_that_crash_before_they_have_answered_are_replaced_at_once,
    workers_that_end_behind_their_answers_are_replaced_at_once,
    clients_that_leave_punish_no_worker,
];

/// A worker that starts slowly. It does what the query says, then prints its process id.
const WORKER: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char in[1 << 20];
static long length;

static int asked(const char *what) { return memmem(in, length, what, strlen(what)) != 0; }

static void say(int to, int kind, const char *text, int n) {
  unsigned char record[8 + 4096] = {1, kind, 0, 1, n >> 8, n & 255};
  memcpy(record + 8, text, n);
  if (write(to, record, 8 + n) < 0) _exit(9);
}

static int hears(int from) {
  const char end[] = {1, 5, 0, 1, 0, 0, 0, 0};
  for (length = 0;;) {
    long n = read(from, in + length, sizeof in - length);
    if (n <= 0) return 0;
    length += n;
    if (length >= 8 && !memcmp(in + length - 8, end, 8)) return 1;
  }
}

int main(void) {
  usleep(200000);
  for (int conn; (conn = accept(0, 0, 0)) >= 0; close(conn)) {
    if (!hears(conn)) continue;
    fprintf(stderr, "heard\n");
    if (asked("crash")) raise(SIGKILL);
    char text[4096] = "";
    if (asked("silent")) {
      while (read(conn, text, sizeof text) > 0) {}
      _exit(1);
    }
    say(conn, 6, text, sprintf(text, "Content-Type: text/plain\n\n%d", getpid()));
    while (asked("long")) say(conn, 6, text, sizeof text);
    say(conn, 6, text, 0);
    say(conn, 3, "\0\0\0\0\0\0\0\0", 8);
    if (asked("last")) _exit(1);
  }
}
"#;

fn start(workers: usize) -> Server {
    let site = new_site();
    let app = site.path("app").display().to_string();
    let route = format!(
        "[[route]]\npath = \"/app\"\nkeep_connections = 0\n\
         fastcgi = {{ run = [\"{app}\"], workers = {workers} }}\n"
    );
    site.compiled("app", WORKER, &["-D_GNU_SOURCE", "-O1"])
        .config(&route)
        .start()
}

/// Asks, and returns the id of the process that answered.
fn answers(server: &Server) -> u32 {
    let reply = server.get("/app");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.text().parse().unwrap()
}

fn workers_that_crash_cost_only_the_requests_they_had() {
    let server = start(2);
    for n in 1..=20 {
        let mut crash = server.connect();
        crash.get("/app?crash");
        let mut others: Vec<_> = (0..3).map(|_| server.connect()).collect();
        others.iter_mut().for_each(|client| client.get("/app"));
        for client in &mut others {
            assert_eq!(client.reply().status, 200);
        }
        assert_eq!(crash.reply().status, 502);
        // The next crash then meets a worker that has answered, and all places are free again.
        wait_until("the end of all", || {
            let lines = server.access();
            let asked = |l: &&serde_json::Value| l["target"].as_str().unwrap().starts_with("/app");
            lines.iter().filter(asked).count() == 4 * n
        });
    }
}

fn a_spare_answers_while_a_crashed_worker_is_replaced() {
    let server = start(1);
    answers(&server);
    assert_eq!(process::children(server.pid()).len(), 1, "no spare yet");
    for _ in 0..5 {
        assert_eq!(server.get("/app?crash").status, 502);
        // Either the spare answers, or the worker that took the place of the crashed worker.
        let answered = answers(&server);
        let there = eventually("both", || {
            let there = process::children(server.pid());
            (there.len() == 2 && there.contains(&answered)).then_some(there)
        });
        assert_eq!(server.get("/app?crash").status, 502);
        let next = answers(&server);
        assert!(next != answered && there.contains(&next), "a new process");
        wait_until("another spare", || {
            process::children(server.pid()).len() == 2
        });
    }
}

/// Two requests in a row crash two workers; the second was new. The program has not changed, so it is started again at once.
fn workers_that_crash_before_they_have_answered_are_replaced_at_once() {
    let server = start(1);
    answers(&server);
    for _ in 0..8 {
        assert_eq!(server.get("/app?crash").status, 502);
        assert_eq!(server.get("/app?crash").status, 502);
        answers(&server);
    }
    let errors = server.errors();
    assert_eq!(errors.matches("closed the connection").count(), 16);
    assert!(!errors.contains("right after their start"), "{errors}");
}

fn workers_that_end_behind_their_answers_are_replaced_at_once() {
    let server = start(1);
    for _ in 0..12 {
        assert_eq!(server.get("/app?last").status, 200);
    }
}

fn clients_that_leave_punish_no_worker() {
    let server = start(1);
    for (n, what) in ["silent", "long"].repeat(5).into_iter().enumerate() {
        let mut client = server.connect();
        client.get(&format!("/app?{what}"));
        let said = |words: &str| server.errors().matches(words).count();
        wait_until("a worker that has the request", || said("heard") == n + 1);
        client.reset();
        // The worker dies of this before it has answered anything.
        wait_until("its end", || said("; starting another") == n + 1);
    }
    answers(&server);
}
