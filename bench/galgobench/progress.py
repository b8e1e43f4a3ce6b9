"""Where the run is: a bar with the time left on a terminal, a line a row elsewhere."""

import shutil
import sys
import time


class Progress:
    def __init__(self, tables, rounds, out=sys.stderr):
        self.out = out
        self.fancy = out.isatty()
        self.total = sum(work(table, rounds) for table in tables)
        self.done = 0.0  # planned seconds behind us
        self.since = time.monotonic()

    def left(self):
        """Seconds left: what is planned, scaled by how the plan has held so far."""
        took = time.monotonic() - self.since
        pace = took / self.done if self.done > 10 else 1.0
        return (self.total - self.done) * pace

    def show(self, what):
        if not self.fancy:
            return
        share = min(1.0, self.done / self.total) if self.total else 1.0
        bar = "█" * round(share * 24)
        line = f"{bar:░<24} {share:4.0%}  {clock(self.left())} left  {what}"
        self.out.write("\r\x1b[K" + line[: shutil.get_terminal_size().columns - 1])
        self.out.flush()

    def advance(self, seconds):
        self.done += seconds

    def say(self, text):
        """A line that stays."""
        self.out.write(("\r\x1b[K" if self.fancy else "") + text + "\n")
        self.out.flush()


OVERHEAD_SECONDS = 0.17  # a measurement: checking the answer, starting the load, settling
STARTS_SECONDS = 2  # all servers of a table


def work(table, rounds):
    """Planned seconds of a table."""
    measured = sum(
        (cell.seconds + OVERHEAD_SECONDS) * len(cell.servers) * (cell.rounds or rounds)
        for cell in table.cells
    )
    return measured + STARTS_SECONDS * (table.rounds(rounds) if table.anew else 1)


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
