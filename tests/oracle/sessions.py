"""What sessions are tested with: inputs whose rows have times close to each other, and the definition.

Rows are (id, partition, value), and `time` says when a row was; with its window it is (id, partition, value, start), or
(id, partition, value, start, end).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from rowkind.operators.columns.changes import Int64s, binary
from rowkind.operators.time.session import SessionSpec
from tests.changelogs import Row, pack, unpack
from tests.oracle.inputs import Input


def time(row: Row) -> int:
    """When a row was: before the epoch or after it, and so that values share times."""
    return 7 * (row[2] or 0) + 3 * (row[0] or 0) - 11


def times(payloads: pa.BinaryArray) -> Int64s:
    """The times of packed rows."""
    return np.array([time(unpack(payload)) for payload in payloads.to_pylist()], np.int64)


def started(payloads: pa.BinaryArray, *windows: Int64s) -> pa.BinaryArray:
    """Packed rows with their starts, and their ends, as last columns."""
    columns = (column.tolist() for column in windows)
    return binary(payload + pack(window) for payload, *window in zip(payloads.to_pylist(), *columns, strict=True))


def spec(
    gap: int,
    of: Input,
    *,
    ttl_ms: int | None = None,
    closes: bool = False,
    refreshes: bool = False,
    ends: bool = False,
) -> SessionSpec:
    """Sessions of these rows, which a watermark in the unit of their times may close."""
    until = functools.partial(_until, gap) if closes else None
    return SessionSpec(
        gap,
        times,
        started,
        ttl_ms,
        of.by_seq,
        until=until,
        open=None if until is None else gap,
        ticks=1,
        refreshes=refreshes,
        ends=ends,
    )


def _until(gap: int, payloads: pa.BinaryArray) -> Int64s:
    return times(payloads) + 2 * gap + 1


def in_sessions(rows: Iterable[Row], gap: int, *, ends: bool = False) -> Counter[Row]:
    """The definition: a row with the time of the first of those of which none comes more than a gap after another.

    With `ends` also with that of the last of them, and a gap.
    """
    found: Counter[Row] = Counter()
    last: dict[int | None, tuple[int, int]] = {}
    for row in sorted(rows, key=time):
        before, start = last.get(row[1], (None, None))
        start = time(row) if before is None or start is None or time(row) - before > gap else start
        last[row[1]] = time(row), start
        found[*row, start] += 1
    if not ends:
        return found
    lasts: dict[tuple[int | None, int | None], int] = {}
    for row in sorted(found, key=time):
        lasts[row[1], row[3]] = time(row)
    return Counter({(*row, lasts[row[1], row[3]] + gap): count for row, count in found.items()})
