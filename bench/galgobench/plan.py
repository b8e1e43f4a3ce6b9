"""What is measured: a function a table, in the order of the report.
"""

import resource

from . import fastcgi, load, site, wasm
from .cell import Cell, Table
from .measure import Floor, Reference, ballast, idle, on_cores
from .paths import CORES

# Programs whose answer to a growing rate is drawn: a cheap, a usual, a heavy one.
SWEPT = ["line", "guestbook-c", "guestbook-python"]
# Programs that galgo with start = "warm" is asked for, too, in the same rows as everybody.
WARM = ["line"] + [f"guestbook-{name}" for name in ("c", "rust", "python", "perl", "node")]
SITES = {
    "flask": ("Flask site, a page", site.flask_page, 4),
    "gitweb": (f"gitweb, list of {site.REPOSITORIES} projects", site.projects, 2),
}
FRACTIONS = {"line": [0.5, 1.0, 1.5, 2.0], "guestbook-python": [0.5, 2.0]}
USUAL_FRACTIONS = [0.5, 1.0, 2.0]
# Seconds at 16 connections where a bound is close to what is found.
LONGER = {"bare": 2, "line": 2}
# More than a server runs at once; fewer for programs that answer some 50 a second, or the end
# of each measurement would be minutes of waiting.
OPEN_CONNECTIONS = {"guestbook-python": 64}
USUAL_OPEN_CONNECTIONS = 256
# Seconds for rows in which few requests are answered in one.
SLOW = {"python/read": 2, "python/write": 2, "node/read": 2}
# 10,000 where descriptors allow: galgo and others set two aside for a connection and its file, and
# galgo some for the FastCGI programs in its configuration.
IDLE_CONNECTIONS = 10_000
SPARE_DESCRIPTORS = 2_000
BALLAST_BYTES = 1 << 30
DRAINED = 0.5  # seconds that big bodies are drained; the last of them are waited for

LABELS = {
    "bare": "static C, no libc",
    "line": "dynamic C, one line",
    "debug": "debug script (Perl)",
    "guestbook-c": "guestbook in C",
    "guestbook-python": "guestbook in Python",
}


def programs_present(absent):
    known = {"bare": site.bare, "line": site.line, "debug": site.debug}
    known |= {f"guestbook-{name}": site.reading(name) for name in site.LANGUAGES}
    return {name: target for name, target in known.items() if name not in absent}


def wrk(target, connections, seconds, close=False):
    return lambda server: load.wrk(server, target(server), connections, seconds, close)


def drain(target, connections, seconds):
    return lambda server: load.drain(server, target(server), connections, seconds)


def with_warm(name, size, servers):
    return servers + size.warm if name in WARM else servers


def floor(size, servers, absent):
    names = ["bare", "line", "guestbook-c"]
    seconds = size.seconds(1)
    modes = {"null": ("stdout to /dev/null", []), "pipe": ("stdout to a pipe", ["-p"])}
    if CORES > 1:
        modes["loops"] = (f"{CORES} loops side by side", ["-l", str(CORES)])
    cells = []
    for name in (n for n in names if n not in absent):
        for outstanding in [1, 16]:
            for key, (words, flags) in modes.items():
                if key != "null" and outstanding == 1:
                    continue
                row = f"{name}/{outstanding}" + ("" if key == "null" else f"/{key}")
                label = f"{LABELS[name]}, {outstanding} outstanding, {words}"
                once = Floor(name, outstanding, seconds, flags)
                cells.append(Cell("floor", row, label, [Floor], seconds, once))
    return Table("floor", "The floor: starting programs without a server", cells)


def beside_floor(floor_once, once):
    return lambda server: floor_once(server) if server is Floor else once(server)


def programs(size, servers, absent):
    names = ["bare", "line", "guestbook-c", "debug"]
    present = programs_present(absent)
    cells = []
    for name in (n for n in names if n in present):
        for connections in [16, 1]:
            longer = connections == 16 and not size.quick
            seconds = size.seconds(LONGER.get(name, 1) if longer else 1)
            label = f"{LABELS[name]}, {connections} connection{'s' * (connections > 1)}"
            once = wrk(present[name], connections, seconds)
            who = with_warm(name, size, servers)
            if connections == 16:
                once = size.references[name] = Reference(once)
                # The floor takes its turn, too: only then its ratio is one of the same minute.
                who, once = [Floor, *who], beside_floor(Floor(name, 16, seconds), once)
            row = f"{name}/{connections}"
            cells.append(Cell("programs", row, label, who, seconds, once, present[name]))
    return Table("programs", "Programs through every server", cells)


