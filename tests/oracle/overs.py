"""What OVER is tested with: the definition, a row at a time, over rows (id, partition, value)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Int64s, binary
from rowkind.operators.over.framing import Frame, OverFunction
from rowkind.operators.over.over import OverSpec
from rowkind.operators.over.window_call import OverCall
from tests import changelogs
from tests.changelogs import Change, Row, pack, unpack
from tests.oracle.inputs import Input

Arrived = tuple[int, Row]
"""A row and its arrival number."""


def position(row: Row) -> int:
    """What rows are ordered by: values share it."""
    return 3 * (row[2] or 0) - (row[0] or 0) % 3


@dataclass(frozen=True)
class OverInput(Input):
    """The input of an OVER, whose partitions may be NULL."""

    hashed: changelogs.Hash = changelogs.strong_hash

    def columns(self, batch: Sequence[Change]) -> Batch:
        """A batch as the operator takes it."""
        return changelogs.split(batch, self._changes)

    def _changes(self, batch: Sequence[Change]) -> Changes:
        keys = [pack((change.row[1],)) for change in batch]
        return Changes(
            np.zeros(len(batch), np.int8),
            np.array([change.kind for change in batch], np.int8),
            self.hashed(keys),
            binary(keys),
            number_bytes.to_bytes(np.array([position(change.row) for change in batch], np.int64)),
            np.array([change.seq for change in batch], np.int64),
            binary(pack(change.row) for change in batch),
        )


def call(function: OverFunction, frame: Frame, nth: int = 1, *, default: bool = False, skips: bool = False) -> OverCall:
    """A call over the values of rows; the default is the row's id."""
    result = pa.float64() if function == "avg" else pa.int64()
    aggregate = AccumulatorCall(function, result, "value", pa.int64()) if function in AGGREGATES else None
    return OverCall(function, frame, aggregate, "value", nth, "id" if default else None, skips)


AGGREGATES = ("count", "sum", "avg", "min", "max")


def arguments(payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
    """The ids and values."""
    rows = [unpack(payload) for payload in payloads.to_pylist()]
    return {name: pa.array([row[at] for row in rows], pa.int64()) for name, at in (("id", 0), ("value", 2))}


def values(payloads: pa.BinaryArray) -> Int64s:
    """What rows are ordered by."""
    return np.array([position(unpack(payload)) for payload in payloads.to_pylist()], np.int64)


def packed(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Results as columns behind the row; means times a thousand."""
    whole = [
        [None if each is None else int(1000 * each) if isinstance(each, float) else each for each in column.to_pylist()]
        for column in columns
    ]
    return binary(pack(row) for row in zip(*whole, strict=True))


def spec(calls: Sequence[OverCall], of: Input, *, ttl_ms: int | None = None, refreshes: bool = False) -> OverSpec:
    """These calls over these rows."""
    return OverSpec(tuple(calls), arguments, packed, values, ttl_ms, of.by_seq, refreshes=refreshes)


def over(rows: Iterable[Arrived], calls: Sequence[OverCall]) -> Counter[Row]:
    """The definition."""
    parts: dict[Any, list[Row]] = {}
    for _, row in sorted(rows, key=lambda each: (position(each[1]), each[0])):
        parts.setdefault(row[1], []).append(row)
    return Counter(
        (*row, *(_value(each, part, at) for each in calls)) for part in parts.values() for at, row in enumerate(part)
    )


def _value(of: OverCall, part: list[Row], at: int) -> int | None:
    own = position(part[at])
    before = [position(row) for row in part if position(row) < own]
    match of.function:
        case "row_number":
            return at + 1
        case "rank":
            return len(before) + 1
        case "dense_rank":
            return len(set(before)) + 1
        case "percent_rank":
            return int(1000 * (len(before) / max(1, len(part) - 1)))
        case "cume_dist":
            return int(1000 * (len([row for row in part if position(row) <= own]) / len(part)))
        case "ntile":
            least, more = divmod(len(part), of.nth)
            tiles = (number for number in range(of.nth) for _ in range(least + (number < more)))
            return list(tiles)[at] + 1
    frame = of.frame

    def inside(number: int) -> bool:
        distance = number - at if frame.kind == "rows" else position(part[number]) - own
        late = frame.start is None or distance >= frame.start
        return late and (frame.end is None or distance <= frame.end)

    rows = [row for number, row in enumerate(part) if inside(number)]
    there = [row[2] for row in rows if row[2] is not None]
    missing = part[at][0] if of.default else None
    if of.skips:
        rows = [row for row in rows if row[2] is not None]
    match of.function:
        case "lag" if of.skips:
            behind = [row[2] for row in part[:at] if row[2] is not None]
            return behind[-of.nth] if len(behind) >= of.nth else missing
        case "lag" | "lead":
            return rows[0][2] if rows else missing
        case "first_value" | "nth_value":
            return rows[of.nth - 1][2] if len(rows) >= of.nth else missing
        case "last_value":
            return rows[-1][2] if rows else missing
        case "count":
            return len(there)
        case "avg":
            return int(1000 * (sum(there) / len(there))) if there else None
        case "sum":
            return sum(there) if there else None
        case "min":
            return min(there, default=None)
        case _:
            return max(there, default=None)
