"""FastCGI: documents that a program sends from its memory or hands over, PHP, and what stands behind nginx.

What is measured, its tables, and what galgo must show in them.
"""

from . import load, measure, site
from .cell import Cell, Table
from .tables import grid, markdown, number, servers_in, spread

DRAINED = 0.3  # seconds: a drained row needs no more, and there are many
SMALL = ["500 B", "5 KB"]  # wrk reads 8 KB at a time: longer answers are drained
HUGE = ["10 MB", "100 MB"]  # what a connection costs is lost in them: only kept ones
MODES = {"kept": "kept alive", "close": "one a connection"}
KINDS = {"served": "sent by a program", "stored": "a file", "handed": "handed over"}
LABELS = {"apache": "Apache mod_proxy_fcgi", "nginx": "nginx", "lighttpd": "lighttpd mod_fastcgi"}
PHP = {"hello": ("PHP: hello", 6), "page": ("PHP: a page of 100 KB", 100_000)}
COUNTED = ["served", "handed", "stored"]  # whose system calls are counted, at 1 MB


def connections(name):
    return 4 if site.DOCUMENT_SIZES[name] >= 1_000_000 else 16


def once(name, target, seconds, mode):
    """The measurement of one document."""
    if name in SMALL:
        return lambda server: load.wrk(server, target(server), 16, seconds, mode == "close")
    count = connections(name)
    return lambda server: load.drain(server, target(server), count, seconds, mode == "kept")


def who(kind, mode, servers):
    """Ratios to static rates are taken against galgo's and Apache's."""
    few = {"handed": ["galgo"], "stored": ["galgo", "apache"]}
    kept_too = kind == "stored" and mode == "kept"
    return [s for s in servers if kept_too or kind not in few or s.name in few[kind]]


def documents(size, servers, absent):
    targets = {"served": site.served, "stored": site.stored, "handed": site.handed}
    seconds, cells = size.seconds(1), []
    for mode, words in MODES.items():
        for name, length in site.DOCUMENT_SIZES.items():
            for kind, target in targets.items():
                able = who(kind, mode, servers)
                small = kind == "handed" and length < 50_000
                if not able or small or (mode == "close" and name in HUGE):
                    continue
                row, label = f"{name}/{kind}/{mode}", f"{name} {KINDS[kind]}, {words}"
                takes = seconds if name in SMALL else DRAINED * size.short
                run = once(name, target(name), takes, mode)
                cells.append(Cell("fastcgi", row, label, able, takes, run, target(name)))
    return cells


def fastcgi(size, servers, absent):
    cells = [] if "document" in absent else documents(size, servers, absent)
    seconds = size.seconds(1)
    able = [s for s in servers if "php" in s.serves]
    for name, (label, length) in PHP.items():
        if "php" in absent or not able:
            break
        target = site.php_page(name, length)
        run = lambda server, target=target: load.wrk(server, target(server), 16, seconds)
        cells.append(Cell("fastcgi", f"php/{name}", label, able, seconds, run, target))
    for kind in COUNTED:
        if "document" in absent:
            break
        target = {"served": site.served, "stored": site.stored, "handed": site.handed}[kind]("1 MB")
        row, label = f"calls/{kind}", f"1 MB {KINDS[kind]}"
        able = who(kind, "kept", servers)
        run = measure.system_calls(target)
        cells.append(Cell("fastcgi", row, label, able, 0.7, run, target, 1))
    return Table("fastcgi", "FastCGI: documents from memory, handed over, and PHP", cells, anew=True)


def behind(size, servers, absent):
    """Programs behind nginx: galgo in the place of fcgiwrap."""
    cells, seconds = [], size.seconds(1)
    rows = {
        "c": ("guestbook in C, read", ["nginx-galgo", "nginx"]),
        "python": ("guestbook in Python, read", ["nginx-galgo-warm", "nginx"]),
    }
    for language, (label, names) in rows.items():
        able = [server for server in servers if server.name in names]
        if f"guestbook-{language}" in absent or not able:
            continue
        target = site.reading(language)
        run = lambda server, target=target: load.wrk(server, target(server), 16, seconds)
        cells.append(Cell("behind", f"{language}/read", label, able, seconds, run, target))
    return Table("behind", "Programs behind nginx, 16 connections", cells)


# Tables -----------------------------------------------------------------------------------