def guestbook(size, servers, absent):
    cells = []
    for language in site.LANGUAGES:
        if f"guestbook-{language}" in absent:
            continue
        for verb, target in (("read", site.reading), ("write", site.signing)):
            row, label = f"{language}/{verb}", f"{language.capitalize()}, {verb}"
            seconds = size.seconds(SLOW.get(row, 1))
            once = wrk(target(language), 16, seconds)
            who = with_warm(f"guestbook-{language}", size, servers)
            if verb == "read":
                once = size.references[f"guestbook-{language}"] = Reference(once)
            cells.append(Cell("guestbook", row, label, who, seconds, once, target(language)))
    return Table("guestbook", "The guestbook in seven languages, 16 connections", cells)


def sites(size, servers, absent):
    """Programs that take long to start, as they are installed."""
    cells = []
    for name, (label, target, longer) in SITES.items():
        if name not in absent:
            seconds = size.seconds(longer)
            once = wrk(target, 16, seconds)
            who = servers + size.warm
            cells.append(Cell("sites", name, label, who, seconds, once, target))
    return Table("sites", "A site in Flask, and gitweb, 16 connections", cells)


def sweep(size, servers, absent):
    present = programs_present(absent)
    cells = []
    for name in (n for n in SWEPT if n in present):
        target, seconds = present[name], size.seconds(1)
        label = f"{LABELS.get(name, name)}: "
        known = size.references.get(name)
        if not known:
            known = Reference(wrk(target, 16, seconds))
            row, words = f"{name}/capacity", label + "closed loop, 16"
            cells.append(Cell("sweep", row, words, servers, seconds, known, target))
        for fraction in FRACTIONS.get(name, USUAL_FRACTIONS):
            connections = OPEN_CONNECTIONS.get(name, USUAL_OPEN_CONNECTIONS)
            # Of a tail that must be below everybody's, a second holds too few.
            longer = 2 if (name, fraction) == ("line", 0.5) else 1
            takes = longer * seconds
            once = known.at(fraction, target, connections, takes)
            words = f"{label}{fraction:g} of capacity offered"
            row = f"{name}/{fraction:g}"
            cells.append(Cell("sweep", row, words, servers, takes, once, target))
    return Table("sweep", "Constant offered rates", cells)


def overload(size, servers, absent):
    target, seconds = site.line, size.seconds(1)
    closed = {}
    for connections in (16, 64, 256, 1024):
        closed[connections] = lambda server, c=connections: load.oha(
            server, target(server), c, seconds
        )
    known = size.references.get("line")
    if not known:
        known = closed[16] = Reference(closed[16])
    cells = [
        Cell("overload", f"c{c}", f"{c} connections, closed loop", servers, seconds, once, target)
        for c, once in closed.items()
    ]
    long = size.seconds(5 if size.quick else 30)
    once = known.at(2.0, target, 1024, long)
    label = f"twice the capacity offered for {long} s"
    # So long that one round is all that fits; the sweep offers twice the capacity in every round.
    cells.append(Cell("overload", "twice", label, servers, long, once, target, rounds=1))
    return Table("overload", "Overload: the one-liner beyond what fits", cells)


def big(size, servers, absent):
    cells = []
    for name in list(site.FILE_SIZES)[1:]:
        seconds = DRAINED * size.short
        for kind, target in (("printed", site.printed(name)), ("stored", site.stored(name))):
            once, label = drain(target, 4, seconds), f"{name} {kind}"
            cells.append(Cell("big", f"{name}/{kind}", label, servers, seconds, once, target))
    return Table("big", "Big bodies: printed by a program, stored in a file, 4 connections", cells)


def static(size, servers, absent):
    targets = {"index": site.index}
    targets |= {name: site.stored(name) for name in list(site.FILE_SIZES)[:5]}
    fresh = ["index", "10 KB", "1 MB"]
    cells, seconds = [], size.seconds(1)
    for names, close, words in ((targets, False, "kept alive"), (fresh, True, "one a connection")):
        for name in names:
            once = wrk(targets[name], 16, seconds, close)
            row, label = f"{name}/{'close' if close else 'kept'}", f"{name}, {words}"
            cells.append(Cell("static", row, label, servers, seconds, once, targets[name]))
    return Table("static", "Static files, 16 connections", cells, anew=True)


