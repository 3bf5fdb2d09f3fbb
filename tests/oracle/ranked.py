"""Test support for ranks: inputs, random changelogs that each strategy accepts, and the definition.

Rows are (id, partition, value). The operator orders by value, NULLS FIRST if ascending and NULLS LAST if descending.
The definition, `numbers`, recounts all rows of a partition. `NaiveRank` applies it with a clock, one batch at a time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Int64s, Mask, binary
from rowkind.operators.rank.rank import RankSpec
from rowkind.operators.rank.ranking import RankFunction, Ranking, Ties
from tests.changelogs import Change, Row, pack, unpack
from tests.oracle.inputs import Batches, Input, PartitionedInput, random_batches
from tests.oracle.naive_join import NaiveSide, Steps, Stored


@dataclass(frozen=True)
class RankInput(PartitionedInput):
    """The input of a rank.

    If `stretch` is above 1, all values share one order code. If not `ordered`, all rows of a partition are ties.
    """

    stretch: int = 1
    descending: bool = False
    ordered: bool = True

    def sub_keys(self, rows: Sequence[Row]) -> pa.BinaryArray:
        """Return the values as sort keys in the sort direction."""
        return binary(self._order_key(row[2]) for row in rows)

    def _order_key(self, value: int | None) -> bytes:
        if not self.ordered:
            return b""
        if value is None:
            return b"\2" if self.descending else b"\0"
        # A second column distinguishes the values that the stretch gives the same order code.
        high, low = pack((2**40 if self.stretch > 1 else value,)), pack((value,))
        key = (high + low)[1:] if self.stretch > 1 else high[1:]
        return b"\1" + (bytes(255 - octet for octet in key) if self.descending else key)


def numbered(payloads: pa.BinaryArray, numbers: Sequence[Int64s]) -> pa.BinaryArray:
    """Append the numbers to the rows as last columns."""
    rows = zip(payloads.to_pylist(), *(each.tolist() for each in numbers), strict=True)
    return binary(payload + pack(tuple(of_row)) for payload, *of_row in rows)


@dataclass(frozen=True)
class RowFilter:
    """A condition on a row and its rank, as the operator evaluates it; `sql` states it over `v` and `n`."""

    function: RankFunction
    sql: str
    holds: Callable[[Row, int], bool]

    def __call__(self, payloads: pa.BinaryArray, numbers: Mapping[RankFunction, Int64s]) -> Mask:
        """Return for which rows the condition is true."""
        rows = zip(payloads.to_pylist(), numbers[self.function].tolist(), strict=True)
        return np.array([self.holds(unpack(payload), number) for payload, number in rows], np.bool_)


CONDITIONS: tuple[tuple[str, Callable[[Row, int], bool]], ...] = (
    ("n <= v", lambda row, number: row[2] is not None and number <= row[2]),
    ("n IN (1, 3)", lambda _, number: number in (1, 3)),
    ("n % 2 = 0", lambda _, number: number % 2 == 0),
    ("n <= k", lambda row, number: row[1] is not None and number <= row[1]),
    ("n = 1 OR v > 3", lambda row, number: number == 1 or (row[2] is not None and row[2] > 3)),
)
"""Conditions on rows and their ranks.

The last but one bounds ranks by a value that all rows of a partition share. The last one treats all ranks above 1
alike.
"""


def partition_bound(payloads: pa.BinaryArray) -> Int64s:
    """Return the partition key of each row, which bounds the ranks in the condition `n <= k`."""
    return np.array([max(unpack(payload)[1] or 0, 0) for payload in payloads.to_pylist()], np.int64)


def identity(payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Return the id of each row, which is its unique key."""
    return binary(pack(unpack(payload)[:1]) for payload in payloads.to_pylist())


def deduplication(
    keep: Literal["first", "last"],
    strategy: Literal["append", "retract"],
    *,
    by_seq: bool = True,
    ttl_ms: int | None = None,
) -> RankSpec:
    """Return the rank that keeps the first or the last row of each key."""
    ties: Ties = "earliest first" if keep == "first" else "latest first"
    return RankSpec(Ranking("row_number", 1, 1, ties, strategy=strategy), by_seq=by_seq, ttl_ms=ttl_ms)


def changelog(rank: RankSpec, of: Input, seed: str, batches: int, changes: int) -> Batches:
    """Return a random changelog that the strategy accepts."""
    match rank.ranking.strategy:
        case "retract":
            return random_batches((of,), seed, batches, changes)
        case "append":
            return [
                [change for change in batch if change.sign > 0]
                for batch in random_batches((of,), seed, batches, changes)
            ]
        case "improving":
            return _improving(of, rank, seed, batches, changes)


