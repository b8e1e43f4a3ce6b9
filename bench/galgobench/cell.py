"""What a plan is made of."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Cell:
    """One row of a table: measured once for each server in every round."""

    table: str
    row: str  # stable key: raw.json and `compare` use it
    label: str  # for people
    servers: list  # those that take part, in turn
    seconds: float  # one measurement takes about so long
    measure: Callable  # (server) -> result dictionary
    target: Callable | None = None  # (server) -> check.Target, looked at before measuring
    rounds: int | None = None  # when it differs from the run's


@dataclass
class Table:
    name: str
    title: str
    cells: list = field(default_factory=list)
    # Servers are started again for every round. Where a process happens to lie in memory makes a difference
    # of up to a tenth to rows that cost little, for as long as it lives: so no server keeps its luck.
    anew: bool = False

    def rounds(self, default):
        return max((cell.rounds or default for cell in self.cells), default=0)


@dataclass
class Size:
    """How much of everything: the difference between --quick and the whole."""

    rounds: int
    quick: bool
    short: float = 1.0  # factor on seconds; below 1 only smoke tests make sense
    warm: list = field(default_factory=list)  # servers that keep some programs loaded
    references: dict = field(default_factory=dict)  # program -> measure.Reference, once planned

    def seconds(self, wanted):
        return max(1, round(wanted * self.short))  # wrk counts whole seconds
