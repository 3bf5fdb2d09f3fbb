"""OVER and ranks by a time with final rows, against DuckDB over the rows that a model of time accepts.

In the model, a row is late if the watermark before its batch has passed its time; all other rows are accepted. The
result after a batch is the query over the accepted rows whose time the watermark has passed. If frames look ahead, the
watermark must have passed the time by that much more. An emitted row is never retracted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.passes import delay_until_final
from tests.answers import answer
from tests.clocked import Clocked, Line
from tests.oracle.cuts import as_lines, as_rows, cut, query_of
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
BEGINNING = datetime.min.replace(tzinfo=UTC)
DELAY = timedelta(seconds=4)
COLUMNS = "{id: BIGINT NOT NULL, k: BIGINT, v: BIGINT, ts: TIMESTAMP NOT NULL}"
BY = "PARTITION BY k ORDER BY ts"
LAST = "RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW"
BEFORE = "RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND INTERVAL '1' SECOND PRECEDING"
AROUND = "RANGE BETWEEN INTERVAL '1' SECOND PRECEDING AND INTERVAL '2' SECOND FOLLOWING"

FIRST = f"SELECT id FROM (SELECT *, ROW_NUMBER() OVER ({BY}) AS n FROM a) WHERE n = 1"
QUERIES: dict[str, tuple[int, str]] = {
    "running": (0, f"SELECT id, SUM(v) OVER ({BY}) AS s, COUNT(*) OVER ({BY}) AS n, MAX(v) OVER ({BY}) AS hi FROM a"),
    "rows": (
        0,
        f"SELECT id, ts, SUM(v) OVER ({BY}, id ROWS 2 PRECEDING) AS s, LAG(v) OVER ({BY}, id) AS before FROM a",
    ),
    "arrival": (0, f"SELECT id, SUM(v) OVER ({BY}{{arrival}} ROWS 2 PRECEDING) AS s FROM a"),
    "range": (
        0,
        f"SELECT id, COUNT(*) OVER ({BY} {LAST}) AS n, MIN(v) OVER ({BY} {BEFORE}) AS low FROM a",
    ),
    "ahead": (
        2,
        f"SELECT id, SUM(v) OVER ({BY} {AROUND}) AS s, COUNT(*) OVER ({BY}) AS n FROM a",
    ),
    "around": (2, f"SELECT id, SUM(v) OVER ({BY} {AROUND}) AS s, MAX(v) OVER ({BY} {LAST}) AS m FROM a"),
    "numbers": (0, f"SELECT id, ROW_NUMBER() OVER ({BY}, id) AS n, RANK() OVER ({BY}, id) AS r FROM a"),
    "first": (0, f"SELECT id, k, v FROM (SELECT *, ROW_NUMBER() OVER ({BY}{{arrival}}) AS n FROM a) WHERE n = 1"),
    "first three": (0, f"SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER ({BY}, v DESC, id) AS n FROM a) WHERE n <= 3"),
    "behind the first": (0, f"SELECT id FROM (SELECT *, ROW_NUMBER() OVER ({BY}, id) AS n FROM a) WHERE n > 2"),
    "first times": (0, f"SELECT id FROM (SELECT *, DENSE_RANK() OVER ({BY}) AS n FROM a) WHERE n BETWEEN 2 AND 3"),
    "first with ties": (0, f"SELECT id, n, v FROM (SELECT *, RANK() OVER ({BY}) AS n FROM a) WHERE n <= 2"),
    "first of all": (0, "SELECT id, v FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY ts, id) AS n FROM a) WHERE n <= 5"),
    "first by a value": (0, f"SELECT id FROM (SELECT *, ROW_NUMBER() OVER ({BY}, id) AS n FROM a) WHERE n <= v"),
    "over the first": (
        0,
        (
            "SELECT id, SUM(v) OVER (PARTITION BY k ORDER BY ts, id) AS s FROM "
            "(SELECT *, ROW_NUMBER() OVER (PARTITION BY v ORDER BY ts, id) AS n FROM a) WHERE n <= 2"
        ),
    ),
    "picks": (
        0,
        (
            f"SELECT id, FIRST_VALUE(v) OVER ({BY}, id) AS f, NTH_VALUE(v, 2) OVER ({BY}, id) AS n, "
            f"LAG(v, 3) OVER ({BY}, id) AS l FROM a"
        ),
    ),
    "back": (
        0,
        (
            f"SELECT id, SUM(v) OVER ({BY}, id ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS s, "
            f"MAX(v) OVER ({BY} RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL '3' SECOND PRECEDING) AS m FROM a"
        ),
    ),
    "passing over": (
        0,
        (
            f"SELECT id, LAG(v{{skip}}) {{skips}} OVER ({BY}, id) AS l, "
            f"LAST_VALUE(v{{skip}}) {{skips}} OVER ({BY}, id) AS x, "
            f"LAG(v, 3{{skip}}) {{skips}} OVER ({BY}, id) AS y FROM a"
        ),
    ),
    "rows and ahead": (
        2,
        f"SELECT id, SUM(v) OVER ({BY}, id ROWS 2 PRECEDING) AS s, MIN(v) OVER ({BY} {AROUND}) AS m FROM a",
    ),
    "of all": (0, "SELECT id, SUM(v) OVER (ORDER BY ts) AS s FROM a WHERE v > 1"),
    "twice": (
        0,
        f"SELECT id, s, SUM(s) OVER (PARTITION BY v ORDER BY ts) AS t FROM (SELECT *, SUM(v) OVER ({BY}) AS s FROM a)",
    ),
}
"""Queries, each with the seconds that it looks ahead."""

Row = tuple[int, int | None, int | None, datetime]


def running(
    folder: Path, sql: str, sink: str = "mode: append", *, mode: str = "append", mark: str = "", columns: str = COLUMNS
) -> Clocked:
    """Return the query, by default with an append sink."""
    table = f"mode: {mode}, columns: {columns}, {mark or 'watermark: {column: ts, delay: 4s}'}"
    return query_of(folder, sql, sink, {"a": table})


def changes_of(dice: random.Random, mode: str, count: int) -> list[tuple[int, Row]]:
    """Return changes out of order, many with equal times, some late; in mode retract about a third are retractions."""
    now, live, found = START, list[Row](), list[tuple[int, Row]]()
    for id_ in range(count):
        if mode == "retract" and live and dice.random() < 0.3:
            found.append((-1, live.pop(dice.randrange(len(live)))))
            continue
        now += timedelta(seconds=dice.choice((0, 0, 1, 2)))
        ts = now - timedelta(seconds=dice.choice((0, 0, 0, 1, 3, 8)), milliseconds=dice.choice((0, 0, 500)))
        row = id_, dice.choice((1, 1, 2, None)), dice.choice((*range(6), None)), ts
        live.append(row)
        found.append((1, row))
    return found


def lines(batch: Sequence[tuple[int, Row]]) -> list[Line]:
    """Return the changes as lines of a file."""
    return as_lines(("a", sign, row) for sign, row in batch)


def expected(sql: str, rows: list[tuple[int, Row]], until: datetime | None) -> Counter[tuple[Any, ...]]:
    """Return DuckDB's result for the rows whose time is before `until`; None means all rows."""
    there = "id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMPTZ, arrival BIGINT", [(*row, at) for at, row in rows]
    sql = sql.format(arrival=", arrival", skip=" IGNORE NULLS", skips="")
    shown = f"SELECT r.* FROM ({sql}) r JOIN a USING (id) WHERE a.ts < ?"
    return Counter(answer(shown, {"a": there}, until or datetime.max.replace(tzinfo=UTC)))


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("name", QUERIES)
def test_each_row_comes_once_when_the_watermark_has_passed_it(tmp_path: Path, name: str, mode: str) -> None:
    """A row's result is emitted once the watermark has passed it, and equals DuckDB's over rows that were not late."""
    ahead, sql = QUERIES[name]
    for dice in drawn(f"{name} {mode}", seeds(2)):
        query = running(tmp_path, sql.format(arrival="", skip="", skips="IGNORE NULLS"), mode=mode)
        there, arrival, mark = list[tuple[int, Row]](), 0, BEGINNING
        for batch in cut(dice, changes_of(dice, mode, 60), (1, 4, 9, 15)):
            before = query.view.copy()
            query.batch(0, *lines(batch))
            query.restart()
            late = mark
            for sign, row in batch:
                arrival += 1
                mark = max(mark, row[3] - DELAY)
                if row[3] < late:
                    continue
                if sign > 0:
                    there.append((arrival, row))
                else:
                    there = [each for each in there if each[1] != row]
            until = mark if mark == BEGINNING else mark - timedelta(seconds=ahead)
            assert as_rows(query) == expected(sql, there, until), batch
            assert not before - query.view
        query.end()
        assert as_rows(query) == expected(sql, there, None)


