"""WebAssembly: modules beside native programs, and what modules cost a server that does nothing else.

What is measured, its tables, and what galgo must show in them.
"""

import contextlib
import http.client
import os
import shutil
import signal
import statistics
import subprocess
import time

from . import load, process, site
from .cell import Cell, Table
from .check import Wrong
from .paths import WORK, account
from .tables import compared, grid, markdown, number, servers_in, spread

MODULES = 100  # in the folder of a server that starts with a filled cache
FIRST = 10  # files that appear, one after the other
REST = 1.0  # seconds without a request before memory is read
PATIENCE = 30  # seconds

CONFIG = """\
listen = ["127.0.0.1:0"]
access_log = "off"
cache = "cache"

[[route]]
path = "/cgi-bin/"
cgi = "cgi-bin"
"""


def wasm(size, servers, absent):
    """Modules: Tortuga's own echo through both, and one source as a module and natively.

    Peers without WebAssembly run the native program, to compare with.
    """
    seconds, cells = size.seconds(1), []
    able = [server for server in servers if "wasm" in server.serves]
    galgo = [server for server in able if server.name == "galgo"]
    rows = {
        "tortuga-echo": ("Tortuga's echo module", able, site.echoed("tortuga-echo.wcgi")),
        "echo-wasm": ("echo in C, as a module", galgo, site.echoed("echo.wasm")),
        "echo-native": ("echo in C, native", servers, site.echoed("echo.cgi")),
    }
    for name, (words, who, target) in rows.items():
        if name in absent or not who:
            continue
        for connections in (16, 1):
            plural = "s" * (connections > 1)
            label = f"{words}, {connections} connection{plural}"
            once = lambda server, t=target, c=connections: load.wrk(server, t(server), c, seconds)
            # Of natives on one connection `programs` tells.
            who = who if connections > 1 else able
            cells.append(Cell("wasm", f"{name}/{connections}", label, who, seconds, once, target))
    if galgo and "echo-wasm" not in absent:
        for row, (label, takes, once) in AT_REST.items():
            cells.append(Cell("wasm", row, label, galgo, takes, once))
    return Table("wasm", "WebAssembly beside native programs", cells)


# A galgo of its own, with modules that nobody else has ---------------------------------------


# Answers as the module does.
SCRIPT = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nexec cat\n"


def folder(modules=0, scripts=0):
    """A site with so many modules that differ, and native programs, and an empty cache."""
    at = WORK / "modules"
    shutil.rmtree(at, ignore_errors=True)
    for name in ("cgi-bin", "cache"):
        (at / name).mkdir(parents=True)
    (at / "galgo.toml").write_text(CONFIG)
    for number in range(modules):
        (at / "cgi-bin" / f"{number}.wasm").write_bytes(module(number))
    for number in range(scripts):
        script = at / "cgi-bin" / f"{number}.sh"
        script.write_text(SCRIPT)
        script.chmod(0o755)
    (at / "cache").chmod(0o700)
    if os.geteuid() == 0:
        os.chown(at / "cache", account().pw_uid, account().pw_gid)
    return at


def module(number):
    """The echo in C with a custom section that makes it another module."""
    content = b"\x05bench" + str(number).encode().zfill(8)
    return (site.SITE / "cgi-bin" / "echo.wasm").read_bytes() + bytes([0, len(content)]) + content


class Own:
    """A running galgo; `began` is when it was started, `listens` when it said so."""

    def __init__(self, server, at):
        self.began = time.monotonic()
        log = open(at / "output.log", "ab")
        command = [server.run / "galgo", "serve", "--config", at / "galgo.toml"]
        self.child = process.spawn(command, account=account(), cwd=at, stdout=subprocess.PIPE, stderr=log)
        line = self.child.stdout.readline().decode(errors="replace")
        self.listens = time.monotonic()
        port = line.strip().rstrip("/").rpartition(":")[2]
        if not port.isdigit():
            process.end(self.child)
            raise Wrong(f"galgo's first line was {line!r}")
        self.connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)

    def ask(self, name, kind="wasm"):
        """One request, its answer looked at in full."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            self.connection.request("POST", f"/cgi-bin/{name}.{kind}", site.SIGNING, headers)
            answer = self.connection.getresponse()
            status, body = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Wrong(f"{type(error).__name__}: {error}") from error
        if (status, body) != (200, site.SIGNING.encode()):
            raise Wrong(f"{name}.{kind}: status {status}, {len(body)} bytes")

    def worker(self):
        """The process that runs modules, once there is one."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for pid in process.descendants(self.child.pid):
                if process.command(pid).startswith("galgo-wasm worker "):
                    return pid
            time.sleep(0.01)
        raise Wrong("no worker was started")

    def resident(self, pid):
        return process.memory([pid])[0]

    def private(self):
        """KiB of the front that are its own: not of the program's file."""
        with open(f"/proc/{self.child.pid}/smaps_rollup") as rollup:
            return next(int(line.split()[1]) for line in rollup if line.startswith("Anonymous:"))


