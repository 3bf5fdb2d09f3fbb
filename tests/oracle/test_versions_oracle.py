"""As-of joins and versioned lookups in SQL, against DuckDB's ASOF JOIN over the rows that a model of time accepts.

In the model, a row is late if the watermark of both tables before the batch has passed its time; all other rows are
accepted. Of right rows with the same key and time, the last to arrive counts; the oracle selects it in a subquery. With
`emit: final` the result has the left rows whose time the watermark has passed.

A delete of a version is never late. It ends the key at its own time. In an upsert table it ends the key where the last
version begins, or at its table's current mark if that is later. Times that the watermark has passed do not change.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from rowkind.operators.arrangement.manifest import Manifest
from rowkind.operators.arrangement.store import MANIFEST
from tests.clocked import Clocked
from tests.oracle.cuts import as_json, as_rows, cut, query_of
from tests.seeds import drawn, seeds

START = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = datetime.min.replace(tzinfo=UTC)
DELAY = timedelta(seconds=4)

Change = tuple[str, str, tuple[Any, ...]]
"""The table, the row kind, and the row (id, k, v, ts)."""

ASOF = "SELECT a.id, a.ts, b.id AS other, b.v FROM a ASOF {left} JOIN b ON a.k = b.k AND a.ts {compares} b.ts"
MATCH = (
    "SELECT a.id, a.ts, b.id AS other, b.v FROM a ASOF {left} JOIN b MATCH_CONDITION (a.ts {compares} b.ts) "
    "ON a.k = b.k"
)
VERSION = (
    "SELECT a.id, a.ts, b.id AS other, b.v FROM a {left} JOIN b FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k{also}"
)
VIEWED = (
    "WITH r AS (SELECT id, k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM b) "
    "WHERE n = 1) SELECT a.id, a.ts, b.id AS other, b.v FROM a {left} JOIN r FOR SYSTEM_TIME AS OF a.ts AS b "
    "ON a.k = b.k{also}"
)
NOW = "SELECT a.id, b.id AS other, b.v FROM a {left} JOIN b FOR SYSTEM_TIME AS OF PROCTIME() ON b.k = a.k{also}"
MORE = " AND b.v > a.v"
ORACLE = """
SELECT a.id, a.ts, CASE WHEN NOT b.ended{also} THEN b.id END, CASE WHEN NOT b.ended{also} THEN b.v END
FROM a ASOF LEFT JOIN (
  SELECT * FROM b WHERE k IS NOT NULL AND ts IS NOT NULL
  QUALIFY ROW_NUMBER() OVER (PARTITION BY k, ts ORDER BY arrival DESC) = 1
) AS b ON a.k = b.k AND a.ts {compares} b.ts
WHERE {left} OR (NOT b.ended{also})
"""


ROW = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("ended", pa.bool_()),
     ("arrival", pa.int64())]
)  # fmt: skip


@dataclass
class Model:
    """The accepted rows with their arrival numbers, and the progress of time.

    `versions`: the mode of table b if it is versioned.
    """

    versions: str | None
    timed: bool
    marks: dict[str, datetime] = field(default_factory=dict)
    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {"a": [], "b": []})
    arrived: int = 0
    passed: datetime = NEVER
    duckdb: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    @property
    def watermark(self) -> datetime:
        """Return the watermark of both tables; if one has none, no row is late."""
        return min(self.marks.get(name, NEVER) for name in "ab") if self.timed else NEVER

    def batch(self, changes: Sequence[Change]) -> None:
        """Apply a batch; the watermark that it advances takes effect after the batch."""
        before = self.watermark
        for table, kind, row in changes:
            self.arrived += 1
            if self.versions and table == "b":
                self._version(kind, row, before)
            elif row[3] is None or row[3] >= before:
                self._row(table, kind, row)
            if table == "b":
                self.passed = max(self.passed, self._mark(table, kind, row))
        for table, kind, row in changes:
            self.marks[table] = max(self.marks.get(table, NEVER), self._mark(table, kind, row))

    def _mark(self, table: str, kind: str, row: tuple[Any, ...]) -> datetime:
        """Return the mark that a change implies for its table."""
        if row[3] is None or (kind == "-D" and table == "b" and self.versions == "upsert"):
            return NEVER
        mark: datetime = row[3] - DELAY
        # A mark has whole milliseconds: rows within the mark's millisecond may still arrive.
        return mark - timedelta(microseconds=mark.microsecond % 1000)

    def _row(self, table: str, kind: str, row: tuple[Any, ...]) -> None:
        if kind in ("+I", "+U"):
            self.rows[table].append((*row, False, self.arrived))
        else:
            self.rows[table].remove(next(each for each in self.rows[table] if each[:4] == row))

    def _version(self, kind: str, row: tuple[Any, ...], watermark: datetime) -> None:
        known = [each[3] for each in self.rows["b"] if each[1] == row[1]]
        if kind == "-D":
            at = row[3]
            if self.versions == "upsert":
                at = max([*known, *([self.passed] if self.timed else [])]) if known else NEVER
            if at < watermark and any(at < each <= watermark for each in known):
                return
            row = (*row[:3], max(at, watermark))
        if kind == "-U" or row[3] < watermark or row[3] == NEVER:
            return
        self.rows["b"] = [each for each in self.rows["b"] if (each[1], each[3]) != (row[1], row[3])]
        self.rows["b"].append((*row, kind == "-D", self.arrived))

    def query(self, sql: str, until: datetime | None) -> Counter[tuple[Any, ...]]:
        """Return the query's result over the accepted rows, optionally only for left rows before a time."""
        self.duckdb.execute("SET TimeZone = 'UTC'")
        for name, rows in self.rows.items():
            there = [row for row in rows if until is None or name == "b" or (row[3] is not None and row[3] < until)]
            self.duckdb.register(
                name, pa.Table.from_pylist([dict(zip(ROW.names, row, strict=True)) for row in there], ROW)
            )
        return Counter(self.duckdb.execute(sql).fetchall())


