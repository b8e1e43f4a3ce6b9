//! A program under an attacker's control, against the processes beside it: the server, templates, children that wait, and
//! other programs. All run as the same user.

use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    process::Command,
};

use crate::{
    harness::{list, needs_root, new_site, skip},
    warm::templates,
};
use galgo_testkit::{
    Client, Server, Site, eventually,
    process::{pids, waits_for_a_request},
};

list![
    attacks_as_root,
    attacks_as_another_user,
    memory_is_closed_to_the_user_until_the_request,
    programs_act_within_their_own,
    workers_are_kept_apart,
    a_kernel_without_scopes_is_told_of,
    a_filter_that_keeps_programs_from_starting_is_told_of,
];

/// Prints its page; or prints its pid and stays; or attacks the processes in the query and prints each error.
pub const ATTACK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static volatile char page[] = "GOOD";
static int file(int pid, const char *name, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, flags);
    if (fd < 0)
        return errno;
    char byte;
    int is_mem = flags == O_RDWR;
    ssize_t done = is_mem ? pwrite(fd, "EVIL", 4, (off_t)page) : read(fd, &byte, 1);
    /* Some kernels let it be opened, and then it is empty. */
    return done < 0 ? errno : done == 0 ? EACCES : 0;
}
static int error(long ret) { return ret < 0 ? errno : 0; }
static void attack(int pid) {
    struct iovec from = {"EVIL", 4}, to = {(void *)page, 4};
    printf("%d", pid);
    printf(" %d", file(pid, "mem", O_RDWR));
    /* Linux 6.13 lets CAP_PERFMON, so root, read these of any process. */
    if (getuid())
        printf(" %d %d", file(pid, "environ", O_RDONLY), file(pid, "maps", O_RDONLY));
    printf(" %d", error(process_vm_writev(pid, &from, 1, &to, 1, 0)));
    printf(" %d", error(syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, pid, 0), 0, 0)));
    printf(" %d", error(ptrace(PTRACE_SEIZE, pid, 0, 0)));
    printf(" %d", error(kill(pid, SIGSTOP)));
    printf(" %d\n", error(kill(pid, SIGKILL)));
}
int main(void) {
    char *query = strdup(getenv("QUERY_STRING"));
    printf("Content-Type: text/plain\n\n");
    if (!strcmp(query, "stay")) {
        printf("%d\n", getpid());
        fflush(stdout);
        for (;;) pause();
    }
    if (!*query)
        printf("%s", (char *)page);
    for (char *pid = strtok(query, "&"); pid; pid = strtok(NULL, "&"))
        if (atoi(pid) != getpid())
            attack(atoi(pid));
}
"#;

fn site() -> Site {
    new_site().compiled("cgi-bin/p", ATTACK, &[]).config(
        "[[route]]\npath = \"/cold/\"\ncgi = \"cgi-bin\"\nstart = \"cold\"\n\
         [[route]]\npath = \"/warm/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n",
    )
}

fn attacks_as_root() {
    needs_root();
    attacked(&site().start());
}

fn attacks_as_another_user() {
    attacked(&as_nobody(site()).start());
}

fn attacked(server: &Server) {
    let kinds = ["/cold/p", "/warm/p"];
    let stays = kinds.map(|path| stays(server, path));
    for path in kinds {
        let (templates, waiting) = warm(server);
        let mut sure: Vec<u32> = stays.iter().map(|(_, pid)| *pid).collect();
        sure.push(server.pid());
        sure.extend(&templates);
        let all: Vec<String> = sure.iter().chain(&waiting).map(u32::to_string).collect();
        let met = server.get(&format!("{path}?{}", all.join("&"))).text();
        let denied = |pid: &u32| {
            let line = met.lines().find(|l| l.starts_with(&format!("{pid} ")));
            let errors = line.map(|line| line.split(' ').skip(1));
            errors.is_some_and(|mut all| all.all(|e| e == "1" || e == "13")) // EPERM, EACCES
        };
        assert!(sure.iter().all(denied), "{all:?}: {met}");
        // A warm attacker is among the waiting children itself.
        assert!(waiting.iter().any(denied), "{waiting:?}: {met}");
        // Every process is still alive, and the page has not changed.
        for _ in 0..6 {
            assert_eq!(server.get("/warm/p").text(), "GOOD");
        }
        assert!(sure.iter().all(|pid| pids().any(|p| p == *pid)));
        assert_eq!(warm(server).0, templates);
    }
    assert!(!server.errors().contains("replaced"), "{}", server.errors());
}

/// Starts a program that stays, and returns its pid.
fn stays(server: &Server, path: &str) -> (Client, u32) {
    let mut client = server.connect();
    client.get(&format!("{path}?stay"));
    assert_eq!(client.head().status, 200);
    let pid = String::from_utf8(client.chunk().unwrap()).unwrap();
    (client, pid.trim().parse().unwrap())
}

/// Returns the templates of the only warm program and their waiting children, as soon as there are some of each.
fn warm(server: &Server) -> (Vec<u32>, Vec<u32>) {
    eventually("templates with children that wait", || {
        assert_eq!(server.get("/warm/p").status, 200, "{}", server.errors());
        let templates = templates(server);
        let waits = |pid: &u32| {
            galgo_testkit::process::parent(*pid) == Some(server.pid())
                && waits_for_a_request(*pid)
                && !templates.contains(pid)
        };
        let waiting: Vec<u32> = pids().filter(waits).collect();
        (templates.len() == 2 && waiting.len() > 1).then_some((templates, waiting))
    })
}

