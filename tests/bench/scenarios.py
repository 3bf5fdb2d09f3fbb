"""The scenarios of the operator benchmarks: for each operator, rows to insert and later changes of some of them.

A row has a number and a version. Its key follows from its number; its sort key and payload follow from both. Any batch
can therefore be generated anywhere, without the batches before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.aggregate.spec import AggregateSpec
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.changes import Changes, binary
from rowkind.operators.columns.hashing import hash64
from rowkind.operators.columns.packed_columns import fixed_width
from rowkind.operators.join.facts import NOT_EMPTY
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinSpec
from rowkind.operators.join.semi_join import SemiJoin, SemiJoinKind, SemiJoinSpec
from rowkind.operators.normalize.normalize import Normalize
from rowkind.operators.operator import Operator
from rowkind.operators.over.framing import Frame
from rowkind.operators.over.over import Over, OverSpec
from rowkind.operators.over.window_call import OverCall
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.rank.ranking import Ranking, Ties

BIGINT = pa.int64()
GROW = 100_000
"""The most rows of a batch that makes state grow."""

PROBES = 10
"""How many batches of each size are measured at each size of the state."""

_FRESH = 1 << 40
"""Rows with such numbers are inserted instead of updates if the operator takes none."""


@dataclass(frozen=True)
class Step:
    """A batch: inserts of rows `first` to before `stop`, or one change of each of `changed` rows among them."""

    first: int
    stop: int
    changed: int = 0
    number: int = 0


def steps(sizes: Sequence[int]) -> Iterator[tuple[int, Step]]:
    """Yield for each size of the state, in rows, the steps that reach it, then batches of 500 updates and of one."""
    before = 0
    for size in sizes:
        for first in range(before, size, GROW):
            yield size, Step(first, min(first + GROW, size))
        number = 0
        for changed in (500, 1):
            for _ in range(PROBES):
                yield size, Step(before, size, changed, number)
                number += changed
        before = size


@dataclass(frozen=True)
class Scenario:
    """An operator and its input: rows per key, sides, the sub-key, and whether rows are updated."""

    name: str
    operator: Operator
    rows_of_key: int
    sides: int = 1
    sub_key: Literal["nothing", "number", "order"] = "nothing"
    updates: bool = True

    def batch(self, step: Step, seq: int) -> Changes:
        """Return the changes of this step, numbered from `seq`."""
        if not step.changed:
            changes = self._changes(np.arange(step.first, step.stop), 0, RowKind.INSERT, seq)
            if step.first == 0 and isinstance(self.operator, SemiJoin):
                changes = Changes.concat([changes, _not_empty()])
            return changes
        which = np.arange(step.number, step.number + step.changed)
        if not self.updates:
            return self._changes(_FRESH + step.stop + which, 0, RowKind.INSERT, seq)
        numbers = step.first + which * 7919 % (step.stop - step.first)
        before = self._changes(numbers, 0, RowKind.UPDATE_BEFORE, seq)
        after = self._changes(numbers, 1, RowKind.UPDATE_AFTER, seq + len(numbers))
        return Changes.concat([before, after])

    def _changes(self, numbers: Any, version: int, kind: RowKind, seq: int) -> Changes:
        """Return rows with 44 bytes of payload: number, version, a value from both, and padding."""
        count = len(numbers)
        values = (numbers * 2654435761 + version * 40503) % (1 << 40)
        key = _order_bytes(numbers // self.sides // self.rows_of_key)
        payload = np.zeros((count, 44), np.uint8)
        payload[:, :24] = np.stack([numbers, np.full(count, version), values], axis=1).astype("<i8").view(np.uint8)
        subs = {"nothing": fixed_width(b"", 0, count), "number": _order_bytes(numbers), "order": _order_bytes(values)}
        side = (numbers % self.sides).astype(np.int8)
        kinds, arrivals = np.full(count, kind, np.int8), np.arange(seq, seq + count)
        return Changes(side, kinds, hash64(key), key, subs[self.sub_key], arrivals, fixed_width(payload, 44, count))


def _order_bytes(numbers: Any) -> pa.BinaryArray:
    data = np.full((len(numbers), 9), 1, np.uint8)
    data[:, 1:] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    data[:, 1] ^= 0x80
    return fixed_width(data, 9, len(numbers))


def _not_empty() -> Changes:
    """Return the fact that the right side has rows; only a null-aware anti join reads it."""
    key, nothing = binary([NOT_EMPTY]), binary([b""])
    one = np.ones(1, np.int8)
    return Changes(2 * one, 0 * one, hash64(key), key, nothing, np.zeros(1, np.int64), nothing)


def _words(payloads: pa.BinaryArray) -> Any:
    start = int(np.frombuffer(payloads.buffers()[1], np.int32, 1, payloads.offset * 4)[0])
    octets = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)[start : start + 44 * len(payloads)]
    return np.ascontiguousarray(octets.reshape(-1, 44)[:, :24]).view("<i8")


def arguments(payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
    """Return the value."""
    return {"value": pa.array(np.ascontiguousarray(_words(payloads)[:, 2]))}


def tens(payloads: pa.BinaryArray) -> pa.BinaryArray:
    """Return the group of ten rows."""
    return fixed_width(np.ascontiguousarray(_words(payloads)[:, 0] // 10), 8, len(payloads))


def result(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return eight bytes per column."""
    filled = [column.cast(BIGINT).to_numpy(zero_copy_only=False) for column in columns]
    return fixed_width(np.ascontiguousarray(np.stack(filled, axis=1)), 8 * len(columns), len(columns[0]))


