"""The tables of the report, as Markdown."""

from .stats import Results


def number(value, unit=""):
    """Three digits that matter, thousands with commas."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}{unit}"
    return f"{value:.3g}{unit}" if value < 10 else f"{value:.1f}{unit}"


def spread(found, unit=""):
    if found is None:
        return "–"
    if found.count == 1:
        return number(found.median, unit)
    return f"{number(found.median, unit)} ({number(found.low)}–{number(found.high)})"


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def of(name, results, labels):
    """The table(s) of one part of the plan."""
    from . import fastcgi, wasm  # which are made of what stands here

    own = {"fastcgi": fastcgi.tables, "wasm": wasm.tables}
    return (own | SHAPES).get(name, rates)(name, results, labels)


def servers_in(name, results, labels):
    """In the order of the adapters, not of the measurements."""
    present = results.servers(name)
    return [server for server in labels if server in present]


def grid(name, results, labels, path="rate", unit="", keep=lambda row: True):
    """Rows down, servers across."""
    servers = servers_in(name, results, labels)
    rows = []
    for row, label in results.rows(name).items():
        if not keep(row):
            continue
        values = {s: results.spread(name, row, s, path) for s in servers}
        cells = [
            "[wrong](#wrong-answers)" if results.wrong(name, row, s) else spread(values[s], unit)
            for s in servers
        ]
        if any(values.values()) or any("wrong" in cell for cell in cells):
            rows.append([label, *cells])
    return markdown(["", *(labels[s] for s in servers)], rows) if rows else ""


def rates(name, results, labels):
    parts = ["Answers a second:", grid(name, results, labels)]
    parts += ["99th percentile of the latency, ms:", grid(name, results, labels, "latency.p99")]
    parts += compared(name, results, labels)
    return "\n\n".join(parts)


def compared(name, results, labels):
    """galgo against the best peer, and against the floor where there is one."""
    rows = []
    for row, label in results.rows(name).items():
        best = results.best_peer(name, row)
        if not best or not results.at(name, row, "galgo"):
            continue
        galgo = (name, row, "galgo")
        floor = (name, row, "floor")
        figures = [spread(results.ratio(galgo, floor)), spread(results.spread(*floor))]
        rows.append(
            [label, labels[best], spread(results.ratio(galgo, (name, row, best))), *figures]
        )
    if not rows:
        return []
    header = ["", "best peer", "of the best peer", "of the floor", "floor, starts a second"]
    if not any(results.at(name, row, "floor") for row in results.rows(name)):
        header, rows = header[:3], [row[:3] for row in rows]
    return ["galgo's rate as a multiple:", markdown(header, rows)]


def floor(name, results, labels):
    rows = [
        [label, spread(results.spread(name, row, "floor"))]
        for row, label in results.rows(name).items()
    ]
    words = "Programs started and reaped a second by `bench/floor.c`: clone3(VFORK), exec, wait."
    return words + "\n\n" + markdown(["", "starts a second"], rows)


LATENCIES = ["min", "mean", "p50", "p90", "p95", "p99", "max"]


def sweep(name, results, labels):
    """For each rate and server: what was answered, and how late."""
    rows = []
    for row, label in results.rows(name).items():
        for server in servers_in(name, results, labels):
            rows.append([label, labels[server], *answered(results, name, row, server)])
    words = (
        "Latency in ms from the moment a request was due, so a server that stalls cannot hide it. "
        "Good: in time, with the right status. Capacity is galgo's closed-loop rate (the best "
        "server's when galgo is absent); all servers are offered the same rates."
    )
    return words + "\n\n" + markdown(["", "", "offered/s", "good/s", "good", *LATENCIES], rows)


def answered(results: Results, name, row, server):
    if results.wrong(name, row, server):
        return ["", "[wrong](#wrong-answers)", *[""] * (1 + len(LATENCIES))]
    offered = results.median(name, row, server, "offered")
    success = results.median(name, row, server, "success")
    figures = [number(results.median(name, row, server, f"latency.{key}")) for key in LATENCIES]
    share = f"{success:.1%}" if success is not None else "–"
    return [number(offered), spread(results.spread(name, row, server)), share, *figures]


def overload(name, results, labels):
    rows = []
    for row, label in results.rows(name).items():
        for server in servers_in(name, results, labels):
            refused = results.median(name, row, server, "refused")
            failed = results.median(name, row, server, "failed")
            rest = [number(refused), number(failed)]
            rows.append([label, labels[server], *answered(results, name, row, server), *rest])
    header = ["", "", "offered/s", "good/s", "good", *LATENCIES, "refused", "failed"]
    return (
        "Latency in ms, of accepted requests; refused: answered with 502, 503 or 504.\n\n"
        + markdown(header, rows)
    )


def big(name, results, labels):
    parts = ["Answers a second:", grid(name, results, labels)]
    return "\n\n".join(parts + compared(name, results, labels))


def idle(name, results, labels):
    header = [
        "",
        "resident at start, MiB",
        "proportional, MiB",
        "resident with idle connections, MiB",
    ]
    header += ["each idle connection, KiB", "one-liner beside them, /s", "of its rate without"]
    rows = [idle_row(name, results, labels, server) for server in servers_in(name, results, labels)]
    count = results.rows(name).get("idle", "idle connections")
    words = (
        f"{count}. Resident counts memory that processes share once for each of them; "
        "proportional shares it out. An idle connection's cost is the growth of the proportional "
        "memory; the kernel's own socket buffers are not in it."
    )
    parts = [words, markdown(header, rows)]
    if heavy := results.spread(name, "ballast", "galgo"):
        before = results.spread(name, "ballast", "galgo", "rate_before")
        parts.append(
            f"galgo with 1 GB resident: {spread(heavy)} a second, without: {spread(before)}."
        )
    return "\n\n".join(parts)


def idle_row(name, results, labels, server):
    if results.wrong(name, "idle", server):
        return [labels[server], "[wrong](#wrong-answers)", *[""] * 5]
    figures = []
    for path, scale in (
        ("start_rss_kib", 1024),
        ("start_pss_kib", 1024),
        ("idle_rss_kib", 1024),
        ("each_kib", 1),
    ):
        value = results.median(name, "idle", server, path)
        figures.append(number(value / scale if value is not None else None))
    share = results.undisturbed(name, "idle", server)
    beside = f"{share.median:.2f}" if share else "–"
    return [labels[server], *figures, spread(results.spread(name, "idle", server)), beside]


def pixel(name, results, labels):
    return "Answers a second:\n\n" + grid(name, results, labels)


SHAPES = {
    "floor": floor,
    "sweep": sweep,
    "overload": overload,
    "big": big,
    "idle": idle,
    "behind": pixel,
    "pixel": pixel,
}