def changes_of(dice: random.Random, modes: Mapping[str, str], count: int, *, nulls: bool) -> list[Change]:
    """Return changes of both tables, out of order by a few seconds, some very late, with many equal times."""
    now, found = START, list[Change]()
    live: dict[str, dict[Any, tuple[Any, ...]]] = {"a": {}, "b": {}}
    for id_ in range(count):
        now += timedelta(seconds=dice.choice((0, 0, 1, 1, 2, 5)))
        table = dice.choice("aab")
        mode, rows = modes[table], live[table]
        late = dice.choice((0, 0, 0, 1, 3, 5, 12, 30))
        ts: datetime | None = now - timedelta(seconds=late, microseconds=dice.choice((0, 0, 250)))
        key = dice.randint(1, 3)
        if nulls and dice.random() < 0.1:
            ts = None
        row = (id_, None if nulls and dice.random() < 0.1 else key, dice.randint(0, 9), ts)
        if mode == "retract" and rows and dice.random() < 0.35:
            found.append((table, "-D", rows.pop(dice.choice(list(rows)))))
        elif mode in ("append", "retract"):
            rows[id_] = row
            found.append((table, "+I", row))
        elif key in rows and dice.random() < 0.2:
            gone = rows.pop(key)
            # A delete has the time of its row, or its own time.
            found.append((table, "-D", gone if dice.random() < 0.3 else (*gone[:3], ts)))
        else:
            if key in rows and mode == "changelog":
                found.append((table, "-U", rows[key]))
            found.append((table, "+U" if key in rows else "+I", row))
            rows[key] = row
    return found


def running(folder: Path, modes: Mapping[str, str], sql: str, sink: str, *, timed: bool) -> Clocked:
    """Return the query with watermarks on both tables, or only on a versioned table."""
    tables = {}
    for name, mode in modes.items():
        required = " NOT NULL" if mode in ("upsert", "changelog") else ""
        columns = f"{{id: BIGINT, k: BIGINT{required}, v: BIGINT, ts: TIMESTAMP}}"
        keyed = ", primary_key: [k]" if required else ""
        watermark = ", watermark: {column: ts, delay: 4s}" if timed or required else ""
        tables[name] = f"mode: {'retract' if mode == 'changelog' else mode}, columns: {columns}{keyed}{watermark}"
    return query_of(folder, sql, sink, tables)


COMPARISONS = (">=", ">", "<=", "<")
MODES = ({"a": "append", "b": "append"}, {"a": "append", "b": "retract"}, {"a": "retract", "b": "retract"})


@dataclass(frozen=True)
class Comparison:
    """A query over two tables of these modes, and the equivalent query in DuckDB."""

    modes: Mapping[str, str]
    sql: str
    oracle: str
    emit: str = "changes"
    timed: bool = False
    nulls: bool = False

    def check(self, folder: Path, dice: random.Random) -> None:
        """Compare the results after every batch of random changes, with restarts, and at the end of the input."""
        query = running(folder, self.modes, self.sql, f"mode: retract, emit: {self.emit}", timed=self.timed)
        model = Model(self.modes["b"] if self.modes["b"] in ("upsert", "changelog") else None, self.timed)
        for batch in cut(dice, changes_of(dice, self.modes, 50, nulls=self.nulls)):
            query.batch(0, *(as_line(each, self.modes) for each in batch))
            query.restart()
            model.batch(batch)
            assert as_rows(query) == model.query(self.oracle, model.watermark if self.emit == "final" else None), batch
        query.end()
        if self.emit == "changes":
            assert as_rows(query) == model.query(self.oracle, None)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("compares", COMPARISONS)
