"""The load generators: wrk (closed loop), ab (the pixel), oha (constant offered rates) and
drain.c of our own (big bodies).

Each function returns one dictionary: `rate` (good answers a second), `requests`, `bytes`,
`latency` in milliseconds (min, mean, p50, p90, p95, p99, max), `curve` ([percentile, ms]...),
`errors` by kind. An error count that makes the figure meaningless raises check.Wrong.
"""

import json
import re
import subprocess

from . import process
from .check import Wrong, check_bytes
from .paths import BENCH, CARGO, WORK

# A load generator may count a few resets when it closes at the end; more means failing.
TOLERATED_SOCKET_ERRORS = 0.001
TIMEOUT_SECONDS = 10


def output_of(argv, limit):
    """Runs a load generator to its end; Ctrl-C ends it, too."""
    child = process.spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = child.communicate(timeout=limit)
    except BaseException:
        child.kill()
        child.wait()
        raise
    return child.returncode, out, err


def percentiles(points):
    """Named percentiles of a [percentile, ms] curve."""
    named = {f"p{p:g}".replace(".", "_"): ms for p, ms in points}
    return {key: named.get(key) for key in ("p50", "p90", "p95", "p99", "p99_9")}


def wrk(server, target, connections, seconds, close=False):
    """Closed loop: `connections` clients, each sends its next request after the answer."""
    argv = ["wrk", "-t", min(2, connections), "-c", connections, "-d", f"{seconds}s"]
    argv += ["--timeout", f"{TIMEOUT_SECONDS}s", "-s", BENCH / "wrk.lua"]
    argv += ["-H", "Connection: close"] if close else []
    argv += [server.url(target.path)]
    argv += ["--", target.method, target.body] if target.body else []
    code, out, err = output_of(argv, seconds + 30)
    found = re.search(r"^JSON (.*)$", out, re.M)
    if code != 0 or not found:
        raise Wrong(f"wrk: {(err or out).strip()[:200]}")
    raw = json.loads(found[1])
    curve = [[p, us / 1000] for p, us in raw["curve"]]
    took = raw["us"] / 1e6
    latency = {key: raw[key] / 1000 for key in ("min", "mean", "max")} | percentiles(curve)
    result = {
        "tool": "wrk",
        "rate": raw["requests"] / took,
        "requests": raw["requests"],
        "bytes": raw["bytes"],
        "latency": latency,
        "curve": curve,
        "errors": {kind: n for kind, n in raw["errors"].items() if n},
    }
    judge(target, result, connections, close)
    return result


def judge(target, result, connections, close):
    errors = dict(result["errors"])
    if close and errors.get("read", 0) <= result["requests"]:
        # Tortuga closes when asked to, but without "Connection: close" in its answer: wrk takes
        # the end for a failure. The answers themselves were whole.
        errors.pop("read", None)
    if not result["requests"]:
        raise Wrong(f"no answer at all under load {errors or ''}".strip())
    if errors.get("status"):
        raise Wrong(f"{errors['status']} of {result['requests']} answers were errors under load")
    sockets = sum(n for kind, n in errors.items() if kind != "status")
    if sockets > max(1, result["requests"] * TOLERATED_SOCKET_ERRORS):
        raise Wrong(f"{sockets} connections failed under load: {errors}")
    check_bytes(target, result, connections)


def ab(server, target, requests, connections):
    """A fixed number of requests, a connection each: the classic test of pixel servers."""
    argv = ["ab", "-q", "-n", requests, "-c", connections, server.url(target.path)]
    code, out, err = output_of(argv, 60)
    if code != 0:
        raise Wrong(f"ab: {err.strip()[:200]}")

    def figure(label):
        found = re.search(rf"^{re.escape(label)}\s*([\d.]+)", out, re.M)
        return float(found[1]) if found else 0.0

    failed, bad = figure("Failed requests:"), figure("Non-2xx responses:")
    length = figure("Document Length:")
    if failed or bad or figure("Complete requests:") != requests:
        raise Wrong(f"{failed:.0f} failed, {bad:.0f} not 2xx of {requests}")
    if target.length is not None and length != target.length:
        raise Wrong(f"{length:.0f} bytes, expected {target.length}")
    curve = [[int(p), int(ms)] for p, ms in re.findall(r"^\s+(\d+)%\s+(\d+)", out, re.M)]
    times = re.search(r"^Total:\s+(\d+)\s+(\d+)\s+[\d.]+\s+(\d+)\s+(\d+)", out, re.M)
    low, mean, _, high = (int(word) for word in times.groups())
    return {
        "tool": "ab",
        "rate": figure("Requests per second:"),
        "requests": requests,
        "bytes": int(figure("Total transferred:")),
        "latency": {"min": low, "mean": mean, "max": high} | percentiles(curve),
        "curve": curve,
        "errors": {},
    }


