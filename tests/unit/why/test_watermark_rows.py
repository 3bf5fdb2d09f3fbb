"""The rows that are kept for the watermark move it as all rows do, and are few."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from rowkind.avro import codec
from rowkind.avro.schema import Record
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import Rows
from rowkind.service.execute.watermarks import marks_of
from rowkind.service.physical.source_table import SourceTable, Watermark
from rowkind.service.why import watermark_rows
from rowkind.service.why.atoms import column_of
from rowkind.service.why.sources import SourceChanges
from rowkind.service.why.watermark_rows import WatermarkRows, slot_ms
from tests.seeds import drawn, seeds

RECORD = Record.of({"id": "BIGINT NOT NULL", "at": "TIMESTAMP"})
AT = column_of("at", RECORD.type("at"))
WATERMARK = Watermark(AT, AT, 5_000, 60_000)
SOURCE = SourceTable("t", "t", "retract", RECORD, (), watermark=WATERMARK)


def some(dice: random.Random, count: int, first: int) -> SourceChanges:
    """Return changes in three partitions. Their times are about the record's, and sometimes NULL."""
    times = np.arange(first, first + count) * 3
    at = pa.array([None if dice.random() < 0.1 else 1_000 * (int(each) + dice.randrange(-90, 9)) for each in times])
    columns = {"id": pa.array(range(first, first + count)), "at": at.cast(RECORD.type("at").arrow)}
    kinds = np.array([dice.choice([0, 0, 1, 2, 3]) for _ in times], np.int8)
    seq = ArrivalNumber.pack(np.arange(first, first + count), np.array([dice.randrange(3) for _ in times], np.int64))
    return SourceChanges(SOURCE, Rows(kinds, seq, codec.encode(RECORD, columns, count)), times, {}, count)


def until(changes: SourceChanges, time: int) -> dict[int, int]:
    """Return the mark of each partition after the insertions with record times before a time."""
    mask: npt.NDArray[np.bool_] = (changes.times < time) & np.isin(changes.rows.kind, (0, 2))
    return dict(marks_of(WATERMARK, RECORD, changes.rows.filter(mask)))


def test_the_marks_at_the_end_of_each_slot_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows may be added in any number of chunks. No slot has more than one row of a partition."""
    monkeypatch.setattr(watermark_rows, "_MOST_WAITING", 50)
    for dice in drawn("marks", seeds(20)):
        slot, chunks, first = dice.choice([1, 7, 100]), [], 0
        for _ in range(dice.randrange(1, 8)):
            chunks.append(some(dice, dice.randrange(0, 200), first))
            first += len(chunks[-1].rows)
        kept = WatermarkRows(some(dice, 0, 0), WATERMARK, slot)
        for chunk in chunks:
            kept.add(chunk)
        found = kept.found
        whole = Rows.concat([each.rows for each in chunks])
        given = SourceChanges(SOURCE, whole, np.concatenate([each.times for each in chunks]), {}, len(whole))
        for end in range(0, first * 3 + slot, slot):
            assert until(found, end) == until(given, end)
        places = list(
            zip(ArrivalNumber.partitions(found.rows.seq).tolist(), (found.times // slot).tolist(), strict=True)
        )
        assert len(places) == len(set(places))


def test_a_slot_is_shorter_than_the_time_of_an_idle_partition() -> None:
    """A long history has slots of a quarter of that time; a short one has 2,000 slots, of at least one millisecond."""
    assert [slot_ms(WATERMARK, 0, last) for last in (10, 8_000_000, 10**12)] == [1, 4_000, 15_000]