@pytest.mark.parametrize("modes", MODES, ids=lambda modes: "-".join(modes.values()))
def test_the_nearest_row_is_duckdbs(tmp_path: Path, modes: Mapping[str, str], compares: str, timed: bool) -> None:
    """The nearest row is the one that DuckDB finds, with NULL times and keys, with and without a watermark."""
    for number, dice in enumerate(drawn(f"{modes} {compares} {timed}", seeds(1))):
        left, spelled = ("LEFT", "")[number % 2], (ASOF, MATCH)[(number + len(compares)) % 2]
        sql = spelled.format(left=left, compares=compares)
        oracle = ORACLE.format(left=bool(left), compares=compares, also="")
        Comparison(modes, sql, oracle, timed=timed, nulls=True).check(tmp_path, dice)


@pytest.mark.parametrize(("emit", "timed"), [("changes", False), ("changes", True), ("final", True)])
@pytest.mark.parametrize("left", ["", "LEFT"])
@pytest.mark.parametrize(
    "modes",
    [{"a": a, "b": b} for a, b in itertools.product(("append", "retract"), ("upsert", "changelog"))],
    ids=lambda modes: "-".join(modes.values()),
)
def test_versions_of_a_table_are_those_of_the_model(
    tmp_path: Path, modes: Mapping[str, str], left: str, emit: str, timed: bool
) -> None:
    """Each left row has the version valid at its time, in any order of arrival; closed versions do not change."""
    for number, dice in enumerate(drawn(f"{modes} {left} {emit} {timed}", seeds(2))):
        also = ("", MORE)[number % 2]
        sql = VERSION.format(left=left, also=also)
        oracle = ORACLE.format(left=bool(left), compares=">=", also=also)
        Comparison(modes, sql, oracle, emit, timed).check(tmp_path, dice)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("modes", MODES, ids=lambda modes: "-".join(modes.values()))
def test_versions_of_a_view_of_last_rows_are_the_rows_of_its_table(
    tmp_path: Path, modes: Mapping[str, str], timed: bool
) -> None:
    """The view has the last row of each key; each left row has the row that the view had at its time."""
    for number, dice in enumerate(drawn(f"view {modes} {timed}", seeds(1))):
        left, also = ("LEFT", "")[number % 2], MORE if timed else ""
        sql = VIEWED.format(left=left, also=also)
        oracle = ORACLE.format(left=bool(left), compares=">=", also=also)
        Comparison(modes, sql, oracle, timed=timed).check(tmp_path, dice)


@pytest.mark.parametrize("left", ["", "LEFT"])
@pytest.mark.parametrize(
    "modes",
    [{"a": a, "b": b} for a, b in itertools.product(("append", "retract", "upsert"), ("upsert", "changelog"))],
    ids=lambda modes: "-".join(modes.values()),
)
def test_a_lookup_by_processing_time_is_not_revised(tmp_path: Path, modes: Mapping[str, str], left: str) -> None:
    """A left row keeps the match that its key had at the end of its own batch, until the row is retracted."""
    for number, dice in enumerate(drawn(f"now {left} {modes}", seeds(2))):
        also = ("", MORE)[number % 2]
        query = running(tmp_path, modes, NOW.format(left=left, also=also), "mode: retract", timed=False)
        there: dict[Any, tuple[Any, ...]] = {}
        met: dict[Any, tuple[Any, ...]] = {}
        for batch in cut(dice, changes_of(dice, modes, 60, nulls=False)):
            query.batch(0, *(as_line(each, modes) for each in batch))
            query.restart()
            for _, kind, row in (each for each in batch if each[0] == "b"):
                there.pop(row[1], None)
                if kind in ("+I", "+U"):
                    there[row[1]] = row
            for _, kind, row in (each for each in batch if each[0] == "a"):
                # In an upsert table, a row is identified by its key.
                identity = row[1] if modes["a"] == "upsert" else row[0]
                met.pop(identity, None)
                if kind in ("+I", "+U"):
                    found = there.get(row[1], (None,) * 4)
                    if also and (found[2] is None or found[2] <= row[2]):
                        found = (None,) * 4
                    met[identity] = (row[0], found[0], found[2])
            expected = Counter(row for row in met.values() if left or row[1] is not None)
            assert as_rows(query) == expected, batch


