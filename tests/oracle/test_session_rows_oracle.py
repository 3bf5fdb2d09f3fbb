"""Rows of sessions, and queries over them, against DuckDB over the sessions of a model of time.

The model is that of `test_time_oracle`: which rows are late, and which sessions have ended. The result is SQL over the
rows, each with the window of its session. With `emit: final` the result has the sessions that the watermark has passed.
If rows may be retracted and several sessions make one result, it is emitted one gap later, because a session that
becomes shorter ends up to one gap earlier.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.answers import answer
from tests.clocked import Clocked
from tests.oracle.cuts import Change, Row, agrees, as_json, as_lines, as_rows, cut
from tests.oracle.test_time_oracle import (
    BEGINNING,
    FULL,
    GAP,
    JOINED,
    LEFT,
    START,
    TOP,
    SessionModel,
    changes_of,
    running,
)
from tests.seeds import drawn, seeds

LATENESS = timedelta(seconds=20)
ALLOWED = "delay: 4s, allowed_lateness: 20s"
SESSION = "TABLE(SESSION(TABLE {0} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND)) AS {0}"

ROWS = "SELECT id, v, window_start, window_end FROM {a}"
SOME = "SELECT id, window_time AS window_last FROM {a} WHERE v > 2"
STARTS = "SELECT id, ts, window_start FROM {a}"
LAST = (
    "SELECT id, k, window_end FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, window_start, window_end "
    "ORDER BY ts DESC, id DESC) AS rn FROM {a}) WHERE rn = 1"
)
RANKED = (
    "SELECT id, window_start, window_end, rn FROM (SELECT *, RANK() OVER (PARTITION BY window_end ORDER BY v) AS rn "
    "FROM {a}) WHERE rn <= 2"
)
ENDS = "SELECT window_end, COUNT(*) AS n, MAX(v) AS m FROM {a} GROUP BY window_end"
NONE = (
    "SELECT a.id, a.window_end FROM {a} WHERE NOT EXISTS (SELECT 1 FROM {b} WHERE a.k = b.k "
    "AND a.window_end = b.window_end)"
)
CASES = {
    "rows": ROWS,
    "some rows": SOME,
    "top": TOP,
    "last": LAST,
    "ranked": RANKED,
    "ends": ENDS,
    "joined": JOINED,
    "left": LEFT,
    "full": FULL,
    "none": NONE,
}
PLAIN = ("rows", "some rows")


@dataclass(frozen=True)
class Model:
    """The sessions of both tables."""

    of: dict[str, SessionModel]

    def batch(self, changes: Sequence[Change]) -> None:
        """Apply a batch."""
        for sessions in self.of.values():
            sessions.batch(changes)

    def watermark(self, tables: Sequence[str]) -> datetime:
        """Return the watermark over these tables."""
        return min(self.of[name].watermark for name in tables)

    def query(self, sql: str, until: datetime | None = None) -> Counter[Row]:
        """Return the query's result over rows of sessions, optionally only those that end before `until`."""
        columns = (
            "id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMPTZ, window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, "
            "window_time TIMESTAMPTZ"
        )
        there = {
            name: (columns, [row for row in windows(model) if until is None or row[5] < until])
            for name, model in self.of.items()
        }
        return Counter(answer(sql, there))


def windows(model: SessionModel) -> list[Row]:
    """Return the rows of all sessions, each with its session's start, its end, and the end minus 1 ms."""
    found = []
    for session in (*model.ended, *model.open()):
        end = session[-1][3] + GAP
        found += [(*row, session[0][3], end, end - timedelta(milliseconds=1)) for row in session]
    return found


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("name", CASES)
def test_rows_of_sessions_are_sql_over_what_is_not_late(tmp_path: Path, name: str, mode: str, emit: str) -> None:
    """After every batch and at the end, with restarts, the result equals SQL over the rows that were not late."""
    for dice in drawn(f"{name} {mode} {emit}", seeds()):
        query = started(tmp_path, CASES[name], mode, f"mode: retract, emit: {emit}")
        model = Model({each: SessionModel(table=each) for each in "ab"})
        compare(query, model, name, dice, mode=mode, emit=emit)


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("name", ["rows", "top", "left"])
def test_rows_that_may_be_late_correct_sessions_that_have_ended(
    tmp_path: Path, name: str, mode: str, emit: str
) -> None:
    """Late rows within the allowed lateness correct ended sessions; with `emit: final` rows appear at the watermark."""
    for dice in drawn(f"late {name} {mode} {emit}", seeds()):
        query = started(tmp_path, CASES[name], mode, f"mode: retract, emit: {emit}", ALLOWED)
        model = Model({each: SessionModel(LATENESS, each) for each in "ab"})
        compare(query, model, name, dice, mode=mode, emit=emit)


