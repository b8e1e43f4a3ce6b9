//! A server under an attacker's control: each of its threads makes a system call, like malicious code in the server would.

use std::{path::Path, process::Command};

use galgo_testkit::Server;

/// Makes each thread of a process execute one system call with a path as its first argument, and prints each result.
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
def put(tid, at, words):
    for n, word in enumerate(words): trace(POKE, tid, at + 8 * n, word)
def controls(tid, call, path, flags, mode):
    old, new = Regs(), Regs()
    while True:
        trace(SEIZE, tid); trace(INTERRUPT, tid); os.waitpid(tid, 0x40000000)
        trace(GETREGS, tid, None, ctypes.addressof(old)); trace(GETREGS, tid, None, ctypes.addressof(new))
        # One that waits in a system call, as most do, has the instruction for it behind it.
        if trace(PEEK, tid, old.rip - 2) & 0xffff == 0x050f: break
        trace(DETACH, tid)
    new.rip -= 2; new.orig_rax = 2**64 - 1
    text = path.encode() + bytes(8 - len(path) % 8)
    words = [int.from_bytes(text[n:n + 8], 'little') for n in range(0, len(text), 8)]
    at = (old.rsp - 1024) & ~15
    was = [trace(PEEK, tid, at + 8 * n) for n in range(len(words))]
    put(tid, at, words)
    new.rax, new.rdi, new.rsi, new.rdx = call, at, flags, mode
    trace(SETREGS, tid, None, ctypes.addressof(new))
    trace(STEP, tid); os.waitpid(tid, 0x40000000)
    trace(GETREGS, tid, None, ctypes.addressof(new))
    answer = ctypes.c_long(new.rax).value
    put(tid, at, was)
    trace(SETREGS, tid, None, ctypes.addressof(old)); trace(DETACH, tid)
    return min(answer, 0)
pid, call, path, flags, mode = sys.argv[1:]
print(*{controls(int(tid), int(call), path, int(flags), int(mode)) for tid in os.listdir(f'/proc/{pid}/task')})
"#;

/// Numbers of open(2) and execve(2) on x86_64.
const OPEN: i32 = 2;
const EXECVE: i32 = 59;

/// Makes the threads execute this program. Returns their distinct results. A successful execve(2) returns no result.
pub(super) fn execute(server: &Server, program: &Path) -> Result<String, String> {
    call(server, EXECVE, program, [0, 0])
}

/// Makes the threads open this file. Returns their distinct results: 0 if open(2) succeeds.
pub(super) fn open(server: &Server, file: &Path, flags: i32) -> String {
    call(server, OPEN, file, [flags, 0o644]).unwrap()
}

fn call(server: &Server, number: i32, path: &Path, more: [i32; 2]) -> Result<String, String> {
    let mut python = Command::new("python3");
    python.args(["-c", CONTROLS]).arg(server.pid().to_string());
    python.arg(number.to_string()).arg(path);
    let done = python.args(more.map(|n| n.to_string())).output().unwrap();
    if done.status.success() {
        Ok(String::from_utf8(done.stdout).unwrap().trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}
