"""bench/run ends here: options, the site, the plan, the run, the report."""

import argparse
import fcntl
import json
import os
import resource
import shutil
import signal
import sys
import time

from . import machine, plan, process, run, site
from .cell import Size
from .paths import BUILD, ROOT, RUNS, WORK, account, redact
from .progress import OVERHEAD_SECONDS, clock, work
from .servers import ALL, Galgo

WANTED_DESCRIPTORS = 65_536  # 10,000 idle connections on both sides, and room


def options():
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Measures galgo beside its peers: see bench/README.md."
    )
    parser.add_argument("--quick", action="store_true", help="the headline rows, under six minutes")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds a row (5)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        metavar="F",
        help="factor on every measurement's time (1)",
    )
    parser.add_argument(
        "--tables", metavar="A,B", help="only some of: " + ", ".join(plan.TABLES)
    )
    parser.add_argument(
        "--rows", metavar="A,B", help="only rows of these names, as in raw.json (flask,python/read)"
    )
    parser.add_argument(
        "--servers", metavar="A,B", help="only some of: " + ", ".join(s.name for s in ALL)
    )
    parser.add_argument(
        "--galgo", default=ROOT / "target/release/galgo", help="the binary to measure"
    )
    parser.add_argument("--out", help="folder for the results (bench/runs/<date>-<machine>)")
    parser.add_argument("--plan", action="store_true", help="print the plan and stop")
    given = parser.parse_args()
    for name, known in (("tables", plan.TABLES), ("servers", [s.name for s in ALL])):
        words = (getattr(given, name) or "").split(",") if getattr(given, name) else None
        if words and (strange := set(words) - set(known)):
            parser.error(f"unknown in --{name}: {', '.join(sorted(strange))}")
        setattr(given, name, words)
    given.rows = given.rows.split(",") if given.rows else None
    return given


def raise_descriptor_limit():
    """Servers inherit it: none of them should fail for want of descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (max(hard, WANTED_DESCRIPTORS), hard):  # the first needs a privilege
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return
        except ValueError:
            continue


def participants(given):
    """The servers that can take part, and why the others cannot."""
    Galgo.path = str(given.galgo)
    servers, missing = [], {}
    for kind in ALL:
        if given.servers and kind.name not in given.servers:
            continue
        server = kind(site.SITE)
        if server.binary():
            servers.append(server)
        else:
            missing[server.label] = server.lacks
    return servers, missing


def print_plan(tables, rounds):
    print(f"{'table':<10} {'rows':>5} {'servers':>8} {'rounds':>7} {'time':>7}")
    for table in tables:
        most = max(len(cell.servers) for cell in table.cells)
        size = f"{len(table.cells):>5} {most:>8} {table.rounds(rounds):>7}"
        print(f"{table.name:<10} {size} {clock(work(table, rounds)):>7}")
    print(f"{'together':<10} {clock(sum(work(t, rounds) for t in tables)):>31}", flush=True)


def ready_to_measure():
    """An empty work folder that the servers' user can reach. Returns the lock on it."""
    lock = open(BUILD / "bench.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("another run is under way in this checkout")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    if os.geteuid() == 0:
        user = account()
        probe = process.spawn(["test", "-x", WORK], account=user)
        if probe.wait() != 0:
            sys.exit(f"{user.pw_name} may not enter this checkout: put it where others can read it")
    # The interpreters of the system, not those of whoever runs this.
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:" + os.environ["PATH"]
    return lock


def main():
    given = options()
    size = Size(given.rounds or 5, given.quick, given.seconds)
    raise_descriptor_limit()
    process.become_subreaper()
    _lock = ready_to_measure()  # held until the process ends
    absent = site.build()
    servers, missing = participants(given)
    tables = plan.make(size, servers, absent, given.tables, given.rows)
    if not tables:
        sys.exit("nothing is left to measure: see --tables, --rows and --servers")
    for name, why in (missing | absent).items():
        print(f"absent: {name}: {redact(why)}")
    print_plan(tables, size.rounds)
    if given.plan:
        return 0
    about = {
        "machine": machine.describe(),
        "tools": machine.tools(),
        "servers": {s.name: {"label": s.label, "version": redact(s.version())} for s in servers},
        "missing": missing,
        "absent": {name: redact(why) for name, why in absent.items()},
        "command": command(given),
        "rounds": size.rounds,
        "seconds_factor": size.short,
        "quick": size.quick,
        "titles": {table.name: table.title for table in tables},
        "overhead_seconds": OVERHEAD_SECONDS,
    }
    folder = RUNS / machine.folder_name(about["machine"]) if not given.out else ROOT / given.out
    return carry_out(tables, size.rounds, about, folder)


def command(given):
    """What to type to repeat this run."""
    words = ["bench/run"] + ["--quick"] * given.quick
    words += [f"--rounds {given.rounds}"] if given.rounds else []
    words += [f"--seconds {given.seconds:g}"] if given.seconds != 1 else []
    words += [f"--tables {','.join(given.tables)}"] if given.tables else []
    words += [f"--rows {','.join(given.rows)}"] if given.rows else []
    words += [f"--servers {','.join(given.servers)}"] if given.servers else []
    return " ".join(words)


def carry_out(tables, rounds, about, folder):
    folder.mkdir(parents=True, exist_ok=True)
    started = time.time()

    def save(records):
        whole = about | {"took_seconds": round(time.time() - started), "records": records}
        text = json.dumps(whole, indent=None, separators=(",", ":"))
        # One record a line: readable, and a diff shows something.
        text = text.replace('{"table"', '\n{"table"')
        (folder / "raw.json.new").write_text(text + "\n")
        (folder / "raw.json.new").replace(folder / "raw.json")

    runner = run.Runner(tables, rounds, save)
    interrupted = False
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends a run as Ctrl-C does
    try:
        runner.run()
    except KeyboardInterrupt:
        interrupted = True
        runner.progress.say("interrupted: keeping what is done")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        left = run.finish()
    about["unfit"] = runner.unfit
    about["interrupted"] = interrupted
    save(runner.records)
    shutil.rmtree(WORK, ignore_errors=True)
    from . import report  # it needs installed packages, which --help does without

    report.write(folder)
    print(
        f"results: {os.path.relpath(folder / 'REPORT.md')}"
        + (f" ({left} processes left!)" if left else "")
    )
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