def test_a_key_with_the_time_in_it_makes_each_row_a_version(tmp_path: Path) -> None:
    """Such a row can be deleted by itself, and then the row before it is valid again."""
    tables = {
        "a": "mode: append, columns: {id: BIGINT, k: BIGINT, ts: TIMESTAMP}",
        "b": "mode: upsert, primary_key: [k, ts], watermark: {column: ts}, "
        "columns: {k: BIGINT NOT NULL, v: BIGINT, ts: TIMESTAMP NOT NULL}",
    }
    sql = "SELECT a.id, b.v FROM a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k"
    query = query_of(tmp_path, sql, "mode: retract", tables)
    first, second, third = ((START + timedelta(seconds=each)).isoformat() for each in range(3))
    query.batch(0, ("a", "+I", {"id": 1, "k": 1, "ts": third}))
    query.batch(0, *(("b", "+I", {"k": 1, "v": v, "ts": ts}) for v, ts in ((5, first), (6, second))))
    assert query.result == [{"id": 1, "v": 6}]
    query.batch(0, ("b", "-D", {"k": 1, "ts": second}))
    assert query.result == [{"id": 1, "v": 5}]


@pytest.mark.parametrize("left", ["", "LEFT"])
@pytest.mark.parametrize("compares", [">=", ">"])
@pytest.mark.parametrize("modes", MODES, ids=lambda modes: "-".join(modes.values()))
def test_final_rows_of_an_asof_join_come_once(
    tmp_path: Path, modes: Mapping[str, str], compares: str, left: str
) -> None:
    """With `emit: final` the result has the rows before the watermark, and none of them is retracted."""
    sql = ASOF.format(left=left, compares=compares)
    oracle = ORACLE.format(left=bool(left), compares=compares, also="")
    for dice in drawn(f"final {modes} {compares} {left}", seeds(1)):
        Comparison(modes, sql, oracle, "final", timed=True).check(tmp_path, dice)


def as_line(change: Change, modes: Mapping[str, str]) -> tuple[str, str, dict[str, Any]]:
    """Return a change as a line of a file; a delete of an upsert table has only its key."""
    table, kind, row = change
    return table, kind, {"k": row[1]} if kind == "-D" and modes[table] == "upsert" else as_json(row)


@pytest.mark.sampled(0)
@pytest.mark.parametrize("compares", ["<=", "<"])
def test_left_rows_that_have_met_the_next_row_go(tmp_path: Path, compares: str) -> None:
    """State stays bounded: right rows are evicted with the watermark, and left rows with the row that they match."""
    modes = {"a": "append", "b": "retract"}
    query = running(tmp_path, modes, ASOF.format(left="LEFT", compares=compares), "mode: retract", timed=True)
    largest = 0
    for number in range(150):
        now, late = (START + timedelta(seconds=number - each) for each in (0, 3))
        lines = [("a", "+I", (10 * number + key, key, key, now)) for key in range(5)]
        # The nearest row arrives late; until then another row matches.
        lines += [("b", "+I", (10 * number + key, key, key, late)) for key in range(5)]
        query.batch(0, *(as_line(line, modes) for line in lines))
        if number > 50:
            largest = max(largest, entries(query))
    assert largest < 1000, f"{largest} entries of state, and the watermark leaves 4 seconds with 10 rows each"
    behind = 3 if compares == "<=" else 4
    met = {id_: other for (_, id_), _, (_, other), _ in query.view}
    assert all(met[id_] == id_ + 10 * behind for id_ in met if id_ < 1400)


@pytest.mark.sampled(0)
@pytest.mark.parametrize("sql", [ASOF, VERSION], ids=["asof", "versions"])
@pytest.mark.parametrize("emit", ["changes", "final"])
def test_state_stays_flat(tmp_path: Path, sql: str, emit: str) -> None:
    """State stays bounded: left rows are evicted with the watermark, and one older version per key is kept."""
    modes = {"a": "append", "b": "upsert" if sql == VERSION else "retract"}
    query = running(
        tmp_path, modes, sql.format(left="LEFT", compares=">=", also=""), f"mode: retract, emit: {emit}", timed=True
    )
    largest = 0
    for number in range(150):
        now = START + timedelta(seconds=number)
        lines = [(table, "+I", (10 * number + key, key, key, now)) for table in "ab" for key in range(5)]
        query.batch(0, *(as_line(line, modes) for line in lines))
        if number > 50:
            largest = max(largest, entries(query))
    assert largest < 1000, f"{largest} entries of state, and the watermark leaves 4 seconds with 10 rows each"
    last = (START + timedelta(seconds=149) - DELAY).isoformat()
    for (_, id_), (_, ts), (_, other), _ in query.view:
        assert id_ == other or (emit == "changes" and ts > last), "each has met the version of its second"


def entries(query: Clocked) -> int:
    """Return the number of entries of state that have not been merged away."""
    found = 0
    for name, store in query.engine._state.items():
        if (blob := store.get(MANIFEST)) is not None:
            found += sum(run.rows for run in Manifest.from_blob(blob, name.rpartition(".")[2]).runs)
    return found
