"""The charts of a run, as SVG."""

import logging

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from . import fastcgi, site
from .stats import Spread

plt.switch_backend("svg")
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # Verdana need not be here

COLOURS = {
    "galgo": "#d1402f",
    "apache": "#7d68ae",
    "nginx": "#3b8f5a",
    "lighttpd": "#3f78b5",
    "go": "#2aa3b3",
    "tortuga": "#b79532",
    "go-pixel": "#7fc4cd",
    "perl-pixel": "#9aa3ad",
    "galgo-warm": "#e58a2f",
    "nginx-galgo": "#a8613b",
    "nginx-galgo-warm": "#e5b02f",
}
MARKERS = dict(zip(COLOURS, "osD^vPX*<>p"))
INK, FAINT = "#2b2f36", "#d9dde2"
STYLE = {
    # Laid out with the first, which matplotlib brings; Verdana has the same widths elsewhere.
    "font.family": ["DejaVu Sans", "Verdana", "sans-serif"],
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "galgo",  # the same run draws the same bytes
}


def draw(folder, results, labels):
    """Draws what the run has figures for. Returns {table: [(file, description)...]}."""
    drawn = {}
    with plt.rc_context(STYLE):
        for table, file, alt, function in CHARTS:
            figure = function(results, labels)
            if figure is None:
                continue
            figure.savefig(
                folder / file, metadata={"Date": None}, bbox_inches="tight", pad_inches=0.15
            )
            plt.close(figure)
            drawn.setdefault(table, []).append((file, alt))
    return drawn


def thousands(value, _=None):
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def present(results, labels, table, row=None):
    found = results.servers(table, row)
    return [server for server in labels if server in found]


# Bars -----------------------------------------------------------------------------------


def bars(axes, results, labels, table, row, title, path="rate", floor=None):
    """One horizontal bar a server with its least and greatest round; wrong answers have no bar."""
    servers = present(results, labels, table, row)
    spreads = {s: results.spread(table, row, s, path) for s in servers}
    most = max((s.high for s in spreads.values() if s), default=1)
    most = max(most, floor or 0)
    for place, server in enumerate(servers):
        found = spreads[server]
        if found is None:
            why = (results.wrong(table, row, server) or "not measured").partition(" (")[0]
            words = "  " + (why if len(why) < 44 else why[:42] + "…")
            axes.text(0, place, words, va="center", color="#a33", fontsize=8, style="italic")
            continue
        axes.barh(place, found.median, color=COLOURS.get(server, "#888"), height=0.72)
        if found.count > 1:
            axes.plot([found.low, found.high], [place, place], color=INK, linewidth=1)
        end = max(found.median, found.high)
        axes.text(
            end + most * 0.015, place, thousands(round_3(found.median)), va="center", fontsize=8
        )
    if floor:
        axes.axvline(floor, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(
            floor, -0.62, f"floor {thousands(round_3(floor))} ", ha="right", va="bottom", fontsize=8
        )
    axes.set_yticks(range(len(servers)), [labels[s] for s in servers])
    axes.set_ylim(len(servers) - 0.4, -0.6 - (0.5 if floor else 0))
    axes.set_xlim(0, most * 1.14)
    axes.set_title(title)
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])


def round_3(value):
    """Three digits: more would claim more than was measured."""
    return float(f"{value:.3g}")


