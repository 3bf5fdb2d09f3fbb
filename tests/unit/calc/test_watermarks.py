"""Watermarks case by case: marks of partitions, idleness, persistence, and the times of rows."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from rowkind.avro.codec import encode
from rowkind.avro.schema import Record
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.block import Block
from rowkind.operators.columns.changes import Rows
from rowkind.operators.columns.rowtime import BEGINNING, END
from rowkind.service.execute.column_times import in_ms
from rowkind.service.execute.watermarks import NO_TABLE, Watermarks, marks_of, passing
from rowkind.service.job.table import WatermarkSettings
from rowkind.service.physical.clocks import Clock
from rowkind.service.physical.source_table import Watermark
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.watermarks import watermark

ORDERS, BOTH = Clock((("orders", 30),)), Clock((("orders", 30), ("payments", 10)))
DECLARED = Record.of({"id": "BIGINT NOT NULL", "placed": "TIMESTAMP", "slow": "BOOLEAN", "n": "INT"})


def test_the_slowest_partition_holds_the_watermark_back() -> None:
    """The watermark is the least mark of all partitions, and it never goes back."""
    known = Watermarks().moved([{"orders": {0: 100, 1: 50}}], 0, [ORDERS])
    assert known.at(ORDERS) == 50
    known = known.moved([{"orders": {1: 70}}, {"orders": {1: 80}}], 1, [ORDERS])
    assert known.at(ORDERS) == 80
    known = known.moved([{"orders": {0: 20}}], 2, [ORDERS])
    assert known.at(ORDERS) == 80


def test_a_partition_that_was_never_seen_holds_it_back_until_it_is_idle() -> None:
    """An unseen partition blocks the watermark until its idle timeout; then the other partitions determine it."""
    known = Watermarks().moved([{"orders": {0: 100, 1: None}}], 1000, [ORDERS])
    assert known.at(ORDERS) == BEGINNING
    assert known.due_ms(ORDERS, 200) == 1030
    known = known.moved([{"orders": {0: 110}}], 1029, [ORDERS])
    assert known.at(ORDERS) == BEGINNING
    known = known.moved([], 1030, [ORDERS])
    assert known.at(ORDERS) == 110
    assert known.due_ms(ORDERS, 200) == math.inf


def test_a_partition_that_wakes_up_holds_back_what_has_not_passed() -> None:
    """If an idle partition resumes with older rows, the watermark does not move until that partition has caught up."""
    known = Watermarks().moved([{"orders": {0: 100, 1: 50}}], 0, [ORDERS])
    known = known.moved([{"orders": {0: 200}}], 40, [ORDERS])
    assert known.at(ORDERS) == 200
    known = known.moved([{"orders": {0: 300, 1: 60}}], 50, [ORDERS])
    assert known.at(ORDERS) == 200
    known = known.moved([{"orders": {1: 250}}], 60, [ORDERS])
    assert known.at(ORDERS) == 250


def test_where_all_are_idle_all_that_was_seen_counts() -> None:
    """If all partitions are idle, the watermark is the greatest mark of all."""
    known = Watermarks().moved([{"orders": {0: 100, 1: 50}}], 0, [ORDERS])
    assert known.moved([], 30, [ORDERS]).at(ORDERS) == 100


def test_the_slower_of_two_tables_holds_both_back() -> None:
    """A clock over two tables follows the slower one; a table without marks blocks it, an idle table does not."""
    known = Watermarks().moved([{"orders": {0: 100}}], 0, [BOTH, ORDERS])
    assert known.at(BOTH) == BEGINNING
    assert known.at(ORDERS) == 100
    known = known.moved([{"payments": {0: 40}}], 1, [BOTH, ORDERS])
    assert known.at(BOTH) == 40
    assert known.moved([{"orders": {0: 120}}], 20, [BOTH, ORDERS]).at(BOTH) == 120


def test_the_clock_is_the_time_of_the_batch() -> None:
    """A clock without tables is the time of the batch; before the first batch it is before all times."""
    before = Watermarks()
    after = before.moved([], 77, [Clock()])
    assert passing(before, after, Clock()) == passing(before, after, Clock())
    assert (passing(before, after, Clock()).before, passing(before, after, Clock()).after) == (BEGINNING, 77)


def test_the_time_of_processing_ends_with_the_input() -> None:
    """Processing time is the batch's time until the input ends, and then the end of time; NOW() keeps the former."""
    known = Watermarks().moved([], 77, [Clock(processing=True)])
    assert known.at(Clock(processing=True)) == 77
    known = known.moved([{NO_TABLE: {0: END}}], 78, [Clock(processing=True)])
    assert (known.at(Clock(processing=True)), known.at(Clock())) == (END, 78)


def test_what_is_known_is_kept() -> None:
    """Watermarks and the marks of a block survive being serialized and read again."""
    known = Watermarks().moved([{"orders": {0: 100, 1: None}, "payments": {3: 5}}], 9, [BOTH])
    assert Watermarks.from_blob(known.to_blob()) == known
    assert Watermarks.from_blob(None) == Watermarks()
    marks = {"orders": {0: 100, 1: None}}
    assert Block.from_bytes(Block(marks=marks).to_bytes()).marks == marks


