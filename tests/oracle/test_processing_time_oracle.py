"""Windows of processing time, against their definition over the rows with the times of their batches.

Results are compared after every batch, with and without rows, at random steps of the clock. A batch has one time. A
window is over when the clock has reached its end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.clocked import Clocked, Shown, job_of
from tests.seeds import batches, seeds

START = 1_760_000_000_000
SECOND = 1_000
TABLES = """\
  a: {topic: a, mode: append, columns: {k: BIGINT, v: BIGINT NOT NULL}}
  b: {topic: b, mode: append, columns: {k: BIGINT, v: BIGINT NOT NULL}}
"""


@dataclass(frozen=True)
class Row:
    """A row and the time in ms at which it was processed."""

    k: int | None
    v: int
    at: int


Windows = Callable[[Sequence[Row]], Iterator[tuple[int, int, Row]]]
"""Rows with the start and the end in ms of each window that they are in."""


def hopping(slide: int, size: int) -> Windows:
    """Return windows of `size` seconds, every `slide` seconds; for tumbling windows both are equal."""

    def windows(rows: Sequence[Row]) -> Iterator[tuple[int, int, Row]]:
        for row in rows:
            last = row.at // (slide * SECOND) * slide * SECOND
            for start in range(last, row.at - size * SECOND, -slide * SECOND):
                yield start, start + size * SECOND, row

    return windows


def sessions(gap: int) -> Windows:
    """Return the sessions of each `k`."""

    def windows(rows: Sequence[Row]) -> Iterator[tuple[int, int, Row]]:
        found: dict[int | None, list[list[Row]]] = {}
        for row in sorted(rows, key=lambda each: each.at):
            own = found.setdefault(row.k, [[]])
            if own[-1] and row.at - own[-1][-1].at > gap * SECOND:
                own.append([])
            own[-1].append(row)
        for session in (each for own in found.values() for each in own):
            for row in session:
                yield session[0].at, session[-1].at + gap * SECOND, row

    return windows


def sums(windows: Windows, *, keyed: bool = True) -> Callable[[Sequence[Row], int | None], Counter[Any]]:
    """Return the rows (k, count, sum, end) of each group of a window; `now` leaves out windows that are not over."""

    def expected(rows: Sequence[Row], now: int | None) -> Counter[Any]:
        groups: dict[Any, list[Row]] = {}
        for _, end, row in windows(rows):
            if now is None or end <= now:
                groups.setdefault((row.k if keyed else None, end), []).append(row)
        return Counter(
            (*([k] if keyed else []), len(own), sum(row.v for row in own), moment(end))
            for (k, end), own in groups.items()
        )

    return expected


def moment(ms: int) -> datetime:
    """Return the time of this many ms."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def read(row: Shown) -> tuple[Any, ...]:
    """Return the values of a result row, with strings parsed as times."""
    return tuple(datetime.fromisoformat(value) if isinstance(value, str) else value for _, value in row)


SUMS = "COUNT(*) AS n, SUM(v) AS s, window_end AS e"
QUERIES: Mapping[str, tuple[str, Callable[[Sequence[Row], int | None], Counter[Any]]]] = {
    "tumble": (
        (
            f"SELECT k, {SUMS} FROM TABLE(TUMBLE(TABLE p, DESCRIPTOR(at), INTERVAL '10' SECOND)) "
            "GROUP BY k, window_start, window_end"
        ),
        sums(hopping(10, 10)),
    ),
    "tumble without a name": (
        (
            f"SELECT k, {SUMS} FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(PROCTIME()), INTERVAL '10' SECOND)) "
            "GROUP BY window_end, k, window_start"
        ),
        sums(hopping(10, 10)),
    ),
    "tumble of all": (
        "SELECT COUNT(*) AS n, SUM(v) AS s, window.end AS e FROM a GROUP BY window(PROCTIME(), '10 seconds')",
        sums(hopping(10, 10), keyed=False),
    ),
    "hop": (
        (
            f"SELECT k, {SUMS} FROM TABLE(HOP(TABLE p, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '20' SECOND)) "
            "GROUP BY k, window_start, window_end"
        ),
        sums(hopping(2, 20)),
    ),
    "hop of few": (
        (
            "SELECT k, COUNT(*) AS n, SUM(v) AS s, HOP_END(PROCTIME(), INTERVAL '5' SECOND, INTERVAL '10' SECOND) AS e "
            "FROM a GROUP BY k, HOP(PROCTIME(), INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
        ),
        sums(hopping(5, 10)),
    ),
    "session": (
        (
            f"SELECT k, {SUMS} FROM TABLE(SESSION(TABLE p PARTITION BY k, DESCRIPTOR(at), INTERVAL '5' SECOND)) "
            "GROUP BY k, window_start, window_end"
        ),
        sums(sessions(5)),
    ),
    "union": (
        (
            f"SELECT k, {SUMS} FROM TABLE(TUMBLE((SELECT *, PROCTIME() AS at FROM (SELECT * FROM a UNION ALL SELECT * "
            "FROM b)), DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY k, window_start, window_end"
        ),
        sums(hopping(10, 10)),
    ),
}