def drain(server, target, connections, seconds, keep=False):
    """Closed loop, a connection each unless they are kept, for bodies that wrk would take longer to read than the
    server to send."""
    argv = [WORK / "drain", *["-k"] * keep, "-c", connections, "-s", seconds]
    argv += [server.port, target.path]
    code, out, err = output_of(argv, seconds + 60)
    if code != 0:
        raise Wrong(f"drain: {err.strip()[:200]}")
    raw = json.loads(out)
    if raw["errors"] or not raw["requests"]:
        raise Wrong(f"{raw['errors']} failed, {raw['requests']} whole answers under load")
    check_bytes(target, raw, connections=0)
    mean = raw["seconds"] * connections / raw["requests"] * 1000
    return {
        "tool": "drain",
        "rate": raw["requests"] / raw["seconds"],
        "requests": raw["requests"],
        "bytes": raw["bytes"],
        "latency": {"mean": mean, "max": raw["slowest"] * 1000},
        "errors": {},
    }


def oha(server, target, connections, seconds, rate=None):
    """Open loop when `rate` is given: requests fall due at a constant rate whether or not the
    server keeps up, and latency counts from the moment a request was due. Otherwise a closed
    loop. Requests under way at the end are waited for (-w): cutting them off would cut the tail.
    """
    argv = [CARGO / "oha", "--no-tui", "--output-format", "json", "--stats-success-breakdown"]
    argv += ["-z", f"{round(seconds * 1000)}ms", "-w", "-c", connections, "--redirect", 0]
    argv += ["-t", f"{TIMEOUT_SECONDS}s"]
    if rate:
        rate = max(1, round(rate))
        argv += ["-q", rate, "--latency-correction"]
    if target.body:
        argv += ["-m", target.method, "-d", target.body]
        argv += ["-T", "application/x-www-form-urlencoded"]
    code, out, err = output_of([*argv, server.url(target.path)], seconds + 60)
    if code != 0:
        raise Wrong(f"oha: {err.strip()[:200]}")
    return understand_oha(json.loads(out), target, seconds, rate)


# How servers say that they have too much to do. nginx: 502 when fcgiwrap's queue is full.
REFUSALS = (502, 503, 504)


def understand_oha(raw, target, seconds, rate):
    statuses = {int(code): n for code, n in raw["statusCodeDistribution"].items()}
    good = statuses.get(target.status, 0)
    refused = sum(statuses.get(code, 0) for code in REFUSALS)
    if strange := set(statuses) - {target.status, *REFUSALS}:
        raise Wrong(f"unexpected statuses under load: {sorted(strange)} in {statuses}")
    errors = {text: n for text, n in raw["errorDistribution"].items() if "deadline" not in text}
    failed = sum(errors.values())
    if not good:
        raise Wrong(f"no good answer under load: {refused} refused, {failed} failed")
    accepted = raw.get("latencyPercentilesSuccessful") or raw["latencyPercentiles"]
    curve = sorted([float(key[1:]), s * 1000] for key, s in accepted.items() if s is not None)
    summary = raw["summary"]
    # Its mean counts refusals, too: where there are any, only percentiles speak of answers.
    spread = {"min": "fastest", "mean": "average", "max": "slowest"}
    latency = {key: None if refused else summary[name] * 1000 for key, name in spread.items()}
    due = rate * seconds if rate else good + refused + failed
    return {
        "tool": "oha",
        "rate": good / summary["total"],
        "requests": good,
        "offered": rate,
        "success": min(1.0, good / due),
        "refused": refused,
        "statuses": statuses,
        "failed": failed,
        "bytes": summary["totalData"],
        "latency": latency | percentiles(curve),
        "curve": curve,
        "errors": errors,
    }
