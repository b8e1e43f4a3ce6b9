//! The programs that make the attacks.

/// Makes each attack, and prints one line about each: `refused`, or a description of the success.
pub(super) const ATTACKS: &str = r#"#!/usr/bin/python3
import ctypes, errno, os, platform, resource, socket, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
of = dict(word.split('=', 1) for word in os.environ['QUERY_STRING'].split('&'))
PC = platform.machine() == 'x86_64'
PTRACE, READV, WRITEV, UNSHARE = (101, 310, 311, 272) if PC else (117, 270, 271, 97)
PIDFD_OPEN, PIDFD_GETFD = 434, 438
IOPRIO_SET = 251 if PC else 30
NEWUSER, SEIZE = 0x10000000, 0x4206
NO = {errno.EPERM, errno.EACCES, errno.ESRCH, errno.ENOENT, errno.ENOSYS, errno.EBADF, errno.EROFS}
def call(number, *args):
    got = libc.syscall(number, *[ctypes.c_ulong(a & 0xffffffffffffffff) for a in args])
    if got == -1: raise OSError(ctypes.get_errno(), '')
    return got
def said(what, *args):
    try: what(*args)
    except OSError as e: return e.errno not in NO
    return True
def read(path):
    with open(path, 'rb') as f:
        if not f.read(1): raise OSError(errno.EACCES, '')
def put(path):
    while True:
        try:
            with open(path, 'r+b' if os.path.exists(path) else 'wb') as f: return f.write(b'#')
        except OSError as e:
            # A program that is being started, of which the kernel says so before it looks whether it may be written.
            if e.errno != errno.ETXTBSY: raise
def memory(number, pid):
    text = ctypes.create_string_buffer(b'EVIL')
    part = struct.pack('QQ', ctypes.addressof(text), 4)
    part = ctypes.create_string_buffer(part)
    call(number, pid, ctypes.addressof(part), 1, ctypes.addressof(part), 1, 0)
def process(pids):
    ways = [('signals', lambda pid: os.kill(pid, 18)), ('environment', lambda pid: read(f'/proc/{pid}/environ')),
            ('memory', lambda pid: open(f'/proc/{pid}/mem', 'r+b').close()), ('traces', lambda pid: call(PTRACE, SEIZE, pid, 0, 0)),
            ('reads', lambda pid: memory(READV, pid)), ('writes', lambda pid: memory(WRITEV, pid)),
            ('descriptors', lambda pid: call(PIDFD_GETFD, call(PIDFD_OPEN, pid, 0), 0, 0))]
    pids = [int(pid) for pid in pids.split(',')]
    return ', '.join(name for name, way in ways if any([said(way, pid) for pid in pids])) or 'refused'
def limits(pids):
    # To what they are: the processes go on as before.
    files, itself = resource.RLIMIT_NOFILE, os.PRIO_PROCESS
    ways = [lambda pid: resource.prlimit(pid, files, resource.prlimit(pid, files)),
            lambda pid: os.setpriority(itself, pid, os.getpriority(itself, pid)),
            lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
            lambda pid: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)),
            lambda pid: call(IOPRIO_SET, 1, pid, 0)]
    pids = [int(pid) for pid in pids.split(',')]
    return 'done' if any([said(way, pid) for way in ways for pid in pids]) else 'refused'
def done(what, *args): return 'done' if said(what, *args) else 'refused'
def any_of(what, paths): return 'done' if any([said(what, path) for path in paths]) else 'refused'
def connect(): socket.create_connection(('127.0.0.1', int(of['port'])), 5).close()
def listen(): socket.create_server(('0.0.0.0', 0)).close()
def abstract():
    with socket.socket(socket.AF_UNIX) as s: s.connect('\0' + of['abstract'])
def is_open(fd):
    try: return os.fstat(fd) is not None
    except OSError: return False
def look():
    if of['server'] not in os.listdir('/proc'): raise OSError(errno.ENOENT, '')
def gain():
    if os.getuid() == 0: return 'is root'
    try: said = subprocess.run([of['rooted'], '-u'], capture_output=True)
    except PermissionError: return 'refused'
    return 'done' if said.stdout == b'0\n' else 'refused'
