"""How a cell is measured, where it takes more than one call of a load generator."""

import os
import re
import signal
import subprocess
import time

from . import load, process, site
from .check import Wrong, check, fetch
from .idle import IdleConnections
from .paths import CORES, WORK, account


class Floor:
    """The loop of floor.c. Stands in the place of a server: it is the kernel's own row."""

    name = "floor"
    label = "kernel"

    def __init__(self, program, outstanding, seconds, flags=()):
        self.argv = [WORK / "floor", "-n", outstanding, "-s", seconds, *flags, site.cgi(program)]

    def __call__(self, _):
        # As a server would: from the program's folder, as the server's user.
        child = process.spawn(
            self.argv,
            account=account(),
            env={"PATH": "/usr/bin:/bin", "REQUEST_METHOD": "GET", "QUERY_STRING": ""},
            cwd=site.SITE / "cgi-bin",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = child.communicate()
        if child.returncode != 0:
            raise Wrong(err.strip()[:200])
        return {"tool": "floor", "rate": float(out)}


class Reference:
    """Measures a closed loop and remembers its rates: offered rates are fractions of one.

    All servers are offered the same rates, or their curves could not be compared. The
    reference is galgo's first-round rate, without galgo the best server's.
    """

    def __init__(self, once):
        self.once = once
        self.rates = {}

    def __call__(self, server):
        result = self.once(server)
        self.rates.setdefault(server.name, result["rate"])
        return result

    def capacity(self):
        if not self.rates:
            raise Wrong("no server's capacity is known")
        return self.rates.get("galgo") or max(self.rates.values())

    def at(self, fraction, target, connections, seconds):
        def once(server):
            rate = fraction * self.capacity()
            result = load.oha(server, target(server), connections, seconds, rate)
            return result | {"fraction": fraction, "capacity": self.capacity()}

        return once


TRACED_REQUESTS = 4
# Calls whose bytes are copied between the kernel and the process: not splice, not sendfile.
COPYING = "read readv pread64 recvfrom recvmsg write writev pwrite64 sendto sendmsg".split()


def system_calls(target):
    """System calls and copied bytes of the server itself, a byte of the body and a megabyte."""

    def once(server):
        wanted = target(server)
        pid = server.processes[-1].pid
        log = WORK / "strace.log"
        argv = ["strace", "-f", "-q", "-s", 0, "-o", log]
        for each in [pid, *process.descendants(pid)]:
            argv += ["-p", each]
        tracer = process.spawn(argv, stderr=subprocess.PIPE)
        try:
            wait_until_traced(tracer, pid)
            for _ in range(TRACED_REQUESTS):
                fetch(server, wanted)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=10)
        return understand_strace(log.read_text(), TRACED_REQUESTS * wanted.length)

    return once


def wait_until_traced(tracer, pid, seconds=5):
    """Until every thread has a tracer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and tracer.poll() is None:
        tasks = [open(f"/proc/{pid}/task/{task}/status").read() for task in os.listdir(f"/proc/{pid}/task")]
        if not any("TracerPid:\t0\n" in task for task in tasks):
            return
        time.sleep(0.02)
    raise Wrong("strace could not be attached")


def understand_strace(text, sent):
    calls = copied = 0
    # A call that another thread interrupts is two lines: the second has its result.
    for name, result in re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed).*= (-?\d+)", text, re.M):
        calls += 1
        if name in COPYING:
            copied += max(0, int(result))
    if not calls:
        raise Wrong("strace saw no system call")
    calls = calls / sent * 1e6
    return {"tool": "strace", "rate": calls, "calls": calls, "copied": copied / sent}


def idle(count, seconds):
    """Memory of a server just started, then with idle connections; its rate beside them."""

    def once(server):
        restart(server)
        start = process.memory(server.family())
        before = load.wrk(server, site.line(server), 16, seconds)
        settle(server)
        quiet = process.memory(server.family())
        connections = IdleConnections(server, count)
        try:
            held = connections.alive()
            full = process.memory(server.family())
            beside = load.wrk(server, site.line(server), 16, seconds)
            check(server, site.line(server))
            kept = connections.alive()
        finally:
            connections.close()
        if held < count:
            raise Wrong(f"kept {held} of {count} idle connections")
        return {
            "tool": "wrk",
            "rate": beside["rate"],
            "rate_before": before["rate"],
            "kept": kept,
            "start_rss_kib": start[0],
            "start_pss_kib": start[1],
            "idle_rss_kib": full[0],
            "each_kib": (full[1] - quiet[1]) / count,
        }

    return once


def ballast(size, seconds):
    """The one-liner's rate with and without memory resident in the server's own heap."""

    def once(server):
        restart(server)
        before = load.wrk(server, site.line(server), 16, seconds)
        restart(server, env={"LD_PRELOAD": str(WORK / "ballast.so"), "BALLAST": str(size)})
        resident = process.memory(server.family())[0]
        try:
            if resident * 1024 < size:
                raise Wrong(f"only {resident} KiB resident: the ballast was not loaded")
            loaded = load.wrk(server, site.line(server), 16, seconds)
        finally:
            restart(server)
        return loaded | {"rate_before": before["rate"], "resident_kib": resident}

    return once


def on_cores(count, seconds):
    """The server on the first `count` cores, the load generator on all."""

    def once(server):
        cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:count])
        restart(server, cpus=cpus if count < CORES else None)
        try:
            check(server, site.line(server))
            return load.wrk(server, site.line(server), 16 * count, seconds) | {"cores": count}
        finally:
            restart(server)

    return once


def restart(server, **options):
    server.stop()
    server.start(**options)
    check(server, site.line(server))


WARM_UP_SECONDS = 1
WARM_UPS = 10


def warm_up(server, target):
    """Asks for a program, one request at a time, until the server has had it ready for a second.

    A server that cannot must not have a figure for it. Those that keep nothing need no such time, nor does what
    is as ready as it was in the round before.
    """
    if server.warmed.get(target.path) and server.warmed[target.path] == server.ready(target):
        return
    for _ in range(WARM_UPS):
        before = server.ready(target)
        load.wrk(server, target, 1, WARM_UP_SECONDS)
        if before is not None and server.ready(target) == before:
            server.warmed[target.path] = before
            return
    raise Wrong(f"not ready after {WARM_UPS * WARM_UP_SECONDS} s of requests")


def settle(server, seconds=3.0):
    """Waits until no program is running. Returns how many had to be killed.

    A load generator leaves with requests under way; what a server then does with their
    programs must not burden whoever is measured next.
    """
    deadline = time.monotonic() + seconds
    while left := running_programs():
        if time.monotonic() > deadline:
            process.send(left, 9)
            return len(left)
        time.sleep(0.01)
    return 0


def running_programs():
    found = []
    for pid in process.descendants(os.getpid()):
        if ".cgi" in process.command(pid) and not process.waits(pid):
            found.append(pid)
    return found