@pytest.mark.parametrize("name", ["running", "first times", "first by a value"])
def test_few_at_a_time_stay_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """If more rows are due than one batch releases, no row is emitted after a row that must follow it."""
    monkeypatch.setattr(delay_until_final, "AT_ONCE", 3)
    _, sql = QUERIES[name]
    query = running(tmp_path, sql)
    rows = [(sign, row) for sign, row in changes_of(random.Random("few"), "append", 60)]
    query.batch(0, *lines(rows))
    for _ in range(60):
        before = query.view.copy()
        query.end()
        assert not before - query.view
    assert as_rows(query) == expected(sql, list(enumerate(row for _, row in rows)), None)


ABOVE = {
    "windows": (
        f"SELECT window_end, COUNT(*) AS n, SUM(s) AS s FROM TABLE(TUMBLE((SELECT ts, SUM(v) OVER ({BY}, id) AS s "
        "FROM a), DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end"
    ),
    "windows of the first": (
        "SELECT window_end, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "
        "v ORDER BY ts, id) AS n FROM a) WHERE n <= 8), DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end"
    ),
    "over the first": QUERIES["over the first"][1],
    "twice": QUERIES["twice"][1],
}


@pytest.mark.parametrize("name", ABOVE)
def test_what_is_let_out_later_is_not_late_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The result is the same whether all due rows are released in one batch or over several batches."""
    changed = changes_of(random.Random(name), "append", 60)
    rows: list[Row] = [(*row[:3], START + timedelta(milliseconds=at)) for at, (_, row) in enumerate(changed)]

    def found() -> Counter[tuple[Any, ...]]:
        query = running(tmp_path, ABOVE[name])
        query.batch(0, *lines([(1, row) for row in rows]))
        query.batch(0, *lines([(1, (99, 1, 1, START + timedelta(days=1)))]))
        for _ in range(60):
            query.batch(0)
        query.end()
        return as_rows(query)

    at_once = found()
    monkeypatch.setattr(delay_until_final, "AT_ONCE", 3)
    assert found() == at_once


@pytest.mark.parametrize("name", QUERIES)
def test_the_tail_of_each_partition_is_kept(tmp_path: Path, name: str) -> None:
    """The state of OVER stays bounded however many rows a partition has had."""
    _, sql = QUERIES[name]
    query = running(tmp_path, sql.format(arrival="", skip="", skips="IGNORE NULLS"))
    sizes = []
    for start in range(0, 400, 20):
        rows: list[Row] = [(at, at % 3, at % 5, START + timedelta(seconds=at)) for at in range(start, start + 20)]
        query.batch(0, *lines([(1, row) for row in rows]))
        sizes.append(sum(size.rows for node, size in query.engine.state.items() if node.startswith("over_")))
    assert max(sizes) < 200, sizes


@pytest.mark.parametrize("name", ["range", "around"])
@pytest.mark.parametrize("ttl", ["", ", ttl: 1d"])
def test_a_partition_that_nothing_comes_to_is_let_go_of(tmp_path: Path, name: str, ttl: str) -> None:
    """With frames of a time range, state stays bounded however many partitions there have been."""
    query = running(tmp_path, QUERIES[name][1], mark=f"watermark: {{column: ts, delay: 4s}}{ttl}")
    sizes = []
    for start in range(0, 800, 40):
        rows: list[Row] = [(at, at // 5, at % 5, START + timedelta(seconds=at)) for at in range(start, start + 40)]
        query.batch(0, *lines([(1, row) for row in rows]))
        query.restart()
        sizes.append(sum(size.rows for node, size in query.engine.state.items() if node.startswith("over_")))
    assert max(sizes) < 200, sizes
    query.end()
    there = [(at, (at, at // 5, at % 5, START + timedelta(seconds=at))) for at in range(800)]
    assert as_rows(query) == expected(QUERIES[name][1], there, None)


def test_windows_above_are_final(tmp_path: Path) -> None:
    """The event time is preserved through OVER, even if its frame looks ahead."""
    for behind in ("CURRENT ROW", "INTERVAL '2' SECOND FOLLOWING"):
        sql = (
            "SELECT window_end, MAX(s) AS hi FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
            "GROUP BY window_start, window_end"
        )
        over = f"SELECT ts, SUM(v) OVER ({BY} RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND {behind}) AS s FROM a"
        query = running(tmp_path, f"WITH o AS ({over}) {sql}")
        rows: list[Row] = [(at, 1, 1, START + timedelta(seconds=at)) for at in range(30)]
        query.batch(0, *lines([(1, row) for row in rows]))
        first = START + timedelta(seconds=10)
        most = 6 if behind == "CURRENT ROW" else 8
        assert as_rows(query)[first, most] == 1
        query.end()
        assert sum(as_rows(query).values()) == 3


@pytest.mark.parametrize(
    ("sql", "sink", "mark", "reason"),
    [
        (f"SELECT id, LEAD(v) OVER ({BY}) AS x FROM a", "mode: append", "", "no watermark says"),
        (f"SELECT id, SUM(v) OVER ({BY} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS x FROM a", "mode: append", "",
         "no watermark says"),
        ("SELECT id, SUM(v) OVER (ORDER BY v) AS x FROM a", "mode: append", "", "start its ORDER BY with the time"),
        ("SELECT id, SUM(v) OVER (ORDER BY ts DESC) AS x FROM a", "mode: append", "", "start its ORDER BY with the"),
        (f"SELECT id, SUM(v) OVER ({BY}) AS x FROM a", "mode: append, emit: changes", "", "remove `emit: changes`"),
        (f"SELECT id, SUM(v) OVER ({BY}) AS x FROM a", "mode: append", "ttl: 1d", "add `watermark: ts` to table"),
        (FIRST, "mode: append", "ttl: 1d", "add `watermark: ts` to table"),
        (FIRST, "mode: append, emit: changes", "", "remove `emit: changes`"),
        (FIRST.replace("ORDER BY ts", "ORDER BY ts DESC"), "mode: append", "", "sink's `mode` to upsert or retract"),
        (f"SELECT id, SUM(v) OVER ({BY}) AS x FROM a", "mode: append",
         "watermark: {column: ts, delay: 4s, allowed_lateness: 1m}", "remove `allowed_lateness` from"),
        ("SELECT id, SUM(v) OVER (ORDER BY NULLIF(ts, ts)) AS x FROM a", "mode: append", "", "start its ORDER BY with"),
        ("SELECT id, SUM(v) OVER (ORDER BY LAST_DAY(ts)) AS x FROM a", "mode: append", "", "start its ORDER BY with"),
    ],
)  # fmt: skip
def test_others_are_refused(tmp_path: Path, sql: str, sink: str, mark: str, reason: str) -> None:
    """Other queries are refused; the message says why and how to fix it."""
    with pytest.raises(PlanError) as refused:
        running(tmp_path, sql, sink, mark=mark)
    assert reason in str(refused.value)


def test_rows_without_a_time_are_to_be_left_out(tmp_path: Path) -> None:
    """A time column that may be NULL is refused until WHERE removes the NULLs, because no watermark passes a NULL."""
    nullable, sql = (
        COLUMNS.replace("ts: TIMESTAMP NOT NULL", "ts: TIMESTAMP"),
        f"SELECT id, SUM(v) OVER ({BY}) AS s FROM a",
    )
    with pytest.raises(PlanError) as refused:
        running(tmp_path, sql, columns=nullable)
    assert "this time may be NULL" in str(refused.value)
    query = running(tmp_path, f"{sql} WHERE ts IS NOT NULL", columns=nullable)
    query.batch(0, *lines([(1, (1, 1, 2, START))]))
    query.end()
    assert as_rows(query) == {(1, 2): 1}