def panels(results, labels, wanted, columns, heading):
    """A grid of bar panels: `wanted` holds (table, row, title, path, floor)."""
    wanted = [w for w in wanted if any(results.spread(w[0], w[1], s, w[3]) for s in labels)]
    if not wanted:
        return None
    columns = min(columns, len(wanted))
    rows = -(-len(wanted) // columns)
    deepest = max(len(present(results, labels, w[0], w[1])) for w in wanted)
    size = (max(5.5, 4.6 * columns), rows * (0.32 * deepest + 0.75) + 0.4)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axes in grid.flat[len(wanted) :]:
        axes.axis("off")
    for axes, (table, row, title, path, floor) in zip(grid.flat, wanted):
        bars(axes, results, labels, table, row, title, path, floor)
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def programs(results, labels):
    names = {
        "bare": "static C, no libc",
        "line": "dynamic C, prints a line",
        "guestbook-c": "guestbook in C",
        "debug": "debug script (Perl)",
    }
    wanted = [
        ("programs", f"{name}/16", title, "rate", results.median("programs", f"{name}/16", "floor"))
        for name, title in names.items()
    ]
    return panels(results, labels, wanted, 2, "Answers a second, 16 connections (more is better)")


def guestbook(results, labels):
    wanted = [
        ("guestbook", row, label, "rate", None) for row, label in results.rows("guestbook").items()
    ]
    return panels(results, labels, wanted, 2, "Guestbook, answers a second (more is better)")


def small_answers(results, labels):
    wanted = [
        ("static", "index/kept", "index page, kept alive", "rate", None),
        ("static", "100 KB/kept", "100 KB file, kept alive", "rate", None),
        ("static", "index/close", "index page, a connection each", "rate", None),
        ("static", "1 MB/kept", "1 MB file, kept alive", "rate", None),
    ]
    return panels(results, labels, wanted, 2, "Static files, answers a second (more is better)")


def pixel(results, labels):
    wanted = [("pixel", row, label, "rate", None) for row, label in results.rows("pixel").items()]
    return panels(results, labels, wanted, 3, "A 43-byte GIF, answers a second (more is better)")


def memory(results, labels):
    wanted = [
        ("idle", "idle", "at start, resident KiB", "start_rss_kib", None),
        ("idle", "idle", "each idle connection, KiB", "each_kib", None),
    ]
    return panels(results, labels, wanted, 2, "Memory (less is better)")


# Curves ---------------------------------------------------------------------------------


def line(axes, server, labels, xs, ys):
    first = server == "galgo"
    axes.plot(
        xs,
        ys,
        label=labels[server],
        color=COLOURS.get(server, "#888"),
        marker=MARKERS.get(server, "o"),
        markersize=5 if first else 4,
        linewidth=2.4 if first else 1.4,
        zorder=3 if first else 2,
    )


def finish(figure, heading, axes_list):
    """One legend for all panels, above them."""
    seen = {}
    for axes in axes_list:
        axes.grid(True)
        axes.tick_params(length=0)
        seen |= dict(zip(*reversed(axes.get_legend_handles_labels())))
    figure.legend(
        seen.values(), seen.keys(), loc="outside lower center", ncols=min(4, max(1, len(seen)))
    )
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def frame(count, heading_height=0.5):
    size = (max(6.2, 4.8 * count), 3.7 + heading_height)
    figure, grid = plt.subplots(1, count, figsize=size, squeeze=False, layout="constrained")
    return figure, list(grid.flat)


def median_curve(results, table, row, server):
    """The latency curve of a row: the median over the rounds at each percentile."""
    if results.wrong(table, row, server):
        return [], []
    by_percentile = {}
    for record in results.at(table, row, server):
        for percentile, ms in record.get("curve", []):
            by_percentile.setdefault(percentile, []).append(ms)
    points = sorted(
        (p, Spread.of(values).median) for p, values in by_percentile.items() if 25 <= p < 99.95
    )
    return [p for p, _ in points], [ms for _, ms in points]


def latency(results, labels):
    rows = {
        "line/0.5": "at half the capacity",
        "line/1": "at all of it",
    }
    rows = {row: words for row, words in rows.items() if results.servers("sweep", row)}
    if not rows:
        return None
    figure, axes_list = frame(len(rows))
    for axes, (row, words) in zip(axes_list, rows.items()):
        for server in present(results, labels, "sweep", row):
            ps, ms = median_curve(results, "sweep", row, server)
            line(axes, server, labels, [1 / (1 - p / 100) for p in ps], ms)
        ticks = [50, 75, 90, 95, 99, 99.9]
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([1 / (1 - p / 100) for p in ticks], [f"{p:g}" for p in ticks])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(FuncFormatter(thousands))
        axes.set_xlabel("percentile")
        axes.set_title(words)
    axes_list[0].set_ylabel("latency, ms")
    return finish(
        figure, "Latency of the one-liner at the same offered rate (lower is better)", axes_list
    )


def goodput(results, labels):
    programs = {}
    for row, label in results.rows("sweep").items():
        name, _, fraction = row.rpartition("/")
        if fraction != "capacity":
            programs.setdefault(name, [label.partition(":")[0], []])[1].append(row)
    programs = {name: found for name, found in programs.items() if len(found[1]) > 1}
    if not programs:
        return None
    figure, axes_list = frame(len(programs))
    for axes, (title, rows) in zip(axes_list, programs.values()):
        far = high = 0
        for server in present(results, labels, "sweep"):
            points = [
                (
                    results.median("sweep", row, server, "offered"),
                    results.median("sweep", row, server),
                )
                for row in rows
            ]
            points = [(x, y) for x, y in points if x and y]
            far = max([far, *(x for x, _ in points)])
            high = max([high, *(y for _, y in points)])
            line(axes, server, labels, [x for x, _ in points], [y for _, y in points])
        axes.plot([0, far], [0, far], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set_xlim(0, far * 1.03)
        axes.set_ylim(0, high * 1.08 or 1)
        axes.xaxis.set_major_formatter(FuncFormatter(thousands))
        axes.yaxis.set_major_formatter(FuncFormatter(thousands))
        axes.set_xlabel("offered a second")
        axes.set_title(title)
    axes_list[0].set_ylabel("good answers a second")
    heading = "Goodput against offered rate (dashed: all of it answered)"
    return finish(figure, heading, axes_list)


def cost_of_size(results, labels):
    rows = list(results.rows("big"))
    sizes = list(dict.fromkeys(row.partition("/")[0] for row in rows))
    if len(sizes) < 2:
        return None
    figure, axes_list = frame(2)
    for axes, kind in zip(axes_list, ("printed", "stored")):
        for server in present(results, labels, "big"):
            rates = [results.median("big", f"{size}/{kind}", server) for size in sizes]
            points = [(x, 1000 / rate) for x, rate in enumerate(rates) if rate]
            line(axes, server, labels, [x for x, _ in points], [y for _, y in points])
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(thousands))
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set_title({"printed": "printed by a program", "stored": "stored in a file"}[kind])
    axes_list[0].set_ylabel("ms an answer")
    return finish(figure, "Cost of an answer against its size (lower is better)", axes_list)


def bandwidth(results, labels):
    """Against the size of a document: solid where a program sends it, dashed where it is a file, dotted where a
    program hands it over."""
    rows = [row.split("/") for row in results.rows("fastcgi")]
    sizes = list(dict.fromkeys(row[0] for row in rows if len(row) == 3 and row[2] == "kept"))
    if len(sizes) < 2:
        return None
    labels = labels | {s: words for s, words in fastcgi.LABELS.items() if s in labels}
    figure, axes_list = frame(1)
    axes = axes_list[0]
    figure.set_size_inches(8.2, 5.2)
    styles = {"served": ("-", ""), "stored": ("--", ", static"), "handed": (":", ", X-Sendfile")}
    for kind, (style, words) in styles.items():
        for server in present(results, labels, "fastcgi"):
            points = []
            for size in sizes:
                rate = results.median("fastcgi", f"{size}/{kind}/kept", server)
                if rate:
                    bytes_long = site.DOCUMENT_SIZES[size]
                    points.append((bytes_long, rate * bytes_long / 1e6))
            if points:
                line(axes, server, {server: labels[server] + words}, *zip(*points))
                axes.lines[-1].set_linestyle(style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    # 50, 100 and 200 KB stand close together.
    ticks = [site.DOCUMENT_SIZES[size] for size in sizes]
    axes.set_xticks(ticks, sizes, rotation=45, ha="right")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_ylabel("MB a second")
    heading = "Bandwidth against the size of a document, kept-alive connections (higher is better)"
    return finish(figure, heading, axes_list)


def cost_of_connections(results, labels):
    rows = [("programs", row, row.removeprefix("line/")) for row in ("line/1", "line/16")]
    rows += [("scale", row, row[1:]) for row in results.rows("scale")]
    at = {int(n): (table, row) for table, row, n in rows if n.isdigit() and results.rows(table).get(row)}
    counts = sorted(at)
    if len(counts) < 2 or not results.rows("scale"):
        return None
    figure, axes_list = frame(1)
    axes = axes_list[0]
    for server in present(results, labels, "scale"):
        rates = [results.median(*at[count], server) for count in counts]
        points = [(x, 1e6 / rate) for x, rate in zip(counts, rates) if rate]
        line(axes, server, labels, [x for x, _ in points], [y for _, y in points])
    axes.set_xscale("log")
    axes.set_xticks(counts, [thousands(count) for count in counts])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(thousands))
    axes.set_xlabel("connections")
    axes.set_ylabel("µs an answer, all cores together")
    return finish(figure, "Cost of the one-liner against connections (lower is better)", axes_list)


CHARTS = [
    ("programs", "programs.svg", "Answers a second for each program and server", programs),
    ("guestbook", "guestbook.svg", "Answers a second of the guestbooks", guestbook),
    ("sweep", "latency.svg", "Latency by percentile at the same offered rates", latency),
    ("sweep", "goodput.svg", "Good answers against the offered rate", goodput),
    ("big", "size.svg", "Time an answer takes against its size", cost_of_size),
    ("static", "static.svg", "Answers a second for static files", small_answers),
    ("fastcgi", "bandwidth.svg", "Bandwidth against the size of a document", bandwidth),
    ("pixel", "pixel.svg", "Answers a second for the pixel", pixel),
    ("idle", "memory.svg", "Memory at start and for each idle connection", memory),
    ("scale", "connections.svg", "Time an answer takes against connections", cost_of_connections),
]