def tables(name, results, labels):
    labels = labels | {server: label for server, label in LABELS.items() if server in labels}
    parts = []
    for words, keep in (
        ("Documents that a program sends, answers a second:", is_kind("served")),
        ("The same as files, and handed over (X-Sendfile) by a program:", is_kind("stored", "handed")),
        ("PHP, 16 connections, answers a second:", lambda row: row.startswith("php/")),
    ):
        if figures := grid(name, results, labels, keep=keep):
            parts += [words, figures]
    return "\n\n".join(parts + multiples(name, results, labels) + calls(name, results, labels))


def is_kind(*kinds):
    return lambda row: row.count("/") == 2 and row.split("/")[1] in kinds


def multiples(name, results, labels):
    rows = []
    for row, label in results.rows(name).items():
        size, _, rest = row.partition("/")
        kind, _, mode = rest.partition("/")
        if size == "calls" or kind == "stored":
            continue
        best = results.best_peer(name, row)
        galgo = (name, row, "galgo")
        own, apache = [(name, f"{size}/stored/{mode}", server) for server in ("galgo", "apache")]
        figures = [results.ratio(galgo, own), results.ratio(galgo, apache)]
        first = spread(results.ratio(galgo, (name, row, best))) if best else "–"
        if best or any(figures):
            rows.append([label, labels.get(best, "–"), first, *(spread(f) for f in figures)])
    header = ["", "best peer", "of the best peer", "of own static rate", "of Apache's static rate"]
    return ["galgo's rate as a multiple:", markdown(header, rows)] if rows else []


def calls(name, results, labels):
    rows = []
    for row, label in results.rows(name).items():
        for server in servers_in(name, results, labels) if row.startswith("calls/") else []:
            if results.spread(name, row, server):
                figures = [results.median(name, row, server, key) for key in ("calls", "copied")]
                rows.append([label, labels[server], number(figures[0]), number(figures[1])])
    if not rows:
        return []
    header = ["", "", "system calls", "bytes copied, of those sent"]
    words = "A megabyte on a kept connection, in the server itself (`strace`). A byte that is read and written is copied twice:"
    return [words, markdown(header, rows)]


# What galgo must show ---------------------------------------------------------------------


def verdicts(results, verdict):
    """`verdict` is the module of that name, which calls this."""
    for mode, words in MODES.items():
        for name, length in site.DOCUMENT_SIZES.items():
            row = f"{name}/served/{mode}"
            if results.rows("fastcgi").get(row):
                bound = 1.3 if length >= 50_000 else 1.0
                label = f"FastCGI: {name}, {words}"
                yield verdict.against_peer(results, "fastcgi", row, label, bound)
        yield from against_static(results, verdict, mode, words)
    for name, (label, _) in PHP.items():
        if results.rows("fastcgi").get(f"php/{name}"):
            yield verdict.against_peer(results, "fastcgi", f"php/{name}", label, 1.0)
    for language, galgo, bound in (("c", "nginx-galgo", 1.1), ("python", "nginx-galgo-warm", 8)):
        row = f"{language}/read"
        if label := results.rows("behind").get(row):
            ratio = results.ratio(("behind", row, galgo), ("behind", row, "nginx"))
            words = f"at least {bound:g} of fcgiwrap"
            yield verdict.at_least(f"behind nginx: {label}", words, ratio, bound)


def against_static(results, verdict, mode, words):
    for name, length in site.DOCUMENT_SIZES.items():
        bounds = {"served": 0.87 if length >= 1_000_000 else 0.5 if length == 100_000 else None}
        bounds["handed"] = 0.87 if length >= 200_000 else None
        for kind, bound in bounds.items():
            row, own = f"{name}/{kind}/{mode}", f"{name}/stored/{mode}"
            if not results.rows("fastcgi").get(row):
                continue
            label = f"FastCGI: {name} {KINDS[kind]}, {words}"
            if bound:
                ratio = results.ratio(("fastcgi", row, "galgo"), ("fastcgi", own, "galgo"))
                text = f"at least {bound:g} of own static rate"
                yield verdict.at_least(label, text, ratio, bound)
            if kind == "handed" and length >= 100_000:
                ratio = results.ratio(("fastcgi", row, "galgo"), ("fastcgi", own, "apache"))
                yield verdict.at_least(label, "above Apache's static rate", ratio, 1.0)
