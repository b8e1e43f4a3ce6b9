//! A server whose programs are all started by helpers executes nothing itself, whoever has it under control.

use std::process::Command;

use galgo_testkit::{Server, Site, process::pids, wait_until};

use super::{GAMES, NOBODY, WHO, mode, needs_root, own, workers::SHELL};
use crate::{
    harness::{list, new_site, skip},
    warm::python,
    wasm,
};

list![
    whoever_controls_the_server_executes_nothing,
    a_reload_that_would_need_that_is_refused,
    everything_else_goes_on,
];

/// Has each thread of the process that it is given execute /bin/true, as code that runs in it would, and says what each was
/// answered.
const CONTROLS: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
GETREGS, SETREGS, POKE, PEEK, STEP, SEIZE, INTERRUPT, DETACH = 12, 13, 4, 1, 9, 0x4206, 0x4207, 17
NAMES = 'r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs'
class Regs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in NAMES.split()]
def trace(what, tid, at=None, data=None):
    done = libc.ptrace(what, tid, at, data)
    if done == -1 and what != PEEK: raise OSError(ctypes.get_errno(), what)
    return done
def controls(tid):
    old, new = Regs(), Regs()
    while True:
        trace(SEIZE, tid); trace(INTERRUPT, tid); os.waitpid(tid, 0x40000000)
        trace(GETREGS, tid, None, ctypes.addressof(old)); trace(GETREGS, tid, None, ctypes.addressof(new))
        # One that waits in a system call, as most do, has the instruction for it behind it.
        if trace(PEEK, tid, old.rip - 2) & 0xffff == 0x050f: break
        trace(DETACH, tid)
    new.rip -= 2; new.orig_rax = 2**64 - 1
    path = (old.rsp - 512) & ~15
    was = [trace(PEEK, tid, path + n) for n in (0, 8)]
    for n, word in ((0, b'/bin/tru'), (8, b'e\0\0\0\0\0\0\0')):
        trace(POKE, tid, path + n, int.from_bytes(word, 'little'))
    new.rax, new.rdi, new.rsi, new.rdx = 59, path, 0, 0
    trace(SETREGS, tid, None, ctypes.addressof(new))
    trace(STEP, tid); os.waitpid(tid, 0x40000000)
    trace(GETREGS, tid, None, ctypes.addressof(new))
    answer = ctypes.c_long(new.rax).value
    for n, word in ((0, was[0]), (8, was[1])): trace(POKE, tid, path + n, word)
    trace(SETREGS, tid, None, ctypes.addressof(old)); trace(DETACH, tid)
    return answer
pid = int(sys.argv[1])
print(*{controls(int(tid)) for tid in os.listdir(f'/proc/{pid}/task')})
"#;

/// Each route has a `user`: none but that is configured.
fn site() -> Site {
    needs_root();
    let site = new_site();
    if !site.is_reachable() {
        skip!("others may not reach {}", site.folder().display());
    }
    let site = site
        .file("games/who", WHO, 0o755)
        .file("own/who", WHO, 0o755);
    for name in ["games", "games/who"] {
        own(&site, name, GAMES);
    }
    mode(&site, ".", 0o755);
    site
}

/// In the place of the route that every site of a test has.
const ROUTE: &str =
    "user = \"nobody\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"games\"\nuser = \"games\"\n";
const OWN: &str = "[[route]]\npath = \"/own/\"\ncgi = \"own\"\n";

fn runs(pid: u32) -> bool {
    pids().any(|p| {
        p == pid
            && std::fs::read_to_string(format!("/proc/{p}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
    })
}

/// What its threads are answered.
fn executes(server: &Server) -> String {
    let mut python = Command::new("python3");
    let pid = server.pid().to_string();
    let done = python.args(["-c", CONTROLS, &pid]).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

fn runs_as(server: &Server, path: &str) -> u32 {
    let reply = server.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", server.errors());
    reply.text().lines().next().unwrap().parse().unwrap()
}

fn whoever_controls_the_server_executes_nothing() {
    if !cfg!(target_arch = "x86_64") {
        skip!("the attack is made for x86_64");
    }
    let server = site().config(ROUTE).start();
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    assert_eq!(executes(&server), "-1");
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    // The attack is one: a server that starts programs itself is another program behind it.
    let mut server = site().config(ROUTE).config(OWN).start();
    assert_eq!(runs_as(&server, "/own/who"), NOBODY);
    let mut python = Command::new("python3");
    let pid = server.pid().to_string();
    python.args(["-c", CONTROLS, &pid]).output().unwrap();
    wait_until("its end as /bin/true", || !runs(server.pid()));
    server.kill();
}

fn a_reload_that_would_need_that_is_refused() {
    let server = site().config(ROUTE).start();
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    server.configure(OWN);
    assert!(!server.reload());
    server.says("/own/: to start its programs itself takes a restart of galgo");
    assert_ne!(server.get("/own/who").status, 200);
    assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
    // With a user it is no question.
    for name in ["own", "own/who"] {
        own(&server.site, name, GAMES);
    }
    server.configure(&format!("{OWN}user = \"games\"\n"));
    assert!(server.reload(), "{}", server.errors());
    assert_eq!(runs_as(&server, "/own/who"), GAMES);
}

/// Cold and warm programs, a worker, a module, and another binary in the server's place.
fn everything_else_goes_on() {
    wasm::host();
    let site = site()
        .compiled("games/app", SHELL, &[])
        .config(ROUTE)
        .config("[[route]]\npath = \"/warm/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\n")
        .config("[[route]]\npath = \"/app\"\nuser = \"games\"\nfastcgi = { run = [\"games/app\"], workers = 1 }\n");
    site.write("games/a.wasm", wasm::programs::hello());
    mode(&site, "games/a.wasm", 0o644);
    site.write("games/warm.py", python("import os", "os.getuid()"));
    mode(&site, "games/warm.py", 0o755);
    for name in ["games/app", "games/a.wasm", "games/warm.py"] {
        own(&site, name, GAMES);
    }
    let server = site.start();
    for _ in 0..2 {
        assert_eq!(runs_as(&server, "/cgi-bin/who"), GAMES);
        assert_eq!(
            server.get("/cgi-bin/a.wasm").text(),
            "yes\n",
            "{}",
            server.errors()
        );
        let mut client = server.connect();
        client.post("/app", b"id -u");
        assert_eq!(client.reply().text(), "5\n");
        wait_until("a warm start", || {
            server.get("/warm/warm.py").text().starts_with("warm")
        });
        assert!(server.upgrade(), "{}", server.errors());
    }
    if cfg!(target_arch = "x86_64") {
        assert_eq!(executes(&server), "-1");
    }
}
