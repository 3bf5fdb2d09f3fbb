"""Windows under watermarks against DuckDB over the rows that a model of time accepts.

In the model, a row belongs to windows. For each of them the row is late if the watermark before the batch has reached
the window's end. All other changes are accepted, insertions and retractions alike, and the result is SQL over the
changes accepted so far. With `emit: final` the result has the windows that the watermark has passed, and none of its
rows changes again.

A session has ended once the watermark has passed its end. A row is late once the watermark has passed the row's own
time plus the gap. A later row starts another session, however near it is.
"""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.store import MANIFEST
from tests.answers import answer
from tests.clocked import Clocked
from tests.oracle.cuts import Change, Row, agrees, as_lines, as_rows, cut, query_of
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
BEGINNING = datetime.min.replace(tzinfo=UTC)
DELAY = timedelta(seconds=4)
SIZE, SLIDE = timedelta(seconds=10), timedelta(seconds=5)

TUMBLE = "TABLE(TUMBLE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS {0}"
HOP = "TABLE(HOP(TABLE {0}, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) AS {0}"
PANES = "TABLE(HOP(TABLE {0}, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '10' SECOND)) AS {0}"
CUMULATE = "TABLE(CUMULATE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) AS {0}"
CUMULATED_PANES = "TABLE(CUMULATE(TABLE {0}, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '10' SECOND)) AS {0}"
RUNS = "TABLE(HOP(TABLE {0}, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '30' SECOND)) AS {0}"
FORMS = {
    "tumble": TUMBLE,
    "hop": HOP,
    "panes": PANES,
    "runs of panes": RUNS,
    "cumulate": CUMULATE,
    "cumulated panes": CUMULATED_PANES,
}

GROUPED = "SELECT k, window_start, COUNT(*) AS n, SUM(v) AS s FROM {a} GROUP BY k, window_start, window_end"
VALUES = "SELECT window_end, MAX(v) AS m, COUNT(DISTINCT k) AS d FROM {a} GROUP BY window_start, window_end"
EXTREMES = "SELECT k, window_end, MIN(v) AS low, MAX(v) AS high FROM {a} GROUP BY k, window_start, window_end"
TOP = (
    "SELECT id, window_end FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
    "ORDER BY v DESC, id) AS rn FROM {a}) WHERE rn <= 2"
)
TOP_GROUPS = (
    "SELECT k, window_end, s FROM (SELECT *, RANK() OVER (PARTITION BY window_end ORDER BY s DESC) AS rn FROM "
    "(SELECT k, window_end, SUM(v) AS s FROM {a} GROUP BY k, window_start, window_end)) WHERE rn <= 1"
)
JOINED = (
    "SELECT a.id, b.id AS other, a.window_end FROM {a} JOIN {b} ON a.k = b.k AND a.window_start = b.window_start "
    "AND a.window_end = b.window_end"
)
LEFT = JOINED.replace(" JOIN", " LEFT JOIN")
FULL = JOINED.replace(" JOIN", " FULL JOIN").replace(
    "a.window_end FROM", "COALESCE(a.window_end, b.window_end) AS window_end FROM"
)

RIGHT = JOINED.replace(" JOIN", " RIGHT JOIN").replace("a.window_end FROM", "b.window_end FROM")
ON = "a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end"
SEMI = f"SELECT a.id, a.v, a.window_end FROM {{a}} LEFT SEMI JOIN {{b}} ON {ON}"
ANTI = SEMI.replace("SEMI", "ANTI")
NOT_EXISTS = f"SELECT a.id, a.v, a.window_end FROM {{a}} WHERE NOT EXISTS (SELECT 1 FROM {{b}} WHERE {ON})"
NOT_IN = (
    "SELECT a.id, a.v, a.window_end FROM {a} WHERE (a.k, a.window_start, a.window_end) NOT IN "
    "(SELECT b.k, b.window_start, b.window_end FROM {b})"
)
NOT_AMONG = (
    "SELECT a.id, a.v, a.window_end FROM {a} WHERE a.v NOT IN "
    "(SELECT b.v FROM {b} WHERE b.window_start = a.window_start AND b.window_end = a.window_end)"
)


