"""The stamp operator: inserted rows get the time of their batch, and nothing is stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rowkind.operators.arrangement.arrangement import StateSize
from rowkind.operators.changelog import RowKind
from rowkind.operators.columns.batch import Batch
from rowkind.operators.columns.changes import Changes, Int64s, binary
from rowkind.operators.time.stamp import Stamp


def timed(payloads: pa.BinaryArray, times: Int64s) -> pa.BinaryArray:
    """Append the times in microseconds to the rows as text."""
    return binary(row + b"@%d" % time for row, time in zip(payloads.to_pylist(), times.tolist(), strict=True))


def changes(*kinds: RowKind) -> Changes:
    """Return one change of each kind, with the rows a, b and so on."""
    count = len(kinds)
    none = binary([b""] * count)
    rows = binary(bytes([97 + number]) for number in range(count))
    numbers = np.arange(count, dtype=np.int64)
    return Changes(
        np.zeros(count, np.int8), np.array(kinds, np.int8), np.zeros(count, np.uint64), none, none, numbers, rows
    )


def test_rows_get_the_time_of_their_batch() -> None:
    """Rows get the time of their batch in microseconds and keep their arrival numbers, without any state."""
    stamp = Stamp(timed)
    assert stamp.arrangements == {}
    found = stamp.process(Batch(changes(RowKind.INSERT, RowKind.INSERT)), {}, 1_760_000_000_001)
    assert found.rows.payload.to_pylist() == [b"a@1760000000001000", b"b@1760000000001000"]
    assert found.rows.kind.tolist() == [RowKind.INSERT, RowKind.INSERT]
    assert found.rows.seq.tolist() == [0, 1]
    assert found.state == StateSize()
    assert not len(found.unmatched)


def test_a_refresh_ends_here_and_a_retraction_is_unmatched() -> None:
    """A refresh is not passed on, because it does not have the row's time; a retraction is unmatched."""
    batch = Batch(changes(RowKind.DELETE, RowKind.INSERT), changes(RowKind.INSERT))
    found = Stamp(timed).process(batch, {}, 1)
    assert found.rows.payload.to_pylist() == [b"b@1000"]
    assert not len(found.emitted.refreshes)
    assert found.unmatched.payload.to_pylist() == [b"a"]