@pytest.mark.parametrize("name", CASES)
def test_an_append_sink_takes_them(tmp_path: Path, name: str) -> None:
    """An append sink has each row once, and in the end the result over all sessions."""
    dice = random.Random(name)
    query = started(tmp_path, CASES[name], "append", "mode: append")
    model = Model({each: SessionModel(table=each) for each in "ab"})
    changes = changes_of(dice, "append", 60)
    query.batch(0, *as_lines(changes))
    model.batch(changes)
    query.end()
    assert as_rows(query) == model.query(CASES[name].format(a="a", b="b"))


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("name", CASES)
def test_state_stays_as_large_as_what_is_open(tmp_path: Path, name: str, emit: str) -> None:
    """As the watermark advances, as much state is evicted as is added."""
    query = started(tmp_path, CASES[name], "append", f"mode: retract, emit: {emit}")
    sizes = []
    for batch in range(90):
        times = [(k, START + timedelta(seconds=4 * batch + k / 10)) for k in range(4)]
        rows = [(8 * batch + 2 * k, k, (batch + k) % 7, ts) for k, ts in times]
        query.batch(0, *((table, "+I", as_json(row)) for row in rows for table in "ab"))
        sizes.append(sum(each.rows for each in query.engine.state.values()))
    assert max(sizes[60:]) <= max(sizes[30:60]), sizes


def test_starts_are_final_a_gap_after_their_rows(tmp_path: Path) -> None:
    """A row behind the watermark by less than the gap still starts the session of the row after it."""
    query = started(tmp_path, STARTS, "append", "mode: append")
    for id_, (seconds, count) in enumerate([(10, 0), (15.5, 0), (9, 0), (17.5, 2)]):
        query.batch(0, ("a", "+I", as_json((id_, 1, 0, START + timedelta(seconds=seconds)))))
        assert len(query.result) == count
    starts = {row["id"]: datetime.fromisoformat(row["window_start"]) for row in query.result}
    assert starts == dict.fromkeys((0, 2), START + timedelta(seconds=9))


TUMBLED = (
    "SELECT window_end, SUM(n) AS n FROM TABLE(TUMBLE((SELECT k, window_time AS rt, COUNT(*) AS n FROM "
    + SESSION.format("a")
    + " GROUP BY k, window_start, window_end, window_time), DESCRIPTOR(rt), INTERVAL '5' SECOND)) "
    "GROUP BY window_start, window_end"
)
BY_END = TUMBLED.replace("window_time", "window_end")


@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("of", ["window_time", "window_end"])
def test_windows_of_sessions_take_all_of_them_in(tmp_path: Path, of: str, mode: str) -> None:
    """Windows over sessions include every session, also one that a retraction has shortened and so ended earlier."""
    oracle = f"SELECT time_bucket(INTERVAL '5 seconds', {of}) + INTERVAL '5 seconds', COUNT(*) FROM a GROUP BY ALL"
    for dice in drawn(f"windows of sessions {of} {mode}", seeds(3)):
        query = running(tmp_path, mode, TUMBLED if of == "window_time" else BY_END, "mode: retract, emit: changes")
        model = Model({"a": SessionModel()})
        for batch in cut(dice, changes_of(dice, mode, 60)):
            given = [each for each in batch if each[0] == "a"]
            query.batch(0, *as_lines(given))
            model.batch(given)
            assert as_rows(query) == model.query(oracle), batch


def compare(query: Clocked, model: Model, name: str, dice: random.Random, *, mode: str, emit: str) -> None:
    """Compare the query with the model after every batch, with restarts, and at the end of the input."""
    tables, oracle = ["a", "b"] if "{b}" in CASES[name] else ["a"], CASES[name].format(a="a", b="b")
    short = GAP if mode == "retract" and name not in PLAIN else timedelta()

    def expected(batch: Sequence[Change]) -> Counter[Row]:
        model.batch(batch)
        until = max(model.watermark(tables), BEGINNING + GAP) - short if emit == "final" else None
        return model.query(oracle, until)

    agrees(query, cut(dice, changes_of(dice, mode, 60)), expected)
    query.end()
    assert as_rows(query) == model.query(oracle)


def started(folder: Path, sql: str, mode: str, sink: str, delay: str = "delay: 4s") -> Clocked:
    """Return the query over sessions of both tables."""
    return running(folder, mode, sql.format(a=SESSION.format("a"), b=SESSION.format("b")), sink, delay)