@dataclass
class Model:
    """The accepted rows of each table, one per window, and the progress of time.

    `late` counts the rows that were accepted after their window had ended, within `lateness`.
    """

    windows: str
    lateness: timedelta = timedelta()
    delay: timedelta = DELAY
    late: int = 0
    marks: dict[str, datetime] = field(default_factory=dict)
    accepted: dict[str, Counter[Row]] = field(default_factory=lambda: {"a": Counter(), "b": Counter()})

    def watermark(self, tables: Sequence[str]) -> datetime:
        """Return the watermark over these tables."""
        return min(self.marks.get(name, BEGINNING) for name in tables)

    def batch(self, changes: Sequence[Change], tables: Sequence[str]) -> None:
        """Apply a batch; the watermark that it advances takes effect after the batch."""
        before = self.watermark(tables)
        for table, sign, row in changes:
            for begin, end in self.of(row[3]):
                if end + self.lateness > before:
                    self.late += end <= before
                    self.accepted[table][*row, begin, end] += sign
        for table, _, row in changes:
            self.marks[table] = max(self.marks.get(table, BEGINNING), row[3] - self.delay)

    def after(self, sql: str, tables: Sequence[str], batch: Sequence[Change], *, final: bool) -> Counter[Row]:
        """Apply a batch and return the query's result; with `final`, only the windows that have ended."""
        self.batch(batch, tables)
        return self.query(sql, self.watermark(tables) if final else None)

    def of(self, ts: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield the windows that contain a time."""
        first = START + (ts - START) // SIZE * SIZE
        match self.windows:
            case "tumble":
                yield first, first + SIZE
            case "hop":
                last = START + (ts - START) // SLIDE * SLIDE
                yield last - SLIDE, last - SLIDE + SIZE
                yield last, last + SIZE
            case "panes":
                last = ts.replace(microsecond=0)
                yield from ((last - timedelta(seconds=each), last - timedelta(seconds=each - 10)) for each in range(10))
            case "runs of panes":
                last = ts.replace(microsecond=0)
                yield from ((last - timedelta(seconds=each), last - timedelta(seconds=each - 30)) for each in range(30))
            case "cumulated panes":
                ends = (first + timedelta(seconds=each + 1) for each in range(10))
                yield from ((first, end) for end in ends if ts < end)
            case "cumulate":
                if ts < first + SLIDE:
                    yield first, first + SLIDE
                yield first, first + SIZE

    def query(self, sql: str, until: datetime | None = None) -> Counter[Row]:
        """Return the query's result over the accepted rows, optionally only for windows that end by `until`."""
        columns = "id BIGINT, k BIGINT, v BIGINT, ts TIMESTAMPTZ, window_start TIMESTAMPTZ, window_end TIMESTAMPTZ"
        there = {
            name: (columns, [row for row in rows.elements() if until is None or row[5] <= until])
            for name, rows in self.accepted.items()
        }
        return Counter(answer(sql, there))


def changes_of(dice: random.Random, mode: str, count: int) -> list[Change]:
    """Return changes of both tables, out of order by a few seconds, some very late."""
    now, found = START, []
    live: dict[str, list[Row]] = {"a": [], "b": []}
    for id_ in range(count):
        now += timedelta(seconds=dice.choice((0, 0, 1, 1, 2, 7)))
        table = dice.choice("aab")
        if mode == "retract" and live[table] and dice.random() < 0.3:
            row = live[table].pop(dice.randrange(len(live[table])))
            found.append((table, -1, row))
            continue
        late = dice.choice((0, 0, 0, 1, 3, 5, 12, 30))
        ts = now - timedelta(seconds=late, milliseconds=dice.choice((0, 0, 250)))
        row = (id_, dice.randint(1, 3), dice.randint(0, 9), ts)
        live[table].append(row)
        found.append((table, 1, row))
    return found


def running(folder: Path, mode: str, sql: str, sink: str, delay: str = "delay: 4s") -> Clocked:
    """Return the query with watermarks on both tables."""
    columns = "{id: BIGINT NOT NULL, k: BIGINT NOT NULL, v: BIGINT NOT NULL, ts: TIMESTAMP NOT NULL}"
    table = f"mode: {mode}, columns: {columns}, watermark: {{column: ts, {delay}}}"
    return query_of(folder, sql, sink, {"a": table, "b": table})


CASES = [
    *((GROUPED, windows) for windows in FORMS),
    (GROUPED.replace("window_start, C", "window_start, window_end, C"), "cumulated panes"),
    *((VALUES, windows) for windows in ("tumble", "hop", "panes")),
    *((EXTREMES, windows) for windows in ("panes", "cumulated panes")),
    (TOP, "tumble"),
    (TOP, "hop"),
    (TOP_GROUPS, "tumble"),
    (JOINED, "tumble"),
    (LEFT, "tumble"),
    (LEFT, "hop"),
    (FULL, "tumble"),
    (RIGHT, "tumble"),
    *((sql, "tumble") for sql in (SEMI, ANTI, NOT_EXISTS, NOT_IN, NOT_AMONG)),
    (ANTI, "hop"),
]


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize(("sql", "windows"), CASES)
def test_windows_are_sql_over_what_is_not_late(tmp_path: Path, sql: str, windows: str, mode: str, emit: str) -> None:
    """After every batch and at the end, with restarts, the result equals SQL over the rows that were not late."""
    form = FORMS[windows]
    tables = ["a", "b"] if "{b}" in sql else ["a"]
    for dice in drawn(f"{sql} {windows} {mode} {emit}", seeds()):
        query = running(
            tmp_path, mode, sql.format(a=form.format("a"), b=form.format("b")), f"mode: retract, emit: {emit}"
        )
        # DuckDB's SEMI and ANTI JOIN have no LEFT.
        model, oracle = Model(windows), re.sub("LEFT (SEMI|ANTI)", r"\1", sql.format(a="a", b="b"))
        expected = functools.partial(model.after, oracle, tables, final=emit == "final")
        agrees(query, cut(dice, changes_of(dice, mode, 40)), expected)
        query.end()
        assert as_rows(query) == model.query(oracle)


GAP = timedelta(seconds=3)
SESSIONS = {
    "spark": "SELECT k, session_window.start AS window_start, session_window.end AS window_end, COUNT(*) AS n, "
    "SUM(v) AS s, MIN(v) AS m, COUNT(DISTINCT v) AS d FROM a GROUP BY k, session_window(ts, '3 seconds')",
    "flink": "SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS m, COUNT(DISTINCT v) AS d FROM "
    "TABLE(SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' SECOND)) GROUP BY k, window_start, window_end",
    "legacy": "SELECT k, SESSION_START(ts, INTERVAL '3' SECOND) AS window_start, SESSION_END(ts, INTERVAL '3' SECOND) "
    "AS window_end, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS m, COUNT(DISTINCT v) AS d FROM a GROUP BY k, "
    "SESSION(ts, INTERVAL '3' SECOND)",
}


@dataclass
class SessionModel:
    """The sessions of a table: those that have ended, and the rows of the open ones."""

    lateness: timedelta = timedelta()
    table: str = "a"
    delay: timedelta = DELAY
    watermark: datetime = BEGINNING
    ended: list[list[Row]] = field(default_factory=list)
    rows: Counter[Row] = field(default_factory=Counter)

    def batch(self, changes: Sequence[Change]) -> None:
        """Apply a batch; the watermark that it advances takes effect after the batch."""
        for session in self.open():
            if session[-1][3] + GAP + self.lateness < self.watermark:
                self.ended.append(session)
                self.rows -= Counter(session)
        own = [(sign, row) for table, sign, row in changes if table == self.table]
        for sign, row in own:
            if row[3] + GAP + self.lateness >= self.watermark:
                self.rows[row] += sign
        self.watermark = max([self.watermark, *(row[3] - self.delay for _, row in own)])

    def open(self) -> list[list[Row]]:
        """Return the open sessions, each with its rows in order of time."""
        found: list[list[Row]] = []
        for row in sorted(self.rows.elements(), key=lambda each: (each[1], each[3])):
            if found and found[-1][-1][1] == row[1] and row[3] - found[-1][-1][3] <= GAP:
                found[-1].append(row)
            else:
                found.append([row])
        return found

    def result(self, *, final: bool) -> Counter[Row]:
        """Return the result over all sessions, or only over those that the watermark has passed."""
        sessions = [*self.ended, *self.open()]
        there = [each for each in sessions if not final or each[-1][3] + GAP < self.watermark]
        return Counter(
            (
                each[0][1],
                each[0][3],
                each[-1][3] + GAP,
                len(each),
                sum(row[2] for row in each),
                min(row[2] for row in each),
                len({row[2] for row in each}),
            )
            for each in there
        )


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize("mode", ["append", "retract"])
@pytest.mark.parametrize("spelling", SESSIONS)
def test_sessions_end_when_the_watermark_passes_them(tmp_path: Path, spelling: str, mode: str, emit: str) -> None:
    """After every batch, with restarts, the result equals the model's; state is kept only for open sessions."""
    for dice in drawn(f"{spelling} {mode} {emit}", seeds()):
        query, model = running(tmp_path, mode, SESSIONS[spelling], f"mode: retract, emit: {emit}"), SessionModel()
        sessions_agree(query, model, dice, changes_of(dice, mode, 60), final=emit == "final")
        assert query.engine.state["session_1"].rows <= 2 * 3
        query.end()
        assert as_rows(query) == model.result(final=False)


def sessions_agree(
    query: Clocked, model: SessionModel, dice: random.Random, changes: Sequence[Change], *, final: bool
) -> None:
    """Compare the query with the model after every batch; days later, almost no state of these sessions is left."""

    def expected(batch: Sequence[Change]) -> Counter[Row]:
        model.batch(batch)
        return model.result(final=final)

    agrees(query, cut(dice, changes), expected)
    for days in (1, 2, 3):
        batch = [("a", 1, (1000 + days, k, days, START + timedelta(days=days))) for k in (1, 2, 3)]
        query.batch(0, *as_lines(batch))
        model.batch(batch)
    assert max(kept(query).values()) <= 2 * 3 * 3, kept(query)


def kept(query: Clocked) -> dict[str, int]:
    """Return the number of rows in each arrangement of an aggregate."""
    found = {}
    stores = dict(query.engine._state.items())
    for name, store in stores.items():
        operator, _, arrangement = name.rpartition(".")
        if f"{operator}.groups" in stores and (blob := store.get(MANIFEST)):
            found[name] = Manifest.from_blob(blob, arrangement).weight
    return found


@pytest.mark.parametrize("of", ["w", "window_time(w)"])
def test_windows_of_windows_are_final(tmp_path: Path, of: str) -> None:
    """A window as a struct, as in Spark, counts by its last time, and closes the larger window that contains it."""
    sql = (
        "SELECT window.end AS e, SUM(n) AS n FROM (SELECT window AS w, k, COUNT(*) AS n FROM a "
        f"GROUP BY window(ts, '5 seconds'), k) GROUP BY window({of}, '10 seconds')"
    )
    table = "mode: append, columns: {k: BIGINT, ts: TIMESTAMP}, watermark: {column: ts, delay: 4s}"
    query = query_of(tmp_path, sql, "mode: append", {"a": table})
    times = [START + timedelta(seconds=second) for second in range(26)]
    query.batch(0, *(("a", "+I", {"k": number % 2, "ts": ts.isoformat()}) for number, ts in enumerate(times)))
    ends = {datetime.fromisoformat(row["e"]): row["n"] for row in query.result}
    assert ends == {START + SIZE: 10, START + 2 * SIZE: 10}
    query.end()
    assert len(query.result) == 3
