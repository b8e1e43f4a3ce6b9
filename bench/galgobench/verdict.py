"""What galgo must show in a run of its own machine class: each row a figure and a bound.

Used by the report and by bench/compare.
"""

import sys
from dataclasses import dataclass

from . import fastcgi, wasm
from .stats import Spread
from .tables import markdown, number

QUEUE_LIMIT_MS = 10_000  # the longest wait in galgo's queue with its default configuration


@dataclass(frozen=True)
class Verdict:
    row: str
    wanted: str
    found: str
    passed: bool | None  # None: cannot be said from this run


def at_least(row, words, found, bound, unit=""):
    """`found` is a figure or a Spread: then its median is judged, and its rounds are shown."""
    if found is None:
        return Verdict(row, words, "not measured", None)
    value, rounds = found, ""
    if isinstance(found, Spread):
        value = found.median
        rounds = f" ({found.low:.2f}–{found.high:.2f})" if found.count > 1 else ""
    return Verdict(row, words, f"{value:.2f}{unit}{rounds}", value >= bound)


def against_peer(results, table, row, label, bound, galgo="galgo"):
    best = results.best_peer(table, row)
    ratio = results.ratio((table, row, galgo), (table, row, best)) if best else None
    words = f"at least {bound:g} of the best peer"
    return at_least(label, words, ratio, bound, f" of {best}")


def against_floor(results, program, label, bound):
    row = f"{program}/16"
    ratio = results.ratio(("programs", row, "galgo"), ("programs", row, "floor"))
    return at_least(label, f"at least {bound:g} of the floor", ratio, bound)


def programs(results):
    bare, line = "static program without libc", "dynamic C one-liner"
    yield against_floor(results, "bare", bare, 0.75)
    yield against_peer(results, "programs", "bare/16", bare, 1.3)
    yield against_floor(results, "line", line, 0.90)
    yield against_peer(results, "programs", "line/16", line, 1.05)
    for row, label in results.rows("guestbook").items():
        yield against_peer(results, "guestbook", row, f"guestbook, {label}", 1.0)


# What each language's guestbook must reach with start = "warm".
WARM_BOUNDS = {"c": 1.5, "rust": 1.5, "python": 8, "perl": 8, "node": 5}
SITE_BOUNDS = {"flask": 15, "gitweb": 8}


def warm(results):
    label = "warm: dynamic C one-liner"
    yield against_peer(results, "programs", "line/16", label, 1.8, "galgo-warm")
    for row, words in results.rows("guestbook").items():
        name, _, what = row.partition("/")
        if name in WARM_BOUNDS and not (what == "write" and name in ("c", "rust")):
            label = f"warm: guestbook, {words}"
            yield against_peer(results, "guestbook", row, label, WARM_BOUNDS[name], "galgo-warm")
    for row, words in results.rows("sites").items():
        label = f"warm: {words}"
        yield against_peer(results, "sites", row, label, SITE_BOUNDS[row], "galgo-warm")
    label, words = "warm: p50 of the one-liner, 1 connection", "below 0.6 of the best peer's"
    best = results.best_peer("programs", "line/1", "latency.p50", lowest=True)
    own = results.median("programs", "line/1", "galgo-warm", "latency.p50")
    peer = results.median("programs", "line/1", best, "latency.p50") if best else None
    if own is None or peer is None:
        yield Verdict(label, words, "not measured", None)
    else:
        yield Verdict(label, words, f"{own / peer:.2f} of {best}", own / peer < 0.6)


def tail(results):
    row, words = "p99 of the one-liner at half its capacity", "below every peer"
    best = results.best_peer("sweep", "line/0.5", "latency.p99", lowest=True)
    galgo = results.median("sweep", "line/0.5", "galgo", "latency.p99")
    if not best or galgo is None:
        return Verdict(row, words, "not measured", None)
    peer = results.median("sweep", "line/0.5", best, "latency.p99")
    return Verdict(row, words, f"{number(galgo)} ms, {best} {number(peer)} ms", galgo < peer)


