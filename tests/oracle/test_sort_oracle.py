"""ORDER BY a time against its definition: rows are emitted in order, each once the watermark has passed its time.

The model keeps the marks of each table. A row is late if the watermark before its batch has passed its time. All other
rows wait and are emitted in order of time, the further sort columns, and arrival. This is one order over all batches.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rowkind.avro.json_rows import decode
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.passes import delay_until_final
from tests.clocked import Clocked, Line, job_of
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
DELAY = timedelta(seconds=4)
COLUMNS = "{id: BIGINT NOT NULL, k: BIGINT, ts: TIMESTAMP NOT NULL}"

Row = tuple[int, int | None, datetime]


def running(folder: Path, sql: str, sink: str = "mode: append") -> Clocked:
    """Return the query with watermarks on all tables; rows of `c` may be retracted."""
    tables = "\n".join(
        f"  {name}: {{mode: {mode}, primary_key: [id], columns: {columns}, watermark: {{column: ts, delay: 4s}}}}"
        for name, mode, columns in (
            ("a", "append", COLUMNS),
            ("b", "append", COLUMNS),
            ("c", "retract", COLUMNS),
            ("d", "append", COLUMNS.replace("TIMESTAMP NOT NULL", "TIMESTAMP")),
        )
    )
    return Clocked.of(
        job_of(folder, f"job: j\ntables:\n{tables}\nsinks:\n  result: {{{sink}, sql: {json.dumps(sql)}}}\n")
    )


def shown(query: Clocked, lines: Sequence[Line], *, ended: bool = False) -> list[tuple[Any, ...]]:
    """Return the rows that a batch emits, in their order."""
    changes = query.engine.batch(query.rows(*lines), 0, ended=ended)[query.sink.name]
    assert (changes.weight > 0).all()
    return [tuple(row.values()) for row in decode(query.sink.value, changes.payload)]


@dataclass
class Waiting:
    """The accepted rows that have not been emitted, with their arrival numbers, and the marks of the tables."""

    tables: str
    marks: dict[str, datetime] = field(default_factory=dict)
    rows: list[tuple[int, Row]] = field(default_factory=list)
    came: int = 0

    @property
    def watermark(self) -> datetime:
        """Return the watermark over all tables."""
        return min(self.marks.get(name, datetime.min.replace(tzinfo=UTC)) for name in self.tables)

    def batch(self, given: Sequence[tuple[str, Row]]) -> list[int]:
        """Return the ids of the rows that this batch emits, in order."""
        before = self.watermark
        for _, row in given:
            self.came += 1
            if _passed(row[2]) > before:
                self.rows.append((self.came, row))
        for table, row in given:
            mark = row[2] - DELAY
            mark -= timedelta(microseconds=mark.microsecond % 1000)
            self.marks[table] = max(self.marks.get(table, mark), mark)
        return self.due(self.watermark)

    def due(self, now: datetime | None) -> list[int]:
        """Remove and return the ids of the rows whose time has passed; None for `now` means all rows."""
        due = [(seq, row) for seq, row in self.rows if now is None or _passed(row[2]) <= now]
        self.rows = [each for each in self.rows if each not in due]
        # With DESC, NULLs sort last.
        due.sort(key=lambda each: (each[1][2], each[1][1] is None, -(each[1][1] or 0), each[0]))
        return [row[0] for _, row in due]


def _passed(ts: datetime) -> datetime:
    """Return the first millisecond at which no row of this time can be on time."""
    after = ts + timedelta(microseconds=1)
    return after + timedelta(microseconds=-after.microsecond % 1000)


def random_rows(dice: random.Random, tables: str, count: int) -> list[tuple[str, Row]]:
    """Return rows out of order, many with equal times, some very late."""
    now, found = START, []
    for id_ in range(count):
        now += timedelta(seconds=dice.choice((0, 0, 1, 1, 3)))
        late = timedelta(seconds=dice.choice((0, 0, 1, 3, 5, 12)), microseconds=dice.choice((0, 0, 1, 999, 250_000)))
        found.append((dice.choice(tables), (id_, dice.choice((None, 1, 2)), now - late)))
    return found


def as_lines(rows: Sequence[tuple[str, Row]]) -> list[Line]:
    """Return the rows as lines of a file."""
    return [(table, "+I", {"id": id_, "k": k, "ts": ts.isoformat()}) for table, (id_, k, ts) in rows]


CASES = [
    ("a", "SELECT id FROM a ORDER BY ts, k DESC", "mode: append"),
    ("a", "SELECT id, k + 1 AS ts FROM a ORDER BY a.ts ASC, k DESC", "mode: append"),
    ("a", "SELECT id, ts AS t, k FROM a ORDER BY t, 3 DESC, PROCTIME(), id", "mode: retract"),
    ("a", "SELECT * FROM a ORDER BY ts + INTERVAL '1' HOUR, k DESC", "mode: upsert, key: [id]"),
    ("ab", "SELECT id, ts, k FROM a UNION ALL SELECT id, ts, k FROM b ORDER BY ts, k DESC", "mode: append"),
]


@pytest.mark.parametrize(("tables", "sql", "sink"), CASES)
def test_rows_come_in_the_order_of_their_time(tmp_path: Path, tables: str, sql: str, sink: str) -> None:
    """Every batch emits the rows that the watermark has passed, sorted, with restarts; the end emits the rest."""
    for dice in drawn(f"{sql}", seeds(5)):
        query, model, rest = running(tmp_path, sql, sink), Waiting(tables), random_rows(dice, tables, 60)
        while rest:
            size = dice.choice((1, 3, 8, 20))
            batch, rest = rest[:size], rest[size:]
            assert [row[0] for row in shown(query, as_lines(batch))] == model.batch(batch), batch
            query.restart()
        assert [row[0] for row in shown(query, [], ended=True)] == model.due(None)


def test_few_at_a_time_keep_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If more rows are due than one batch releases, the order is kept, and in the end all rows are emitted."""
    monkeypatch.setattr(delay_until_final, "AT_ONCE", 3)
    rows, model = random_rows(random.Random("few"), "a", 60), Waiting("a")
    model.batch(rows)
    model.rows = list(enumerate(row for _, row in rows))
    expected = model.due(None)
    later = ("a", (99, 0, START + timedelta(days=1)))
    for ends in (False, True):
        query = running(tmp_path, "SELECT id FROM a ORDER BY ts, k DESC")
        came = [batch := shown(query, as_lines(rows)), shown(query, [] if ends else as_lines([later]), ended=ends)]
        while batch and not ends:
            came.append(batch := shown(query, []))
            assert len(batch) < 10
        assert [row[0] for batch in came for row in batch] == expected


