//! Processes that try to outlive their request.

use std::{fs, path::PathBuf};

use crate::{
    harness::{list, new_site},
    warm::templates,
};
use galgo_testkit::{
    Server, Site, eventually,
    process::{children, command_line, pids},
};

list![
    none_outlives_its_request,
    none_outlives_a_warm_request,
    none_passes_for_what_a_worker_or_a_template_has_started,
    those_of_a_request_that_runs_go_on,
    run_to_completion_lets_them_go_on,
];

/// Leaves a process behind. The query names the way and, after `&`, the file into which the process writes its pid.
pub const STAYS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
static void closed(void) { for (int fd = 0; fd < 64; fd++) close(fd); }
static void stay(const char *mark) {
    char part[512];
    snprintf(part, sizeof part, "%s.part", mark);
    FILE *file = fopen(part, "w");
    fprintf(file, "%d", getpid());
    fclose(file);
    rename(part, mark);
    for (;;) pause();
}
int main(void) {
    char *way = strdup(getenv("QUERY_STRING")), *mark = strchr(way, '&');
    *mark++ = 0;
    char path[400];
    snprintf(path, sizeof path, "../marks/%s", mark);
    fflush(stdout);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        setsid();
        closed();
        if (!strcmp(way, "twice") && fork()) _exit(0);
        if (!strcmp(way, "again")) { if (fork()) _exit(0); setsid(); if (fork()) _exit(0); setpgid(0, 0); }
        if (!strcmp(way, "deaf")) { signal(SIGTERM, SIG_IGN); signal(SIGHUP, SIG_IGN); signal(SIGINT, SIG_IGN); }
        if (!strcmp(way, "lower")) { struct rlimit no = {1, 1}; setrlimit(RLIMIT_LOCKS, &no); }
        if (!strncmp(way, "as:", 3)) {
            struct rlimit other = {atol(way + 3), atol(way + 3)};
            setrlimit(RLIMIT_LOCKS, &other); /* EPERM */
        }
        stay(path);
    }
    while (access(path, F_OK) != 0) usleep(1000);
    printf("Content-Type: text/plain\n\nleft\n");
    fflush(stdout);
    if (!strcmp(way, "runs")) for (;;) pause();
    return 0;
}
"#;

fn site() -> Site {
    new_site().compiled("cgi-bin/p", STAYS, &[]).config(
        "[[route]]\npath = \"/warm/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n\
         [[route]]\npath = \"/stays/\"\ncgi = \"cgi-bin\"\nrun_to_completion = true\n",
    )
}

fn mark(server: &Server, name: &str) -> PathBuf {
    server.path("marks").join(name)
}

/// Returns the pid of the process that a request left behind.
fn left(server: &Server, name: &str) -> u32 {
    let pid = fs::read_to_string(mark(server, name)).unwrap();
    pid.parse().unwrap()
}

fn runs(pid: u32) -> bool {
    pids().any(|p| p == pid)
}

fn gone(pid: u32) {
    eventually("the end of what was left running", || {
        (!runs(pid)).then_some(())
    });
}

fn all_ways(path: &str) {
    let server = site().start();
    for way in ["session", "twice", "again", "deaf", "lower"] {
        let said = server.get(&format!("{path}?{way}&{way}"));
        assert_eq!(said.text(), "left\n", "{}", server.errors());
    }
    for way in ["session", "twice", "again", "deaf", "lower"] {
        gone(left(&server, way));
    }
}

fn none_outlives_its_request() {
    all_ways("/cgi-bin/p");
}

fn none_outlives_a_warm_request() {
    all_ways("/warm/p");
}

fn none_passes_for_what_a_worker_or_a_template_has_started() {
    let worker = "[[route]]\npath = \"/app\"\nfastcgi = { run = [\"worker\"], workers = 1 }\n";
    let waits = "#include <unistd.h>\nint main(void) { for (;;) pause(); }";
    let site = site().compiled("worker", waits, &[]).config(worker);
    let server = site.start();
    let template = eventually("a template", || {
        server.get("/warm/p?session&warm");
        templates(&server).first().copied()
    });
    let is_worker = |pid: &u32| command_line(*pid).contains("worker");
    let worker = eventually("a worker", || {
        children(server.pid()).into_iter().find(is_worker)
    });
    for (name, pid) in [("template", template), ("worker", worker)] {
        let said = server.get(&format!("/cgi-bin/p?as:{pid}&{name}"));
        assert_eq!(said.text(), "left\n", "{}", server.errors());
        gone(left(&server, name));
        assert!(runs(pid), "{name}");
    }
}

fn those_of_a_request_that_runs_go_on() {
    let server = site().start();
    let mut client = server.connect();
    client.get("/cgi-bin/p?runs&stays");
    assert_eq!(client.head().status, 200);
    assert_eq!(server.get("/cgi-bin/p?deaf&ends").text(), "left\n");
    // The process has been there longer than this request.
    gone(left(&server, "ends"));
    let stays = left(&server, "stays");
    assert!(runs(stays));
    drop(client);
    gone(stays);
}

fn run_to_completion_lets_them_go_on() {
    let server = site().start();
    assert_eq!(server.get("/stays/p?session&stays").text(), "left\n");
    assert_eq!(server.get("/cgi-bin/p?deaf&ends").text(), "left\n");
    gone(left(&server, "ends"));
    let stays = left(&server, "stays");
    assert!(runs(stays));
    let pid = rustix::process::Pid::from_raw(stays.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