def _improving(of: Input, rank: RankSpec, seed: str, batches: int, changes: int) -> Batches:
    """Return updates of rows with ids; an id stays in its partition, and its value never gets worse."""
    assert isinstance(of, RankInput)
    generator = random.Random(seed)
    live: dict[int, Row] = {}
    seq, result = 0, []
    for _ in range(generator.randint(1, batches)):
        batch: list[Change] = []
        touched = set()
        for _ in range(generator.randint(0, changes)):
            number = generator.randint(0, 11)
            if number in touched and not of.by_seq:
                continue
            touched.add(number)
            value = 6 if number not in live else live[number][2]
            assert value is not None
            better = (12 - value if of.descending else value) - generator.choice([0, 0, 1, 2])
            row = (number, None if number % 3 == 2 else number % 3, 12 - better if of.descending else better)
            if number in live and generator.random() < 0.5:
                seq += 1
                batch.append(Change(0, RowKind.UPDATE_BEFORE, live[number], seq))
            seq += 1
            batch.append(Change(0, RowKind.UPDATE_AFTER, row, seq))
            live[number] = row
        generator.shuffle(batch)
        result.append(batch)
    assert rank.identity is identity
    return result


def numbers(function: RankFunction, rows: Sequence[Stored], of: RankInput, ties: Ties) -> dict[int, int]:
    """Return the number of each row of one partition, by `id()` of its object (definition)."""

    def order(one: Stored) -> tuple[int, ...]:
        value = one.row[2]
        if not of.ordered:
            return ()
        if value is None:
            return (1,) if of.descending else (-1,)
        return 0, (-value if of.descending else value)

    seq = -1 if ties == "latest first" else 1
    ranked = sorted(rows, key=lambda one: (order(one), seq * one.seq, pack(one.row)))
    orders = [order(one) for one in ranked]
    match function:
        case "row_number":
            return {id(one): at + 1 for at, one in enumerate(ranked)}
        case "rank":
            return {id(one): orders.index(order(one)) + 1 for one in ranked}
        case "dense_rank":
            return {id(one): len(set(orders[: orders.index(order(one))])) + 1 for one in ranked}


@dataclass
class NaiveRank:
    """The definition with a clock: every batch recomputes the numbers of the touched partitions.

    Output for a row that has expired stays. A row that a strategy dropped because it could no longer reach the range is
    missing when a row before it expires. `out` has the visible rows in the output with their numbers.
    """

    spec: RankSpec
    of: RankInput
    side: NaiveSide
    out: dict[int, tuple[Stored, int]] = field(default_factory=dict)

    def process(self, batch: Sequence[Change], now: int) -> Steps:
        """Apply one batch; a row that is written again and whose output is unchanged is refreshed."""
        spec = self.spec
        self.side.expire(now)
        before = {id(one): (one, one.seq, one.written_at) for one in self.side.stored}
        self.out = {at: each for at, each in self.out.items() if at in before}
        self.side.apply(batch, now)
        after = {id(one): (one, one.seq, one.written_at) for one in self.side.stored}
        written = {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}
        partitions = {(before | after)[at][0].row[1] for at in written}
        steps = Steps()
        for partition in partitions:
            old = {at: each for at, each in self.out.items() if each[0].row[1] == partition}
            rows = [one for one in self.side.stored if one.row[1] == partition]
            ranks = numbers(spec.ranking.function, rows, self.of, spec.ranking.ties)
            new = self._result(rows)
            for at in old.keys() | new.keys():
                was, is_ = (self._row(*each[at]) if at in each else None for each in (old, new))
                if was == is_ and was is not None:
                    steps.add(was, was=True, is_=True, written=at in written)
                    continue
                for row, there in ((was, True), (is_, False)):
                    if row is not None:
                        steps.add(row, was=there, is_=not there, written=False)
            self.out = {at: each for at, each in self.out.items() if at not in old} | new
            if spec.ranking.strategy != "retract":
                limits = (
                    numbers("rank", rows, self.of, spec.ranking.ties) if spec.ranking.strategy == "improving" else ranks
                )
                assert spec.ranking.last is not None
                dropped = {id(one) for one in rows if limits[id(one)] > spec.ranking.last}
                self.side.stored = [one for one in self.side.stored if id(one) not in dropped]
        return steps

    def _result(self, rows: Sequence[Stored]) -> dict[int, tuple[Stored, int]]:
        """Return the rows of a partition that belong to the result, with the number to output."""
        spec = self.spec
        most = math.inf if spec.ranking.settled is None else spec.ranking.settled + 1
        ranks = {
            function: {
                at: min(number, most) for at, number in numbers(function, rows, self.of, spec.ranking.ties).items()
            }
            for function in spec.functions
        }
        result: dict[int, tuple[Stored, int]] = {}
        for one in rows:
            own = ranks[spec.ranking.function][id(one)]
            last = math.inf if spec.ranking.last is None else spec.ranking.last
            admits = spec.admits
            assert admits is None or isinstance(admits, RowFilter)
            holds = admits is None or admits.holds(one.row, int(ranks[admits.function][id(one)]))
            if spec.ranking.first <= own <= last and holds:
                shown = spec.emitted[0] if spec.emitted else spec.ranking.function
                result[id(one)] = one, int(ranks[shown][id(one)])
        return result

    def _row(self, one: Stored, number: int) -> Row:
        return one.row if self.spec.numbered is None else (*one.row, number)
