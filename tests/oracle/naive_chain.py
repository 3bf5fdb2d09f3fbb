"""Chains of operators with a clock, in naive form: each takes in the changes and refreshes that the one before emits.

Rows are tuples of integers. The naive forms are those with which the single operators are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from rowkind.operators.changelog import RowKind
from rowkind.operators.join.join import JoinKind
from rowkind.operators.rank.rank import RankSpec
from rowkind.operators.rank.ranking import Ranking
from rowkind.service.physical.node import PhysicalInput as Kept
from tests.changelogs import Change, Row, Table
from tests.oracle.inputs import Input
from tests.oracle.naive_join import NaiveJoin, NaiveSide, Steps, Stored
from tests.oracle.ranked import NaiveRank, RankInput


class Naive(Protocol):
    """An operator or a table."""

    def process(self, batch: Sequence[Change], now: int) -> list[Change]:
        """Return its output for a batch of all tables; a change's `side` is the number of its table."""


@dataclass(frozen=True)
class ChainInput(Input):
    """An input with its own columns."""

    columns: Table = field(default_factory=lambda: Table((0,)))

    @property
    def table(self) -> Table:
        """Return the input's columns."""
        return self.columns


def changes_of(steps: Steps) -> list[Change]:
    """Return the changes of a step after equal rows of opposite sign have cancelled, and the refreshes."""
    kinds: tuple[tuple[Counter[Row], RowKind | None], ...] = (
        (+steps.net, RowKind.INSERT),
        (-steps.net, RowKind.DELETE),
        (steps.refreshed, None),
    )
    return [Change(0, kind, row, 0) for rows, kind in kinds for row in rows.elements()]


@dataclass
class Read:
    """A table scan that reads some of the table's columns."""

    table: int
    columns: tuple[int, ...]

    def process(self, batch: Sequence[Change], _now: int) -> list[Change]:
        """Return the table's changes."""
        return [
            replace(change, side=0, row=tuple(change.row[column] for column in self.columns))
            for change in batch
            if change.side == self.table
        ]


@dataclass
class Projected:
    """Some columns of an operator's output, netted."""

    input: Naive
    columns: tuple[int, ...]

    def process(self, batch: Sequence[Change], now: int) -> list[Change]:
        """Return the projected changes."""
        steps = Steps()
        for change in self.input.process(batch, now):
            to = {1: steps.come, -1: steps.gone, 0: steps.kept}[change.sign]
            to[tuple(change.row[column] for column in self.columns)] += 1
        return changes_of(steps)


@dataclass
class Normalized:
    """The rows of an upsert table whose first column is the key."""

    input: Naive
    width: int
    ttl_ms: int | None

    def __post_init__(self) -> None:
        table = Table(key=(0,), payload=tuple(range(self.width)))
        self._side = NaiveSide(ChainInput("one row per key", by_seq=True, columns=table), self.ttl_ms)

    def process(self, batch: Sequence[Change], now: int) -> list[Change]:
        """Return retracted and inserted rows with their sequence numbers, and refreshes of rows written again."""
        side = self._side
        side.expire(now)
        before = {id(one): one for one in side.stored}
        old_times = {at: one.seq for at, one in before.items()}
        side.apply(self.input.process(batch, now), now)
        after = {id(one): one for one in side.stored}
        kinds: list[tuple[RowKind | None, Stored]] = [
            (RowKind.DELETE, one) for at, one in before.items() if at not in after
        ]
        kinds += [(RowKind.INSERT, one) for at, one in after.items() if at not in before]
        kinds += [(None, one) for at, one in after.items() if at in before and old_times[at] != one.seq]
        return [Change(0, kind, one.row, one.seq) for kind, one in kinds]


@dataclass
class Joined:
    """An inner or outer join on one column of each side (`keys`), with state as the plan says.

    If rows have a unique key, it is their first column.
    """

    kind: JoinKind
    inputs: tuple[Naive, Naive]
    widths: tuple[int, int]
    keys: tuple[int, int]
    kept: tuple[Kept, Kept]

    def __post_init__(self) -> None:
        sides = []
        for width, key, kept in zip(self.widths, self.keys, self.kept, strict=True):
            table = Table((key,), (0,) if kept.layout == "unique key" else (), tuple(range(width)))
            sides.append(NaiveSide(ChainInput(kept.layout, by_seq=kept.by_seq, columns=table), kept.ttl_ms))
        self._join = NaiveJoin(self.kind, sides[0], sides[1], lambda _one, _other: True)

    def process(self, batch: Sequence[Change], now: int) -> list[Change]:
        """Return the changes of pairs and null-padded rows."""
        inputs = enumerate(each.process(batch, now) for each in self.inputs)
        given = [replace(change, side=side) for side, changes in inputs for change in changes]
        return changes_of(self._join.process(given, now))


@dataclass
class Ranked:
    """The top rows of each partition (the second column) by the third column, largest first."""

    input: Naive
    last: int
    ttl_ms: int | None

    def __post_init__(self) -> None:
        of = RankInput("multiset", by_seq=False, descending=True)
        spec = RankSpec(Ranking("row_number", 1, self.last), ttl_ms=self.ttl_ms)
        self._rank = NaiveRank(spec, of, NaiveSide(of, self.ttl_ms))

    def process(self, batch: Sequence[Change], now: int) -> list[Change]:
        """Return the changes of the top rows."""
        return changes_of(self._rank.process(self.input.process(batch, now), now))


@dataclass
class Counted:
    """The number of rows of each group, which is the first column."""

    input: Naive
    ttl_ms: int | None
    groups: dict[Row, tuple[int, int]] = field(default_factory=dict)

    def process(self, batch: Sequence[Change], now: int) -> list[Change]:
        """Return the changes of the groups' rows; retractions beyond a group's count are ignored."""
        if self.ttl_ms is not None:
            self.groups = {key: each for key, each in self.groups.items() if each[1] + self.ttl_ms > now}
        before, steps = dict(self.groups), Steps()
        given = self.input.process(batch, now)
        for key in {change.row[:1] for change in given}:
            signs = [change.sign for change in given if change.row[:1] == key]
            there = before.get(key, (0, 0))[0] + signs.count(1)
            rows = there - min(there, signs.count(-1))
            if key not in before and 1 not in signs:
                continue
            self.groups.pop(key, None)
            if rows:
                self.groups[key] = rows, now
            was, is_ = before.get(key, (0, 0))[0], rows
            for number in {was, is_} - {0}:
                steps.add((*key, number), was=number == was, is_=number == is_, written=True)
        return changes_of(steps)
