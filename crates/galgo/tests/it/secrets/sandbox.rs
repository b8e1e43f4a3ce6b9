//! Calls that `sandbox = "standard"` refuses, and calls that still work under it.

use std::process::Command;

use crate::harness::{list, needs_root, new_site, skip};
use galgo_testkit::{Server, Site};

list![
    calls_are_refused,
    limits_and_priority_are_its_own,
    no_program_leaves_a_set_user_id_file,
    what_programs_need_works,
    another_architecture_ends_the_program,
    workers_are_confined,
    off_refuses_nothing,
    who_may_gain_privileges_has_no_filter,
    check_and_the_start_name_what_is_off,
];

/// Prints the calls that are not refused, or what the program can do; or makes a system call of another architecture.
const TRIES: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static const struct { long number; const char *name; } refused[] = {
#define CALL(x) {SYS_##x, #x}
    CALL(ptrace), CALL(process_vm_readv), CALL(process_vm_writev), CALL(pidfd_getfd), CALL(kcmp), CALL(mount),
    CALL(umount2), CALL(pivot_root), CALL(open_tree), CALL(move_mount), CALL(fsopen), CALL(fsconfig), CALL(fsmount),
    CALL(fspick), CALL(open_by_handle_at), CALL(setns), CALL(bpf), CALL(init_module), CALL(finit_module),
    CALL(delete_module), CALL(kexec_load), CALL(reboot), CALL(keyctl), CALL(add_key), CALL(request_key),
    CALL(perf_event_open), CALL(userfaultfd), CALL(io_uring_setup), CALL(io_uring_enter), CALL(io_uring_register),
    CALL(clock_settime), CALL(settimeofday), CALL(adjtimex), CALL(clock_adjtime), CALL(swapon), CALL(swapoff),
    CALL(acct), CALL(quotactl), CALL(syslog), CALL(sethostname), CALL(setdomainname),
};
static void *thread(void *x) { return x; }
static int works(int flags) {
    int status, pid = (int)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}