def test_who_waits_is_called_when_there_is_something_to_do() -> None:
    """A timer is due at its time for a clock; for a watermark, when it can move by idleness or has passed."""
    known = Watermarks().moved([{"orders": {0: 100, 1: 50}}], 7, [ORDERS, Clock()])
    assert known.due_ms(Clock(), 99) == 99
    assert known.due_ms(Clock(), None) == known.due_ms(ORDERS, None) == math.inf
    assert known.due_ms(ORDERS, 60) == 37
    assert known.due_ms(ORDERS, 50) == 7


def test_each_table_has_gauges_of_its_own() -> None:
    """Each table has its own gauges, even if every clock that uses the table uses another table too."""
    known = Watermarks().moved([{"orders": {0: 1500}, "payments": {0: 500}}], 4000, [BOTH])
    found = {name.partition('table="')[2].strip('"}'): [] for name in known.gauges(4000)}
    for name, value in known.gauges(4000).items():
        found[name.partition('table="')[2].strip('"}')].append(value)
    assert found == {"orders": [1.5, 2.5], "payments": [0.5, 3.5]}


def test_gauges_leave_out_what_is_not_known() -> None:
    """A table without a watermark or with an ended input has no gauges."""
    known = Watermarks().moved([{"orders": {0: 1500}}], 4000, [BOTH, ORDERS])
    assert list(known.gauges(4000).values()) == [1.5, 2.5]
    assert known.moved([{"orders": {0: END}}], 5000, [ORDERS]).gauges(5000) == {}


def ms(text: str) -> int:
    """Return a time in UTC in ms."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def rows(*placed: str | None, partitions: tuple[int, ...], slow: bool | None = None) -> Rows:
    """Return rows of the table with these times, in these partitions."""
    times = [None if each is None else datetime.fromisoformat(each).replace(tzinfo=UTC) for each in placed]
    count = len(times)
    payload = encode(
        DECLARED,
        {
            "id": pa.array(range(count), pa.int64()),
            "placed": pa.array(times, pa.timestamp("us", "UTC")),
            "slow": pa.array([slow] * count, pa.bool_()),
            "n": pa.nulls(count, pa.int32()),
        },
        count,
    )
    seq = ArrivalNumber.pack(np.arange(count), np.array(partitions, np.int64))
    return Rows(np.zeros(count, np.int8), seq, payload)


def said(**how: object) -> Watermark:
    """Return the watermark of a declaration."""
    return watermark("orders", WatermarkSettings.model_validate(how), DECLARED)


def test_the_mark_of_a_partition_is_its_highest_time_less_the_delay() -> None:
    """The mark is the highest time less the delay, rounded down to ms; NULLs do not count."""
    of = rows("2026-01-01T00:00:10", "2026-01-01T00:00:09.9996", None, "2026-01-01T00:00:07", partitions=(0, 1, 0, 1))
    assert marks_of(said(column="placed", delay="2s"), DECLARED, of) == {
        0: ms("2026-01-01T00:00:08"),
        1: ms("2026-01-01T00:00:07.999"),
    }
    assert marks_of(said(column="PLACED"), DECLARED, rows(None, partitions=(4,))) == {}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"column": "placed - INTERVAL '5' SECOND"}, "2026-01-01T00:00:05"),
        ({"column": "placed", "delay": "INTERVAL '3' SECOND"}, "2026-01-01T00:00:07"),
        (
            {"column": "placed", "delay": "CASE WHEN slow THEN INTERVAL '1' HOUR ELSE INTERVAL '1' SECOND END"},
            "2025-12-31T23:00:10",
        ),
    ],
)
def test_time_and_delay_may_be_expressions(how: dict[str, object], expected: str) -> None:
    """The time and the delay can be expressions over any columns of the row."""
    of = rows("2026-01-01T00:00:10", partitions=(0,), slow=True)
    assert marks_of(said(**how), DECLARED, of) == {0: ms(expected)}


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"column": "plced"}, "orders has no column plced; did you mean placed"),
        ({"column": "n"}, "a watermark needs a TIMESTAMP, but n has type INT"),
        (
            {"column": "id"},
            "a watermark needs a TIMESTAMP, but id has type BIGINT: write TIMESTAMP_MILLIS\\(id\\), or use TIMESTAMP",
        ),
        ({"column": "placed -"}, "write a column, or an expression over the columns of the table"),
        ({"column": "placed", "delay": "n"}, "the delay must be a length of time such as 5s, an INTERVAL, or a CASE"),
        ({"column": "placed", "delay": "CASE WHEN slow THEN n END"}, "a CASE of INTERVALs, not "),
        ({"column": "placed", "delay": "INTERVAL '-1' SECOND"}, "the delay cannot be negative, because rows in"),
    ],
)
def test_what_is_no_time_is_refused(how: dict[str, object], message: str) -> None:
    """A column or delay that cannot be a time is refused by name."""
    with pytest.raises(Refusal, match=message):
        said(**how)


def test_times_are_rounded_up_to_the_ms_from_which_on_they_have_passed() -> None:
    """Times are rounded up to ms, so that no timer fires early."""
    times = pa.array([1_000, 1_001, None, -1], pa.timestamp("us", "UTC"))
    assert in_ms(times).tolist() == [1, 2, END, 0]
    assert in_ms(times, 1).tolist() == [2, 2, END, 0]
    assert in_ms(pa.array([1], pa.date32())).tolist() == [86_400_000]
