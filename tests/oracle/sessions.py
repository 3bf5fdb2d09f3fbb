"""Test support for sessions: inputs whose rows have times close to each other, and the definition.

Rows are (id, partition, value), and `time` computes the time of a row. With its window a row is (id, partition, value,
start) or (id, partition, value, start, end).
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
    """Return the time of a row: before or after the epoch, with times shared by different rows."""
    return 7 * (row[2] or 0) + 3 * (row[0] or 0) - 11


def times(payloads: pa.BinaryArray) -> Int64s:
    """Return the times of packed rows."""
    return np.array([time(unpack(payload)) for payload in payloads.to_pylist()], np.int64)


def started(payloads: pa.BinaryArray, *windows: Int64s) -> pa.BinaryArray:
    """Append to packed rows their window starts and, if given, ends as last columns."""
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
    """Return sessions of these rows; a watermark in the unit of their times may close them."""
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
    """Return each row with the start of its session: within a session, times are at most one gap apart (definition).

    With `ends`, also return the session's last time plus the gap.
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
