"""A topic that gains partitions: of the changes of a key in several partitions, the one with the latest time counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.why.sources import SourceChanges

RECORD = Record.of({"id": "BIGINT NOT NULL", "name": "STRING"})
Written = tuple[int, int, int, str, int, str]
"""A record: its partition, offset and time in ms, and its row kind, id and name."""

OLD: Sequence[Written] = (
    (0, 100, 1_000, "+I", 1, "one"),
    (0, 101, 1_000, "+I", 2, "two"),
    (0, 102, 1_001, "+I", 3, "three"),
)
MOVED: Sequence[Written] = (
    (1, 0, 5_000, "-U", 1, "one"),
    (1, 1, 5_000, "+U", 1, "uno"),
    (1, 2, 5_001, "-D", 2, "two"),
)
"""After the topic has gained a partition, the keys 1 and 2 belong to it. Its offsets are less than the old ones."""


def found(source: SourceTable, *parts: Sequence[Written]) -> SourceChanges:
    """Return the changes of records, in the order in which the partitions are read."""
    partitions, offsets, times, kinds, ids, names = zip(*(each for part in parts for each in part), strict=True)
    payload = codec.encode(RECORD, {"id": pa.array(ids), "name": pa.array(names)}, len(ids))
    seq = ArrivalNumber.pack(np.array(offsets), np.array(partitions))
    rows = Rows(np.array([SYMBOLS.index(each) for each in kinds], np.int8), seq, payload)
    return SourceChanges(source, rows, np.array(times), {}, len(ids))


@pytest.mark.parametrize("mode", ["retract", "upsert"])
@pytest.mark.parametrize("new_first", [True, False])
def test_the_latest_change_of_a_key_counts(mode: str, *, new_first: bool) -> None:
    """It counts in whatever order the partitions are read, and after two reads have been merged."""
    source = SourceTable("t", "t", mode, RECORD, ("id",))  # type: ignore[arg-type] # a literal
    parts = [MOVED, OLD] if new_first else [OLD, MOVED]
    changes, both = found(source, *parts), found(source, parts[0]).merged(found(source, parts[1]))
    for each in (changes, both):
        rows = decode(RECORD, each.live().rows.payload)
        assert sorted((row["id"], row["name"]) for row in rows) == [(1, "uno"), (3, "three")]


def test_a_partition_keeps_its_order_if_times_go_back() -> None:
    """Within a partition, the offset decides, even if a producer's clock was set back."""
    back: Sequence[Written] = ((0, 0, 9_000, "+I", 1, "one"), (0, 1, 1_000, "+U", 1, "uno"))
    changes = found(SourceTable("t", "t", "upsert", RECORD, ("id",)), back)
    assert [row["name"] for row in decode(RECORD, changes.live().rows.payload)] == ["uno"]
    assert changes.arrival_times.tolist() == [9_000, 9_000]
    assert replace(changes, times=np.full(2, -1)).live().rows.seq.tolist() == [1 << 16]
