"""Medians over rounds; ratios round by round, so that drift of the machine cancels out."""

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values):
        values = [value for value in values if value is not None]  # a round may lack the figure
        if not values:
            return None
        return cls(float(statistics.median(values)), min(values), max(values), len(values))


def dig(record, path):
    """A figure in a record by its path: "rate", "latency.p99"."""
    for key in path.split("."):
        if not isinstance(record, dict) or record.get(key) is None:
            return None
        record = record[key]
    return record


class Results:
    """Records of a run, by table, row and server."""

    def __init__(self, records):
        self.records = records
        self.by_place = {}
        for record in records:
            place = (record["table"], record["row"], record["server"])
            self.by_place.setdefault(place, []).append(record)

    def rows(self, table):
        """Rows of a table in the order they were measured: {row: label}."""
        return {r["row"]: r["label"] for r in self.records if r["table"] == table}

    def servers(self, table, row=None):
        found = {}
        for record in self.records:
            if record["table"] == table and row in (None, record["row"]):
                found[record["server"]] = True
        return list(found)

    def at(self, table, row, server):
        return self.by_place.get((table, row, server), [])

    def wrong(self, table, row, server):
        """Why this server's row does not count; None when it does."""
        reasons = [r["wrong"] for r in self.at(table, row, server) if r.get("wrong")]
        if not reasons:
            return None
        rounds = len(self.at(table, row, server))
        return reasons[0] + (f" ({len(reasons)} of {rounds} rounds)" if rounds > 1 else "")

    def spread(self, table, row, server, path="rate"):
        """Median, minimum and maximum over the rounds; None when wrong or not measured."""
        if self.wrong(table, row, server):
            return None
        return Spread.of([dig(r, path) for r in self.at(table, row, server)])

    def median(self, table, row, server, path="rate"):
        found = self.spread(table, row, server, path)
        return found.median if found else None

    def ratio(self, above, below, path="rate"):
        """Spread of above/below per round; each is (table, row, server)."""
        if self.wrong(*above) or self.wrong(*below):
            return None
        under = {r["round"]: dig(r, path) for r in self.at(*below)}
        pairs = [(dig(r, path), under.get(r["round"])) for r in self.at(*above)]
        return Spread.of([a / b for a, b in pairs if a is not None and b])

    def undisturbed(self, table, row, server):
        """Spread over the rounds of a rate beside a disturbance to the rate just before it."""
        if self.wrong(table, row, server):
            return None
        return Spread.of([r["rate"] / r["rate_before"] for r in self.at(table, row, server)])

    def best_peer(self, table, row, path="rate", lowest=False):
        """The best server but galgo and the floor, by its median."""
        medians = {
            server: self.median(table, row, server, path)
            for server in self.servers(table, row)
            if not server.startswith(("galgo", "nginx-galgo")) and server != "floor"
        }
        known = {server: value for server, value in medians.items() if value is not None}
        return (min if lowest else max)(known, key=known.get) if known else None
