"""REPORT.md from raw.json: tables of medians with (minimum to maximum) over the rounds."""

import json

from . import charts, tables, verdict
from .stats import Results

NOTES = """\
Figures are medians over the rounds, with the minimum and the maximum in parentheses; a ratio is
taken in each round and the median of those is shown. Servers take turns within each round. Every
answer was checked: one request in full before each measurement (status, length, content), and the
load generator's counts of errors and bytes after it. A server that answered wrongly has no figure,
and [the reason](#wrong-answers) stands below. All servers run as the same unprivileged user, on
loopback, with access logs off and the configuration in `bench/peers/`; the load generator shares
the cores with the server. To repeat: `{command}`."""


def load(folder):
    with open(folder / "raw.json") as file:
        return json.load(file)


def write(folder):
    raw = load(folder)
    results = Results(raw["records"])
    labels = {name: about["label"] for name, about in raw["servers"].items()}
    drawn = charts.draw(folder, results, labels)
    parts = [head(raw), verdict.table(results), missing(raw)]
    for name, title in raw["titles"].items():
        if results.rows(name):
            images = [f"![{alt}]({file})" for file, alt in drawn.get(name, [])]
            parts += [f"## {title}", *images, tables.of(name, results, labels)]
    parts += [wrong(results, labels), conduct(results, labels), made_with(raw)]
    text = "\n\n".join(part for part in parts if part)
    (folder / "REPORT.md").write_text(text + "\n")


def head(raw):
    machine = raw["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
    system = f"Linux {machine['kernel']} ({machine['architecture']}), {machine['system']}"
    took = f"{raw['rounds']} rounds in {raw['took_seconds'] // 60} min {raw['took_seconds'] % 60} s"
    lines = ["# galgo beside its peers", f"**{where}** · {system} · {took}"]
    if raw.get("interrupted"):
        lines.append("> The run was interrupted: later rounds or tables are missing.")
    if raw["rounds"] < 5 or raw["seconds_factor"] < 1:
        lines.append("> Too short to be quoted: fewer than five rounds, or shortened measurements.")
    return "\n\n".join([*lines, NOTES.format(command=raw["command"])])


def missing(raw):
    """What did not take part, and why."""
    rows = [
        f"- {name}: {why}"
        for part in ("missing", "unfit", "absent")
        for name, why in raw.get(part, {}).items()
    ]
    return "\n".join(["**Absent from this run:**", "", *rows]) if rows else ""


def wrong(results, labels):
    rows = {}
    for record in results.records:
        if record.get("wrong"):
            rows[record["table"], record["row"], record["server"]] = record["label"]
    lines = ["## Wrong answers", ""]
    lines += ["None." if not rows else "| table | row | server | what |\n|---|---|---|---|"]
    for (table, row, server), label in rows.items():
        reason = results.wrong(table, row, server).replace("|", "\\|")
        lines.append(f"| {table} | {label} | {labels.get(server, server)} | {reason} |")
    return "\n".join(lines)


def conduct(results, labels):
    """Programs that were still running 3 s after their clients had gone; servers that fell over."""
    left, restarts = {}, {}
    for record in results.records:
        name = labels.get(record["server"], record["server"])
        left[name] = left.get(name, 0) + record.get("left_running", 0)
        restarts[name] = restarts.get(name, 0) + bool(record.get("restarted"))
    said = [
        f"- {name}: {n} programs still ran 3 s after the load had ended"
        for name, n in left.items()
        if n
    ]
    said += [
        f"- {name}: had ended and was started again {n} times" for name, n in restarts.items() if n
    ]
    return "\n".join(["## Conduct", "", *said]) if said else ""


def made_with(raw):
    lines = ["## Versions", "", "| | |", "|---|---|"]
    lines += [f"| {about['label']} | {about['version']} |" for about in raw["servers"].values()]
    lines += [f"| {name} | {version} |" for name, version in raw["tools"].items()]
    return "\n".join(lines)