def _aggregate(name: str, *calls: AccumulatorCall) -> Scenario:
    return Scenario(name, Aggregate(AggregateSpec(calls, arguments, tens, result)), 10)


def _semi_join(kind: SemiJoinKind) -> Scenario:
    return Scenario(f"{kind} join", SemiJoin(SemiJoinSpec(kind, UNIQUE, UNIQUE)), 1, sides=2, sub_key="number")


def _rank(
    name: str, last: int, strategy: Literal["append", "retract"], rows_of_key: int, ties: Ties = "earliest first"
) -> Scenario:
    operator = Rank(RankSpec(Ranking("row_number", 1, last, ties, strategy=strategy)))
    return Scenario(name, operator, rows_of_key, sub_key="order", updates=strategy == "retract")


def _over(name: str, frame: Frame, *, updates: bool) -> Scenario:
    """Return sums over one partition with all rows."""
    spec = OverSpec((OverCall("sum", frame, SUM),), arguments, result, by_seq=True)
    return Scenario(name, Over(spec), 1 << 40, sub_key="number", updates=updates)


UNIQUE = Side("unique key", by_seq=True)
SUM = AccumulatorCall("sum", BIGINT, "value", BIGINT)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("inner join", Join(JoinSpec("inner", UNIQUE, UNIQUE, None, b"", b"")), 1, sides=2, sub_key="number"),
    Scenario("left join", Join(JoinSpec("left", UNIQUE, UNIQUE, None, b"", b"\0" * 44)), 1, sides=2, sub_key="number"),
    _semi_join("semi"),
    _semi_join("anti"),
    _semi_join("null-aware anti"),
    _rank("rank, top 3 of 10, append", 3, "append", 10),
    _rank("rank, top 10 of 100, retract", 10, "retract", 100),
    _rank("deduplicate, last, append", 1, "append", 10, "latest first"),
    _rank("deduplicate, last, retract", 1, "retract", 10, "latest first"),
    _aggregate("aggregate, count and sum", AccumulatorCall("count", BIGINT), SUM),
    _aggregate(
        "aggregate, min and max",
        AccumulatorCall("min", BIGINT, "value", BIGINT),
        AccumulatorCall("max", BIGINT, "value", BIGINT),
    ),
    _aggregate("aggregate, count distinct", AccumulatorCall("count", BIGINT, "value", BIGINT, distinct=True)),
    _over("over, running sum, append", Frame("rows", None, 0), updates=False),
    _over("over, sum of 10 rows, append", Frame("rows", -9, 0), updates=False),
    _over("over, sum of 10 rows, retract", Frame("rows", -9, 0), updates=True),
    Scenario("normalize", Normalize(Side("one row per key", by_seq=True, counts_unmatched=False)), 1),
)