def overload(results):
    label = "overload at twice the capacity"
    yield at_least(label, "goodput at least 0.9 of the peak", share_of_peak(results), 0.9)
    unloaded = results.median("programs", "line/1", "galgo", "latency.p99")
    if unloaded is None:  # the quick run has no single connection; a quiet rate comes close
        unloaded = results.median("sweep", "line/0.5", "galgo", "latency.p99")
    p99 = results.median("overload", "twice", "galgo", "latency.p99")
    words = f"p99 of accepted below {QUEUE_LIMIT_MS} ms + 2 unloaded p99"
    if unloaded is None or p99 is None:
        yield Verdict(label, words, "not measured", None)
    else:
        limit = QUEUE_LIMIT_MS + 2 * unloaded
        yield Verdict(label, words, f"{number(p99)} ms of {number(limit)} ms", p99 < limit)
    others = results.median("overload", "twice", "galgo", "failed")
    for record in results.at("overload", "twice", "galgo") if others is not None else []:
        statuses = record.get("statuses", {})
        others += sum(n for code, n in statuses.items() if str(code) not in ("200", "503"))
    found = "not measured" if others is None else f"{others:.0f} failed otherwise"
    yield Verdict(label, "the rest a 503", found, None if others is None else others == 0)


def share_of_peak(results):
    """Spread of the goodput at twice the capacity to the best closed loop of its round."""
    closed = [row for row in results.rows("overload") if row != "twice"]
    shares = []
    for record in results.at("overload", "twice", "galgo"):
        beside = [r for row in closed for r in results.at("overload", row, "galgo") if r["round"] == record["round"]]
        rates = [r["rate"] for r in beside if not r.get("wrong")]
        if rates and not record.get("wrong"):
            shares.append(record["rate"] / max(rates))
    return Spread.of(shares)


def big(results):
    for size in ("10 MB", "100 MB"):
        label = f"{size} from a program"
        if not results.rows("big").get(f"{size}/printed"):
            continue
        yield against_peer(results, "big", f"{size}/printed", label, 1.15)
        own = results.ratio(("big", f"{size}/printed", "galgo"), ("big", f"{size}/stored", "galgo"))
        yield at_least(label, "at least 0.87 of its own static rate", own, 0.87)


def static(results):
    for row, label in results.rows("static").items():
        if row.endswith("/kept") and not row.startswith("10 MB"):
            ratio = results.ratio(("static", row, "galgo"), ("static", row, "nginx"))
            yield at_least(f"static {label}", "above nginx", ratio, 1.0, " of nginx")
    lighttpd = results.spread("static", "index/kept", "lighttpd")
    pixel = results.spread("pixel", "wrk", "galgo")
    ratio = pixel.median / lighttpd.median if pixel and lighttpd else None
    yield at_least("pixel", "above lighttpd's static rate", ratio, 1.0, " of lighttpd")


def undisturbed(results):
    words = "within 10 % of without"
    for row, beside in (
        ("idle", "10,000 idle connections"),
        ("ballast", "1 GB resident in the server's own heap"),
    ):
        label = f"one-liner with {results.rows('idle').get(row, beside)}"
        if why := results.wrong("idle", row, "galgo"):
            yield Verdict(label, words, f"wrong: {why}", False)
        else:
            yield at_least(label, words, results.undisturbed("idle", row, "galgo"), 0.9)


def all_of(results):
    return [
        *programs(results),
        *warm(results),
        tail(results),
        *overload(results),
        *big(results),
        *static(results),
        *fastcgi.verdicts(results, sys.modules[__name__]),
        *wasm.verdicts(results, sys.modules[__name__]),
        *undisturbed(results),
    ]


WORDS = {True: "pass", False: "**FAIL**", None: "–"}


def table(results):
    """Markdown; empty when galgo took no part."""
    if not any(record["server"] == "galgo" for record in results.records):
        return ""
    rows = [[v.row, v.wanted, v.found, WORDS[v.passed]] for v in all_of(results)]
    return "## What galgo must show\n\n" + markdown(["", "wanted", "found", ""], rows)
