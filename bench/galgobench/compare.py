"""bench/compare: what galgo must show, with pass or fail, from a run's raw.json.

Exit status: 0 all passed, 1 a row failed, 2 some rows could not be told, none failed.
"""

import argparse
import sys
from pathlib import Path

from . import report, verdict
from .paths import RUNS
from .stats import Results


def main():
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__)
    parser.add_argument(
        "run", nargs="?", type=Path, help="folder of a run (the newest in bench/runs)"
    )
    parser.add_argument("--report", action="store_true", help="write REPORT.md and the charts anew")
    given = parser.parse_args()
    runs = sorted(RUNS.glob("*/raw.json"), key=lambda file: file.stat().st_mtime)
    if not given.run and not runs:
        parser.error("there is no run yet: bench/run")
    folder = given.run or runs[-1].parent
    if given.report:
        report.write(folder)
    results = Results(report.load(folder)["records"])
    found = verdict.all_of(results)
    wide = max(len(v.row) for v in found)
    for v in found:
        word = {True: "pass", False: "FAIL", None: "  ? "}[v.passed]
        print(f"{word}  {v.row:<{wide}}  {v.wanted:<45}  {v.found}")
    passed = [v.passed for v in found]
    print(
        f"{passed.count(True)} passed, {passed.count(False)} failed, {passed.count(None)} not told"
    )
    return 1 if False in passed else 2 if None in passed else 0


if __name__ == "__main__":
    sys.exit(main())
