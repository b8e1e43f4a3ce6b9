"""Processes that never outlive the run.

We make ourselves the subreaper of everything we start, so a program that a server forgot
becomes our child and not init's: `descendants` finds it and `end` ends it.
"""

import ctypes
import os
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


def become_subreaper():
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent():
    """Runs in the child: should we be killed outright, the child gets SIGTERM."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def spawn(argv, account=None, cpus=None, **options):
    """Starts a process in a session of its own, as `account` when we are root."""
    if account and os.geteuid() == 0:
        options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    if cpus:
        argv = ["taskset", "-c", cpus, *argv]
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(
        [str(word) for word in argv],
        start_new_session=True,
        preexec_fn=die_with_parent,
        **options,
    )


def table():
    """pid -> (parent's pid, state) of all processes."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    # The command in parentheses may hold anything, even ")".
                    rest = stat.read().rpartition(b") ")[2].split()
            except OSError:
                continue
            found[int(name)] = (int(rest[1]), rest[0].decode())
    return found


def descendants(pid):
    """All living processes below `pid`, without it. Zombies do not count."""
    everyone = table()
    below = {}
    for child, (parent, _) in everyone.items():
        below.setdefault(parent, []).append(child)
    found, todo = [], [pid]
    while todo:
        for child in below.get(todo.pop(), []):
            todo.append(child)
            if everyone[child][1] != "Z":
                found.append(child)
    return found


def command(pid):
    """The words a process was started with, spaces between them."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def sockets(pid):
    """Descriptors of a process that are sockets."""
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                found.add(int(name))
    except OSError:
        pass
    return found


def waits(pid):
    """A program that galgo keeps loaded, or a child of one that has no request yet: beside the
    standard streams it has a socket to the server, which is closed before anything of a request
    runs. It is not running, and who ends it ends the next requests' warm start."""
    return bool(sockets(pid) - {0, 1, 2})


def reap_orphans(known):
    """Collects the exit codes of adopted processes; `known` pids belong to Popen objects."""
    me = os.getpid()
    for pid, (parent, state) in table().items():
        if parent == me and state == "Z" and pid not in known:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def end(process, grace=3.0):
    """Ends a process and everything below it; returns how many had to be killed.

    The children are collected first: once the leader is gone they are ours and mixed
    with other servers' orphans.
    """
    family = descendants(process.pid)
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 0.5
    left = alive(family)
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = alive(family)
    send(left, signal.SIGKILL)
    return len(left)


def alive(pids):
    everyone = table()
    return [pid for pid in pids if pid in everyone and everyone[pid][1] != "Z"]


def end_everything():
    """The last step of a run, also after Ctrl-C: nothing below us survives."""
    for number, grace in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
        deadline = time.monotonic() + grace
        send(descendants(os.getpid()), number)
        while descendants(os.getpid()) and time.monotonic() < deadline:
            time.sleep(0.05)
            reap_orphans(known=())
    return len(descendants(os.getpid()))


def memory(pids):
    """(resident, proportional) KiB of these processes together.

    Resident counts a shared page once for each process, proportional shares it out.
    """
    resident = proportional = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as rollup:
                for line in rollup:
                    if line.startswith("Rss:"):
                        resident += int(line.split()[1])
                    elif line.startswith("Pss:"):
                        proportional += int(line.split()[1])
        except (OSError, ProcessLookupError):
            continue
    return resident, proportional