/// Gives the server, its programs and its folder to a user without rights.
fn as_nobody(site: Site) -> Site {
    needs_root();
    if !site.is_reachable() {
        skip!("nobody may not reach {}", site.folder().display());
    }
    site.owned_by(NOBODY)
}

const NOBODY: u32 = 65534;

/// Another process of the same user, in no Landlock domain, tries to read the memory.
fn memory_is_closed_to_the_user_until_the_request() {
    let server = as_nobody(site()).start();
    let programs = ["/cold/p", "/warm/p"].map(|path| stays(&server, path));
    let reads = |pid: u32, file: &str| {
        let mut command = Command::new("setpriv");
        let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        let cat = command.args(user).args(["head", "-c1"]);
        cat.arg(format!("/proc/{pid}/{file}")).output().unwrap()
    };
    let (templates, waiting) = warm(&server);
    for pid in templates.iter().chain(&waiting).chain([&server.pid()]) {
        for file in ["environ", "maps", "mem"] {
            let said = String::from_utf8(reads(*pid, file).stderr).unwrap();
            assert!(said.contains("Permission denied"), "{pid} {file}: {said}");
        }
    }
    for (_, pid) in &programs {
        assert!(reads(*pid, "environ").status.success());
    }
}

/// Prints what the program is allowed to do, one word each.
const WITHIN: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
static void says(const char *what, int does) { printf("%s=%s ", what, does ? "yes" : "no"); }
static int child(int leads) {
    int pid = fork(), status = 0;
    if (pid == 0) {
        if (leads) setpgid(0, 0);
        for (;;) pause();
    }
    if (leads) setpgid(pid, pid);
    return !kill(leads ? -pid : pid, SIGTERM) && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status);
}
static int reaches(const char *name, int listens) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strcpy(to.sun_path + 1, name);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listens && (bind(server, (void *)&to, size) || listen(server, 1)))
        return 0;
    return !connect(client, (void *)&to, size) || (errno != EPERM && errno != EACCES);
}
int main(void) {
    char own[64];
    snprintf(own, sizeof own, "galgo-own-%d", getpid());
    printf("Content-Type: text/plain\n\n");
    says("rename", !fclose(fopen("../marks/a", "w")) && !rename("../marks/a", "../public/b"));
    says("child", child(0));
    says("group", child(1));
    says("itself", !kill(0, 0) && !kill(getpid(), 0));
    says("socket", reaches(own, 1));
    says("another's", reaches(getenv("QUERY_STRING"), 0));
    says("server", !kill(getppid(), 0));
}
"#;

fn programs_act_within_their_own() {
    let server = site().compiled("cgi-bin/within", WITHIN, &[]).start();
    let name = format!("galgo-test-{}", server.pid());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listens = UnixListener::bind_addr(&address).unwrap();
    let within = "rename=yes child=yes group=yes itself=yes socket=yes another's=no server=no ";
    for path in ["/cold/within", "/warm/within", "/warm/within"] {
        assert_eq!(server.get(&format!("{path}?{name}")).text(), within);
    }
}

/// Prints whether the script may signal its parent.
const SIGNALS: &str = "kill -0 $PPID 2>/dev/null && echo open || echo closed";

fn workers_are_kept_apart() {
    // Several workers write their result.
    let worker = format!("#!/bin/sh\n({SIGNALS}) >said.$$\nmv said.$$ said\nexec sleep 1000\n");
    let server = new_site()
        .file("bin/worker", worker, 0o755)
        .config("[[route]]\npath = \"/app/\"\nfastcgi = { run = [\"bin/worker\"] }\n")
        .start();
    let said = eventually("a worker's word", || {
        fs::read_to_string(server.path("bin/said")).ok()
    });
    assert_eq!(said, "closed\n");
}

/// Executes the given command with a filter that makes landlock_create_ruleset(2) fail with ENOSYS.
pub const WITHOUT: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 444, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 1;
    execv(argv[1], argv + 1);
    return 1;
}
"#;

const OPEN: &str = "this kernel cannot isolate programs";

/// Applies a filter like that of an old container engine, which answers unknown calls with EPERM.
fn a_filter_that_keeps_programs_from_starting_is_told_of() {
    let close_range = WITHOUT.replace("444", "436").replace("ENOSYS", "EPERM");
    let site = site().compiled("without", &close_range, &[]);
    let without = site.path("without");
    let server = site.through(&[without.to_str().unwrap()]).start();
    server.says("a filter of system calls refuses close_range(2): no program can be started");
    assert_eq!(server.get("/cold/p").status, 500);
    server.says(
        "a filter of system calls refuses close_range to galgo. Allow it in the seccomp profile",
    );
}

fn a_kernel_without_scopes_is_told_of() {
    let site = site().compiled("without", WITHOUT, &[]);
    let without = site.path("without");
    let server = site.through(&[without.to_str().unwrap()]).start();
    server.says(OPEN);
    // Everything else works as before.
    for path in ["/cold/p", "/warm/p", "/warm/p"] {
        assert_eq!(server.get(path).text(), "GOOD");
    }
    let galgo = env!("CARGO_BIN_EXE_galgo");
    let checks = |mut command: Command| {
        let said = command
            .arg("check")
            .arg(server.site.folder())
            .output()
            .unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let mut old = Command::new(&without);
    old.arg(galgo);
    assert!(checks(old).contains(OPEN));
    assert!(!checks(Command::new(galgo)).contains(OPEN));
}