@contextlib.contextmanager
def own(server, at):
    started = Own(server, at)
    try:
        yield started
    finally:
        started.connection.close()
        process.end(started.child)


# What is measured ---------------------------------------------------------------------------


def filled(server):
    """Milliseconds from the start of a server whose cache is filled until each module has answered."""
    at = folder(MODULES)
    with own(server, at) as first:
        for number in range(MODULES):
            first.ask(number)
    with own(server, at) as second:
        for number in range(MODULES):
            second.ask(number)
        done = time.monotonic()
    listens, all_of_them = (1000 * (moment - second.began) for moment in (second.listens, done))
    return {"tool": "clock", "rate": all_of_them, "listens_ms": listens}


def first(server):
    """Milliseconds of the first request to a module that has just appeared, beside those of the process
    that compiles it, started by hand before."""
    at = folder()
    (at / "cgi-bin" / "0.wasm").write_bytes(module(0))
    compiled, asked = [], []
    with own(server, at) as galgo:
        galgo.ask(0)
        for number in range(1, FIRST + 1):
            draft = at / "draft"
            draft.write_bytes(module(number))
            with open(draft, "rb") as source, open(at / "code", "wb") as code:
                began = time.monotonic()
                subprocess.run([server.run / "galgo-wasm", "compile"], stdin=source, stdout=code, check=True)
                compiled.append(1000 * (time.monotonic() - began))
            # Written anew: as fresh as a file can be when somebody asks for it.
            draft.write_bytes(module(number))
            began = time.monotonic()
            draft.rename(at / "cgi-bin" / f"{number}.wasm")
            galgo.ask(number)
            asked.append(1000 * (time.monotonic() - began))
    more = statistics.median(a - c for a, c in zip(asked, compiled))
    return {
        "tool": "clock",
        "rate": more,
        "compile_ms": statistics.median(compiled),
        "first_ms": statistics.median(asked),
    }


def memory(server):
    """KiB resident: the front without any program, the front with native ones, the front with modules, and the worker.

    What any hundred programs leave in its allocator is not the modules' doing, so the native ones are what to compare with.
    """
    with own(server, folder()) as galgo:
        time.sleep(REST)
        without, own_kib = galgo.resident(galgo.child.pid), {"without_own_kib": galgo.private()}
    with own(server, folder(scripts=MODULES)) as galgo:
        for number in range(MODULES):
            galgo.ask(number, "sh")
        time.sleep(REST)
        native, own_kib["native_own_kib"] = galgo.resident(galgo.child.pid), galgo.private()
    at = folder(MODULES)
    with own(server, at) as galgo:  # fills the cache
        for number in range(MODULES):
            galgo.ask(number)
    with own(server, at) as galgo:
        for number in range(MODULES):
            galgo.ask(number)
        time.sleep(REST)
        front, worker = (galgo.resident(pid) for pid in (galgo.child.pid, galgo.worker()))
        own_kib["front_own_kib"] = galgo.private()
    resident = {"without_kib": without, "native_kib": native, "front_kib": front}
    return {"tool": "proc", "rate": worker, **resident, **own_kib}


def killed(server):
    """Milliseconds from the worker's death to the next answer."""
    took = []
    with own(server, folder(1)) as galgo:
        for _ in range(FIRST):
            galgo.ask(0)
            pid = galgo.worker()
            began = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            while pid in process.alive([pid]):
                pass
            again(galgo, began)
            took.append(1000 * (time.monotonic() - began))
    return {"tool": "clock", "rate": statistics.median(took), "most_ms": max(took)}


def again(galgo, began):
    """Asks until somebody answers: what reaches a worker while it dies is answered with 502, as what it ran."""
    while True:
        try:
            return galgo.ask(0)
        except Wrong:
            if time.monotonic() - began > PATIENCE:
                raise


AT_REST = {
    "filled": (f"start with a filled cache, {MODULES} modules", 4, filled),
    "first": ("first request to a new file", 3, first),
    "memory": (f"memory at rest, {MODULES} modules", 3 * REST + 8, memory),
    "killed": ("after the worker's death", 3, killed),
}


# Tables -------------------------------------------------------------------------------------