def test_windows_come_in_order_when_they_are_final(tmp_path: Path) -> None:
    """Final windows are emitted in sorted order, also over a table with retractions."""
    query = running(
        tmp_path,
        "SELECT window_end, k, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end, k ORDER BY n DESC, k".replace("BY n", "BY window_end, n"),
    )

    def at(second: int, id_: int, k: int, op: str = "+I") -> Line:
        return "c", op, {"id": id_, "k": k, "ts": (START + timedelta(seconds=second)).isoformat()}

    assert shown(query, [at(3, 1, 1), at(2, 2, 2), at(12, 3, 5), at(1, 4, 2)]) == []
    assert shown(query, [at(2, 2, 2, "-D"), at(4, 5, 1), at(13, 6, 4)]) == []
    assert [row[1:] for row in shown(query, [at(40, 7, 9)])] == [(1, 2), (2, 1), (4, 1), (5, 1)]
    assert [row[1:] for row in shown(query, [], ended=True)] == [(9, 1)]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_equal_rows_of_one_time_come_by_their_arrival(tmp_path: Path, size: int) -> None:
    """Equal rows with one time are ordered by arrival, even if they are made of different rows of one batch."""
    on = "b.ts BETWEEN a.ts AND a.ts"
    query = running(tmp_path, f"SELECT * FROM (SELECT a.ts, b.k FROM c AS a JOIN c AS b ON {on}) AS r ORDER BY ts")
    lines: list[Line] = [
        ("c", "+I", {"id": id_, "k": k, "ts": START.isoformat()}) for id_, k in enumerate((3, 2, 3, 1))
    ]
    for first in range(0, len(lines), size):
        assert shown(query, lines[first : first + size]) == []
    came = [k for _, k in shown(query, [], ended=True)]
    assert came == [3, *(2, 2, 3), *(2, 3, 3, 3, 3), *(1, 1, 1, 1, 2, 3, 3)]


@pytest.mark.parametrize(
    ("sql", "sink", "reason"),
    [
        ("SELECT id FROM a ORDER BY k", "mode: append", "start ORDER BY with the time of a table"),
        ("SELECT id FROM a ORDER BY k, ts", "mode: append", "start ORDER BY with the time of a table"),
        ("SELECT id FROM a ORDER BY ts DESC", "mode: append", "start ORDER BY with the time of a table"),
        ("SELECT id FROM a ORDER BY PROCTIME() DESC", "mode: append", "start ORDER BY with the time of a table"),
        ("SELECT id FROM c ORDER BY PROCTIME()", "mode: retract", "rows of this result change"),
        ("SELECT id FROM a ORDER BY ts, PROCTIME() DESC", "mode: append", "remove PROCTIME() DESC"),
        ("SELECT id FROM c ORDER BY ts", "mode: retract", "rows of this result change"),
        ("SELECT id, COUNT(*) AS n FROM a GROUP BY id ORDER BY n", "mode: retract", "rows of this result change"),
        ("SELECT MAX(ts) AS m FROM a GROUP BY id ORDER BY m", "mode: retract, emit: final", "start ORDER BY with"),
        ("SELECT DISTINCT k FROM a ORDER BY ts", "mode: append", "ORDER BY can use only columns of the result here"),
        ("SELECT id FROM a ORDER BY 2", "mode: append", "there is no column 2"),
        ("SELECT id FROM a ORDER BY NULLIF(ts, ts)", "mode: append", "start ORDER BY with the time of a table"),
        ("SELECT id FROM d ORDER BY ts", "mode: append", "this time may be NULL"),
        ("SELECT k, ts FROM a ORDER BY ts", "mode: upsert, key: [k], on_conflict: last", "`on_conflict`"),
    ],
)
def test_other_orders_are_refused(tmp_path: Path, sql: str, sink: str, reason: str) -> None:
    """Other orders are refused; the message says why and how to fix it."""
    with pytest.raises(PlanError) as refused:
        running(tmp_path, sql, sink)
    assert reason in str(refused.value)


def test_rows_without_a_time_are_left_out(tmp_path: Path) -> None:
    """If a condition removes the rows without a time, ORDER BY that time is accepted."""
    query = running(tmp_path, "SELECT id FROM d WHERE ts IS NOT NULL ORDER BY ts")
    lines: list[Line] = [("d", "+I", {"id": 2, "k": 1, "ts": None}), ("d", "+I", {"id": 1, "k": 1, "ts": 1000})]
    assert shown(query, lines, ended=True) == [(1,)]


def test_the_first_rows_of_an_order_are_a_rank(tmp_path: Path) -> None:
    """With LIMIT the query is a rank: any order is accepted, and rows are emitted at once."""
    query = running(tmp_path, "SELECT id FROM a ORDER BY ts, k LIMIT 1", "mode: retract")
    assert shown(query, as_lines([("a", (1, 1, START))])) == [(1,)]