def pixel(size, servers, absent):
    def once(requests, connections):
        return lambda server: load.ab(server, site.pixel(server), requests, connections)

    seconds = size.seconds(1)
    rows = {
        "ab500": ("ab -n 500 -c 100", 0.2, once(500, 100)),
        "ab1500": ("ab -n 1500 -c 500", 0.4, once(1500, 500)),
    }
    rows["wrk"] = ("wrk, 16 connections", seconds, wrk(site.pixel, 16, seconds))
    cells = [
        Cell("pixel", row, label, servers, takes, measure, site.pixel)
        for row, (label, takes, measure) in rows.items()
    ]
    return Table("pixel", "A constant 43-byte GIF", cells, anew=True)


def idle_table(size, servers, absent):
    seconds = size.seconds(1)
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = min(IDLE_CONNECTIONS, (descriptors - SPARE_DESCRIPTORS) // 2)
    once = idle(count, seconds)
    rounds = 1 if size.quick else None  # it starts each server anew: slow
    label = f"{count:,} idle connections"
    cells = [Cell("idle", "idle", label, servers, 4 + 2 * seconds, once, rounds=rounds)]
    able = [server for server in servers if server.ballast]
    if able:
        label = "1 GB resident in the server's own heap"
        once = ballast(BALLAST_BYTES, seconds)
        cells.append(Cell("idle", "ballast", label, able, 2 + 2 * seconds, once, rounds=rounds))
    return Table("idle", "Idle: memory, and the one-liner beside idle connections", cells)


def scale(size, servers, absent):
    """1 and 16 connections are in the table of programs, 64 and 1,024 in that of overload."""
    seconds, cells = size.seconds(1), []
    for connections in (4, 256):
        once, label = wrk(site.line, connections, seconds), f"{connections} connections"
        row = f"c{connections}"
        cells.append(Cell("scale", row, label, servers, seconds, once, site.line))
    cores = 1
    while CORES > 2 and cores <= CORES:
        once = on_cores(cores, seconds)
        label = f"server on {cores} cores"
        cells.append(Cell("scale", f"cores{cores}", label, servers, seconds + 1, once))
        cores *= 2
    return Table("scale", "Scale: the one-liner against connections and cores", cells)


TABLES = {
    "floor": (floor, None),
    "programs": (programs, "programs"),
    "guestbook": (guestbook, "programs"),
    "sites": (sites, "programs"),
    "sweep": (sweep, "programs"),
    "overload": (overload, "programs"),
    "big": (big, "programs"),
    "static": (static, "files"),
    "pixel": (pixel, "pixel"),
    "idle": (idle_table, "programs"),
    "scale": (scale, "programs"),
    "wasm": (wasm.wasm, "programs"),
    "fastcgi": (fastcgi.fastcgi, "documents"),
    "behind": (fastcgi.behind, "gateway"),
}


# What --quick keeps: rows that say in five minutes where a server stands.
HEADLINES = {
    "programs": ["bare/16", "line/16"],
    "sweep": ["line/capacity", "line/0.5"],
    "overload": ["c16", "twice"],
    "big": ["10 MB/printed"],
    "static": ["index/kept"],
    "pixel": ["wrk"],
    "idle": ["idle", "ballast"],
}


def make(size, servers, absent, only=None, rows=None):
    """The tables of this run, each with the servers that can take part in it; `only` these tables and `rows`."""
    made = []
    size.warm = [server for server in servers if "warm" in server.serves]
    for name, (function, needs) in TABLES.items():
        if only and name not in only:
            continue
        able = [server for server in servers if needs is None or needs in server.serves]
        table = function(size, able, absent)
        if size.quick:
            kept = HEADLINES.get(name, [])
            if name == "overload" and "line" in size.references:
                kept = ["twice"]  # its capacity is known already
            table.cells = [cell for cell in table.cells if cell.row in kept]
        table.cells = [cell for cell in table.cells if not rows or cell.row in rows]
        if table.cells:
            made.append(table)
    return made