def tables(name, results, labels):
    loaded = lambda row: row not in AT_REST
    parts = ["Answers a second:", grid(name, results, labels, keep=loaded)]
    for words, path in (("50th", "latency.p50"), ("99th", "latency.p99")):
        figures = grid(name, results, labels, path, keep=loaded)
        parts += [f"{words} percentile of the latency, ms:", figures]
    parts += compared(name, results, labels)
    rows = [row for server in servers_in(name, results, labels) for row in at_rest(name, results, server)]
    if rows:
        parts += ["galgo's modules at rest:", markdown(["", ""], rows)]
    return "\n\n".join(part for part in parts if part)


def at_rest(name, results, server):
    """Words and figures; a figure of a row that went wrong is missing, and the report says why."""

    def one(row, label, path="rate", unit=" ms", scale=1):
        found = results.spread(name, row, server, path)
        if not found:
            return
        if scale == 1:
            yield [label, spread(found, unit)]
        else:
            yield [label, number(found.median / scale, unit)]

    yield from one("filled", f"start with a filled cache of {MODULES} modules: it listens after", "listens_ms")
    yield from one("filled", "… and each of them has answered after")
    yield from one("first", "compiling a module", "compile_ms")
    yield from one("first", "the first request to its new file", "first_ms")
    yield from one("first", "… which is so much more")
    mib = {"unit": " MiB", "scale": 1024}
    yield from one("memory", "resident: the front without modules", "without_kib", **mib)
    yield from one("memory", f"resident: the front, {MODULES} scripts", "native_kib", **mib)
    yield from one("memory", f"resident: the front, {MODULES} modules", "front_kib", **mib)
    yield from one("memory", "… of its own, without programs", "without_own_kib", **mib)
    yield from one("memory", f"… with {MODULES} scripts", "native_own_kib", **mib)
    yield from one("memory", f"… and with {MODULES} modules", "front_own_kib", **mib)
    yield from one("memory", f"resident: the worker, {MODULES} modules", **mib)
    yield from one("killed", "next answer after the worker's death, median")
    yield from one("killed", "… and at most", "most_ms")


# What galgo must show -----------------------------------------------------------------------


def verdicts(results, verdict):
    """`verdict` is the module of that name, which calls this."""
    if not results.rows("wasm"):
        return
    tortuga = ("wasm", "tortuga-echo/16", "tortuga")
    ratio = results.ratio(("wasm", "tortuga-echo/16", "galgo"), tortuga)
    words = "at least 8 of Tortuga"
    yield verdict.at_least("wasm: Tortuga's echo", words, ratio, 8)
    module = ("wasm", "echo-wasm/16", "galgo")
    ratio = results.ratio(module, ("wasm", "echo-native/16", "galgo"))
    words = "at least 1.5 of the same program, native and cold"
    yield verdict.at_least("wasm: echo in C", words, ratio, 1.5)
    best = results.best_peer("wasm", "echo-native/16")
    ratio = results.ratio(module, ("wasm", "echo-native/16", best)) if best else None
    words = "at least 2 of the best peer's, native"
    yield verdict.at_least("wasm: echo in C", words, ratio, 2)
    p50 = results.spread("wasm", "tortuga-echo/1", "galgo", "latency.p50")
    yield below("wasm: p50, 1 connection", "below 0.4 ms", p50, 0.4, verdict)
    ratio = results.ratio(
        ("wasm", "tortuga-echo/1", "galgo"), ("wasm", "tortuga-echo/1", "tortuga"), "latency.p50"
    )
    words = "at most a third of Tortuga's"
    yield below("wasm: p50, 1 connection", words, ratio, 1 / 3, verdict, "")
    for row, bound in (("filled", 300), ("first", 10), ("killed", 100)):
        label, found = AT_REST[row][0], results.spread("wasm", row, "galgo")
        words = f"below {bound} ms" + " more than compiling it" * (row == "first")
        yield below(f"wasm: {label}", words, found, bound, verdict)
    more = [results.median("wasm", "memory", "galgo", key) for key in OWN_KIB]
    more = None if None in more else more[0] - more[1]
    passed = None if more is None else more < FRONT_KIB
    found = "not measured" if more is None else f"{more:.0f} KiB more"
    words = f"front unchanged (less than {FRONT_KIB} KiB more of its own than {MODULES} scripts leave)"
    yield verdict.Verdict(f"wasm: {AT_REST['memory'][0]}", words, found, passed)


OWN_KIB = ("front_own_kib", "native_own_kib")
# Scripts alone differ by 64 KiB from start to start, and modules had 60 to 132 KiB more: bench/notes/wasm.md, At rest.
FRONT_KIB = 192


def below(row, words, found, bound, verdict, unit=" ms"):
    if found is None:
        return verdict.Verdict(row, words, "not measured", None)
    return verdict.Verdict(row, words, f"{found.median:.2f}{unit}", found.median < bound)