def set_user_id():
    # In its own folder, or where else it may write.
    for path in [os.path.realpath(of['program']) + '.left', of['left'] + '.set']:
        try:
            with open(path, 'wb') as f: f.write(b'#')
        except OSError: continue
        try:
            os.chmod(path, 0o4755)
            return os.unlink(path)
        except OSError:
            os.unlink(path)
            raise
    raise OSError(errno.EACCES, '')
def takes(what):
    said = subprocess.run(['./takes', what, of['left'] + '.large'], capture_output=True)
    return said.stdout.decode().strip() or 'is ended'
def stay(way, stays):
    if os.fork():
        return os.wait() if way == 1 else None
    libc.prctl(1, 0)
    if way != 2: os.setsid()
    if way == 1 and os.fork(): os._exit(0)
    if way == 3: libc.signal(15, 1); libc.signal(1, 1); libc.signal(2, 1)
    if way == 4:
        for _ in range(2):
            if os.fork(): os._exit(0)
            os.setsid()
        try: resource.setrlimit(10, (1, 1))
        except (OSError, ValueError): pass
    os.closerange(0, 64)
    os.execv('/bin/sleep', ['sleep', stays])
inherited = [fd for fd in range(3, 1024) if is_open(fd)]
print('Content-Type: text/plain\n')
processes = ['server', 'spawner', 'helper', 'templates', 'waiting', 'other', 'same']
for name in processes: print(process(of[name]))
for name in processes: print(limits(of[name]))
for path in ['users', 'servers', 'key', 'config', 'log', 'open']: print(done(read, of[path]))
print(any_of(put, [of['key'], of['config'], of['log']]))
for path in [os.path.realpath(of['program']), of['shared'], of['left']]: print(done(put, path))
print(done(set_user_id))
for what in [connect, listen, abstract, look]: print(done(what))
print(done(call, UNSHARE, NEWUSER))
print(gain())
print('some' if inherited else 'none')
for what in ['memory', 'processes', 'disk', 'cpu']: print(takes(what), flush=True)
for way in range(5): stay(way, of['stays'] + str(way))
"#;

/// Takes more of a resource than its route allows, and prints whether it succeeded. A process that takes processor time
/// ignores the signal that announces the limit.
pub(super) const TAKES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
static int says(int done) { puts(done ? "done" : "refused"); return 0; }
static int memory(void) {
    for (int n = 0; n < 40; n++) {
        char *more = mmap(0, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED) return 0;
        *more = 1;
    }
    return 1;
}
static int processes(void) {
    static int pids[300];
    int n = 0;
    while (n < 300 && (pids[n] = fork()) > 0) n++;
    if (n < 300 && pids[n] == 0) for (;;) pause();
    for (int i = 0; i < n; i++) { kill(pids[i], SIGKILL); waitpid(pids[i], 0, 0); }
    return n == 300;
}
static int disk(const char *path) {
    static char text[1 << 16];
    int n = 0, fd = open(path, O_CREAT | O_WRONLY, 0600);
    /* Where nothing can be written it has a file without a name, if that. */
    if (fd < 0) fd = open(".", O_TMPFILE | O_WRONLY, 0600);
    signal(SIGXFSZ, SIG_IGN);
    while (n < 64 && write(fd, text, sizeof text) == sizeof text) n++;
    unlink(path);
    return n == 64;
}
static int cpu(void) {
    struct rusage used;
    signal(SIGXCPU, SIG_IGN);
    do {
        for (volatile int n = 0; n < 1000000; n++) {}
        getrusage(RUSAGE_SELF, &used);
    } while (used.ru_utime.tv_sec < 4);
    return 1;
}
int main(int argc, char **argv) {
    if (!strcmp(argv[1], "memory")) return says(memory());
    if (!strcmp(argv[1], "processes")) return says(processes());
    if (!strcmp(argv[1], "disk")) return says(disk(argv[2]));
    return says(cpu());
}
"#;