/* Has each call that changes a mode change that of a file of its own. */
static void modes(unsigned mode) {
    char file[] = "/tmp/galgo-test-mode-XXXXXX";
    int fd = mkstemp(file), here = AT_FDCWD, n = 0;
#ifdef SYS_chmod
    n += syscall(SYS_chmod, file, mode) == 0;
#else
    n += syscall(SYS_fchmod, fd, mode) == 0;
#endif
    n += syscall(SYS_fchmod, fd, mode) == 0;
    n += syscall(SYS_fchmodat, here, file, mode) == 0;
    /* Before Linux 6.6 there is no such call. */
    n += syscall(452, here, file, mode, 0) == 0 || errno == ENOSYS;
    struct stat is;
    fstat(fd, &is);
    unlink(file);
    printf("%o=%d,%o ", mode, n, is.st_mode & 07777);
}
/* Makes a set-user-ID file that is new, and writes into it: which of its modes is left. */
static void made(void) {
    char file[64];
    snprintf(file, sizeof file, "/tmp/galgo-test-made-%d", getpid());
    int fd = open(file, O_CREAT | O_EXCL | O_RDWR, 04755);
    struct stat is;
    if (fd < 0 || write(fd, "x", 1) != 1 || fstat(fd, &is)) abort();
    unlink(file);
    printf("new=%o\n", is.st_mode & S_ISUID);
}
int main(void) {
    const char *asked = getenv("QUERY_STRING");
#ifdef __x86_64__
    if (!strcmp(asked, "i386")) {
        long pid = 20; /* getpid */
        __asm__ volatile("int $0x80" : "+a"(pid) : : "memory", "r8", "r9", "r10", "r11");
    }
#endif
    printf("Content-Type: text/plain\n\n");
    if (!strcmp(asked, "works")) {
        pthread_t id;
        printf("thread=%d fork=%d files=%d ", !pthread_create(&id, 0, thread, 0) && !pthread_join(id, 0), works(0),
               !unshare(CLONE_FILES));
        fflush(stdout);
        printf("system=%d\n", system("true"));
        return 0;
    }
    if (!strcmp(asked, "modes")) {
        modes(0755), modes(02755), modes(04755), modes(06755), modes(07777);
        made();
        return 0;
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (syscall(refused[i].number, -1, -1, -1, -1, -1, -1) != -1 || errno != EPERM)
            printf("%s ", refused[i].name);
    if (syscall(SYS_clone3, 0, 0) != -1 || errno != ENOSYS) printf("clone3 ");
    if (unshare(CLONE_NEWUSER) == 0 || errno != EPERM) printf("unshare ");
    if (works(CLONE_NEWUSER)) printf("clone ");
    printf("filter=%d privileges=%d\n", prctl(PR_GET_SECCOMP), !prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
}
"#;

const ROUTES: &str = r#"
[[route]]
path = "/warm/"
cgi = "cgi-bin"
start = "warm"
[[route]]
path = "/off/"
cgi = "cgi-bin"
sandbox = "off"
[[route]]
path = "/off-warm/"
cgi = "cgi-bin"
start = "warm"
sandbox = "off"
[[route]]
path = "/gains/"
cgi = "cgi-bin"
no_new_privs = false
"#;

fn site() -> Site {
    let site = new_site().compiled("cgi-bin/p", TRIES, &["-pthread"]);
    site.config(ROUTES)
}

/// Asks a cold and a warm program. The first answer of the warm route may come from a cold start.
fn says(server: &Server, query: &str) -> Vec<String> {
    let paths = ["/cgi-bin/p", "/warm/p", "/warm/p"];
    let says = |path| server.get(&format!("{path}?{query}")).text();
    paths.map(says).into()
}

fn calls_are_refused() {
    let said = says(&site().start(), "");
    assert!(
        said.iter().all(|s| s == "filter=2 privileges=0\n"),
        "{said:?}"
    );
}

/// The source that `attack/limits-and-priority` also runs.
const LIMITS: &str = include_str!("../../../../../attack/src/limits.c");

fn limits_and_priority_are_its_own() {
    let server = site().compiled("cgi-bin/l", LIMITS, &[]).start();
    let mut other = server.connect();
    other.get("/cgi-bin/l?stay");
    assert_eq!(other.head().status, 200, "{}", server.errors());
    let other_pid = String::from_utf8(other.chunk().unwrap()).unwrap();
    let pids = [server.pid().to_string(), other_pid.trim().to_owned()];
    let kept = "nice 1 limit 1 affinity 1 class 1 ioprio 1 others' limit read 1\n";
    let queries = [
        (format!("attack:{}", pids[0]), "reached 0\n"),
        (format!("attack:{}", pids[1]), "reached 0\n"),
        ("marks".into(), "mark kept\n"),
        ("itself".into(), kept),
    ];
    // A template's children give the last answers of the warm route.
    for path in ["/cgi-bin/l", "/warm/l", "/warm/l"] {
        for (query, answer) in &queries {
            let said = server.get(&format!("{path}?{query}")).text();
            assert!(said.ends_with(answer), "{path}?{query}: {said}");
        }
    }
}

/// A set-user-ID file would give its owner's rights to any user that executes it.
fn no_program_leaves_a_set_user_id_file() {
    needs_root();
    let site = site();
    if !site.is_reachable() {
        skip!("others may not reach {}", site.folder().display());
    }
    // The kernel does not remove mode bits if root writes the file.
    let server = site.owned_by(65534).start();
    let said = says(&server, "modes");
    let all = "755=4,755 2755=4,2755 4755=0,600 6755=0,600 7777=0,600 new=0\n";
    assert!(said.iter().all(|s| s == all), "{said:?}");
    for path in ["/off/p", "/gains/p"] {
        let said = server.get(&format!("{path}?modes")).text();
        assert!(said.contains("4755=4,4755 "), "{path} {said}");
    }
}

fn what_programs_need_works() {
    let said = says(&site().start(), "works");
    let all = "thread=1 fork=1 files=1 system=0\n";
    assert!(said.iter().all(|s| s == all), "{said:?}");
}

#[cfg(target_arch = "x86_64")]
fn another_architecture_ends_the_program() {
    let server = site().start();
    assert_eq!(server.get("/cgi-bin/p?i386").status, 502);
    server.says("SIGSYS");
}

#[cfg(not(target_arch = "x86_64"))]
fn another_architecture_ends_the_program() {}

fn workers_are_confined() {
    let worker = "#!/bin/sh\ngrep -E '^(Seccomp|NoNewPrivs):' /proc/self/status >said.$$\nmv said.$$ \"$1\"\nexec sleep 1000\n";
    let server = new_site()
        .file("bin/worker", worker, 0o755)
        .config(
            "[[route]]\npath = \"/app/\"\nfastcgi = { run = [\"bin/worker\", \"in\"] }\n\
             [[route]]\npath = \"/out/\"\nfastcgi = { run = [\"bin/worker\", \"out\"] }\nsandbox = \"off\"\n",
        )
        .start();
    for (name, filter) in [("in", 2), ("out", 0)] {
        let said = galgo_testkit::eventually("a worker's word", || {
            std::fs::read_to_string(server.path("bin").join(name)).ok()
        });
        assert_eq!(said, format!("NoNewPrivs:\t1\nSeccomp:\t{filter}\n"));
    }
}

fn off_refuses_nothing() {
    needs_root();
    let server = site().start();
    for path in ["/off/p", "/off-warm/p", "/off-warm/p"] {
        let said = server.get(path).text();
        assert!(said.ends_with("filter=0 privileges=0\n"), "{said}");
        for call in ["ptrace ", "kcmp ", "clone3 ", "setns ", "add_key "] {
            assert!(said.contains(call), "{path}: {said}");
        }
    }
    // The route beside these still has the sandbox.
    assert_eq!(server.get("/cgi-bin/p").text(), "filter=2 privileges=0\n");
}

fn who_may_gain_privileges_has_no_filter() {
    let said = site().start().get("/gains/p").text();
    assert!(said.ends_with("filter=0 privileges=1\n"), "{said}");
}

fn check_and_the_start_name_what_is_off() {
    let server = site().start();
    server.says("/off/: sandbox = \"off\"");
    server.says("/gains/: ");
    let mut check = Command::new(env!("CARGO_BIN_EXE_galgo"));
    let said = check
        .arg("check")
        .arg(server.site.folder())
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("/off/: sandbox = \"off\""), "{said}");
    assert!(!said.contains("/warm/: "), "{said}");
}
