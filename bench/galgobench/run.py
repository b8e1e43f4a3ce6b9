"""Runs a plan: tables in order, rounds within a table, servers in turn within a row."""

import time

from . import process, site
from .check import Wrong, check
from .measure import Floor, settle, warm_up
from .paths import redact
from .progress import OVERHEAD_SECONDS, Progress
from .servers import CannotStart


class Runner:
    def __init__(self, tables, rounds, save):
        self.tables = tables
        self.rounds = rounds
        self.save = save  # called with all records after every round
        self.records = []
        self.unfit = {}  # server's name -> why it could not be started
        self.progress = Progress(tables, rounds)

    def run(self):
        for table in self.tables:
            self.progress.say(f"== {table.title}")
            for number in range(table.rounds(self.rounds)):
                if number == 0 or table.anew:
                    self.stop_all(table)
                    self.start_all(table)
                for cell in table.cells:
                    if number < (cell.rounds or self.rounds):
                        self.row(cell, number)
                self.save(self.records)
            self.stop_all(table)
        self.progress.say("done")

    def start_all(self, table):
        site.fresh_guestbook()
        for server in servers_of(table):
            if not server.running() and server.name not in self.unfit:
                self.start(server)

    def start(self, server):
        try:
            server.start()
        except (CannotStart, OSError) as why:
            self.unfit[server.name] = redact(why)
            self.progress.say(f"   {redact(why)}")

    def stop_all(self, table):
        for server in servers_of(table):
            server.stop()

    def row(self, cell, number):
        rates = []
        # Nobody is always first, or always behind the same one.
        first = number % len(cell.servers)
        for server in cell.servers[first:] + cell.servers[:first]:
            if server.name not in self.unfit:
                self.progress.show(f"{cell.table}: {cell.label} · {server.label} · {number + 1}")
                record = self.measure(cell, server)
                record |= {"round": number, "at": round(time.time(), 1)}
                self.records.append(record)
                rates.append(
                    f"{server.name} {record.get('wrong') or format(record['rate'], ',.0f')}"
                )
            self.progress.advance(cell.seconds + OVERHEAD_SECONDS)
        if not self.progress.fancy:
            self.progress.say(f"   {number + 1} {cell.label}: " + ", ".join(rates))

    def measure(self, cell, server):
        """One measurement; a wrong answer is a result, too."""
        record = {"table": cell.table, "row": cell.row, "label": cell.label, "server": server.name}
        try:
            if server is not Floor and not server.running():
                server.stop()
                server.start()
                record["restarted"] = True
            if cell.target and server is not Floor:
                check(server, cell.target(server))
                if server.keeps:
                    warm_up(server, cell.target(server))
                settle(server)
                if "guestbook" in cell.target(server).path:
                    site.same_guestbook()
            record |= cell.measure(server)
        except Wrong as wrong:
            record["wrong"] = redact(wrong)
        except (CannotStart, OSError) as error:
            record["wrong"] = redact(f"the server failed: {error}")
        if server is not Floor and (left := settle(server)):
            record["left_running"] = left
        return record


def servers_of(table):
    found = []
    for cell in table.cells:
        found += [s for s in cell.servers if s is not Floor and s not in found]
    return found


def finish():
    """Ends whatever is left. Returns how many processes could not be ended (always 0)."""
    return process.end_everything()
