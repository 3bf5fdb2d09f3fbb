"""Test support for OVER: the definition, row by row, over rows (id, partition, value)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rowkind.operators.aggregate.accumulators import AccumulatorCall
from rowkind.operators.columns import number_bytes
from rowkind.operators.columns.changes import Int64s, binary
from rowkind.operators.over.framing import Frame, OverFunction
from rowkind.operators.over.over import OverSpec
from rowkind.operators.over.window_call import OverCall
from tests.changelogs import Row, pack, unpack
from tests.oracle.inputs import Input, PartitionedInput

Arrived = tuple[int, Row]
"""A row and its arrival number."""


def position(row: Row) -> int:
    """Return the sort position of a row; several rows may share a position."""
    return 3 * (row[2] or 0) - (row[0] or 0) % 3


@dataclass(frozen=True)
class OverInput(PartitionedInput):
    """The input of an OVER, whose partition key may be NULL."""

    def sub_keys(self, rows: Sequence[Row]) -> pa.BinaryArray:
        """Return the positions as sort keys."""
        return number_bytes.to_bytes(np.array([position(row) for row in rows], np.int64))


def call(function: OverFunction, frame: Frame, nth: int = 1, *, default: bool = False, skips: bool = False) -> OverCall:
    """Return a call over the values of rows, whose default is the row's id."""
    result = pa.float64() if function == "avg" else pa.int64()
    aggregate = AccumulatorCall(function, result, "value", pa.int64()) if function in AGGREGATES else None
    return OverCall(function, frame, aggregate, "value", nth, "id" if default else None, skips)


AGGREGATES = ("count", "sum", "avg", "min", "max")


def arguments(payloads: pa.BinaryArray) -> Mapping[str, pa.Array]:
    """Return the ids and the values."""
    rows = [unpack(payload) for payload in payloads.to_pylist()]
    return {name: pa.array([row[at] for row in rows], pa.int64()) for name, at in (("id", 0), ("value", 2))}


def values(payloads: pa.BinaryArray) -> Int64s:
    """Return the positions by which rows are sorted."""
    return np.array([position(unpack(payload)) for payload in payloads.to_pylist()], np.int64)


def packed(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Return results as columns to append to the row; averages are multiplied by 1000."""
    whole = [
        [None if each is None else int(1000 * each) if isinstance(each, float) else each for each in column.to_pylist()]
        for column in columns
    ]
    return binary(pack(row) for row in zip(*whole, strict=True))


def spec(calls: Sequence[OverCall], of: Input, *, ttl_ms: int | None = None, refreshes: bool = False) -> OverSpec:
    """Return the spec of these calls over these rows."""
    return OverSpec(tuple(calls), arguments, packed, values, ttl_ms, of.by_seq, refreshes=refreshes)


def over(rows: Iterable[Arrived], calls: Sequence[OverCall]) -> Counter[Row]:
    """Return each row with the results of the calls (definition)."""
    parts: dict[Any, list[Row]] = {}
    for _, row in sorted(rows, key=lambda each: (position(each[1]), each[0])):
        parts.setdefault(row[1], []).append(row)
    return Counter(
        (*row, *(_value(each, part, at) for each in calls)) for part in parts.values() for at, row in enumerate(part)
    )


def _value(of: OverCall, part: list[Row], at: int) -> int | None:
    if of.function in NUMBERINGS:
        return NUMBERINGS[of.function](part, at, of.nth)
    rows = list(_frame(of, part, at))
    present = [row[2] for row in rows if row[2] is not None]
    if of.function in AGGREGATES:
        return _aggregate(of.function, present)
    missing = part[at][0] if of.default else None
    found = present if of.skips else [row[2] for row in rows]
    if of.skips and of.function == "lag":
        before = [row[2] for row in part[:at] if row[2] is not None]
        return before[-of.nth] if len(before) >= of.nth else missing
    place = {"first_value": of.nth - 1, "nth_value": of.nth - 1, "last_value": len(found) - 1}.get(of.function, 0)
    return found[place] if 0 <= place < len(found) else missing


def _frame(of: OverCall, part: list[Row], at: int) -> Iterator[Row]:
    start, end = of.frame.start, of.frame.end
    for number, row in enumerate(part):
        distance = number - at if of.frame.kind == "rows" else position(row) - position(part[at])
        if (start is None or distance >= start) and (end is None or distance <= end):
            yield row


def _aggregate(function: OverFunction, present: list[int]) -> int | None:
    if function == "count":
        return len(present)
    if not present:
        return None
    if function == "avg":
        return int(1000 * (sum(present) / len(present)))
    return {"sum": sum, "min": min, "max": max}[function](present)


def _before(part: list[Row], at: int) -> list[int]:
    """Return the positions of the rows that sort before a row."""
    return [position(row) for row in part if position(row) < position(part[at])]


def _tile(part: list[Row], at: int, tiles: int) -> int:
    least, more = divmod(len(part), tiles)
    return [number for number in range(tiles) for _ in range(least + (number < more))][at] + 1


NUMBERINGS: Mapping[str, Callable[[list[Row], int, int], int]] = {
    "row_number": lambda _, at, __: at + 1,
    "rank": lambda part, at, _: len(_before(part, at)) + 1,
    "dense_rank": lambda part, at, _: len(set(_before(part, at))) + 1,
    "percent_rank": lambda part, at, _: int(1000 * (len(_before(part, at)) / max(1, len(part) - 1))),
    "cume_dist": lambda part, at, _: int(1000 * (sum(position(row) <= position(part[at]) for row in part) / len(part))),
    "ntile": _tile,
}
"""Functions that number a row by its place in the partition; the last argument is that of NTILE."""