@pytest.mark.parametrize("final", [False, True], ids=["changes", "final"])
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("seed", seeds(2))
def test_windows_of_processing_time_are_those_of_the_batches(tmp_path: Path, name: str, final: bool, seed: int) -> None:
    """The folded result equals the definition; final rows are those of ended windows, at the end of input all."""
    sql, expected = QUERIES[name]
    sink = "mode: append" if final else "mode: retract, emit: changes"
    query = Clocked.of(
        job_of(
            tmp_path,
            f"job: t\nkafka: {{bootstrap.servers: nowhere}}\nregistry: {{folder: .}}\ntables:\n{TABLES}"
            "views: {p: 'SELECT *, PROCTIME() AS at FROM a'}\n"
            f"sinks:\n  result: {{topic: r, {sink}, sql: {sql!r}}}\n",
        )
    )
    chance = random.Random(f"{name} {final} {seed}")
    rows: list[Row] = []
    now = START + chance.randrange(10 * SECOND)
    for _ in range(batches(20)):
        now += chance.choice((0, 1, 500, 1_500, 4_000, 9_000, 60_000))
        come = [
            (
                chance.choice("ab" if name == "union" else "a"),
                Row(chance.choice((None, 1, 2)), chance.randrange(5), now),
            )
            for _ in range(chance.choice((0, 0, 1, 3, 8)))
        ]
        query.batch(now, *((table, "+I", {"k": row.k, "v": row.v}) for table, row in come))
        rows += [row for _, row in come]
        assert shown(query) == expected(rows, now if final else None), f"seed {seed}, at {now}"
    query.end(now)
    assert shown(query) == expected(rows, None), f"seed {seed}"


@pytest.mark.parametrize("seed", seeds(4))
def test_over_in_the_order_of_arrival_gives_each_row_once(tmp_path: Path, seed: int) -> None:
    """Each row has the sum of the last three rows of its key, and is emitted once the time of its batch is over."""
    sql = "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY PROCTIME() ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s"
    query = Clocked.of(
        job_of(
            tmp_path,
            f"job: t\nkafka: {{bootstrap.servers: nowhere}}\nregistry: {{folder: .}}\ntables:\n{TABLES}"
            f"sinks:\n  result: {{topic: r, mode: append, sql: '{sql} FROM a'}}\n",
        )
    )
    chance = random.Random(f"over {seed}")
    rows: list[Row] = []
    now = START
    for _ in range(batches(20)):
        now += chance.choice((0, 1, 500))
        # Every row has a different number: the order of equal rows that arrive together is not defined.
        come = [Row(chance.choice((None, 1, 2)), len(rows) + n, now) for n in range(chance.choice((0, 1, 3, 8)))]
        query.batch(now, *(("a", "+I", {"k": row.k, "v": row.v}) for row in come))
        rows += come
        assert shown(query) == _sums_of_three([row for row in rows if row.at < now]), f"seed {seed}, at {now}"
    query.end(now)
    assert shown(query) == _sums_of_three(rows), f"seed {seed}"


def shown(query: Clocked) -> Counter[tuple[Any, ...]]:
    """Return how often each row is in the folded result."""
    return Counter({read(row): count for row, count in query.view.items()})


def _sums_of_three(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (row.k, row.v, sum(each.v for each in [other for other in rows[: n + 1] if other.k == row.k][-3:]))
        for n, row in enumerate(rows)
    )


def test_a_row_has_the_time_of_its_batch(tmp_path: Path) -> None:
    """PROCTIME() works as a column and with NOW(), which removes old rows; the end of input removes no others."""
    query = Clocked.of(
        job_of(
            tmp_path,
            f"job: t\nkafka: {{bootstrap.servers: nowhere}}\nregistry: {{folder: .}}\ntables:\n{TABLES}"
            "views: {p: 'SELECT *, PROCTIME() AS at FROM a'}\n"
            'sinks:\n  result: {topic: r, mode: retract, sql: "SELECT v, at FROM p WHERE v > 1 AND '
            "at > NOW() - INTERVAL '10' SECOND\"}\n",
        )
    )
    query.batch(START, ("a", "+I", {"k": 1, "v": 1}), ("a", "+I", {"k": 1, "v": 2}))
    query.batch(START + 4_000, ("a", "+I", {"k": 1, "v": 3}))
    assert {read(row) for row in query.view} == {(2, moment(START)), (3, moment(START + 4_000))}
    query.batch(START + 10_000)
    assert {read(row) for row in query.view} == {(3, moment(START + 4_000))}
    query.end(START + 10_000)
    assert {read(row) for row in query.view} == {(3, moment(START + 4_000))}
