"""Results over Debezium envelopes: they equal those over the table in the database."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rowkind.service.plan.errors import PlanError
from tests.envelopes import DebeziumJob, envelope
from tests.seeds import seeds
from tests.trying import folded, inserts

COLUMNS = {"id": "BIGINT NOT NULL", "k": "BIGINT", "name": "STRING"}
TABLE: Mapping[str, Any] = {"columns": COLUMNS, "primary_key": "id"}
KEYED = {"mode": "upsert", "key": "id"}
QUERIES = [
    ("SELECT id, k, name FROM t", KEYED),
    ("SELECT id, k, name FROM t WHERE k > 1", KEYED),
    ("SELECT id, k, name FROM t", {}),
    ("SELECT COUNT(*) AS n, SUM(k) AS s FROM t", {}),
    ("SELECT k, COUNT(*) AS n, MAX(id) AS m FROM t GROUP BY k", {}),
    ("SELECT DISTINCT name FROM t", {}),
    ("SELECT a.id, b.id AS other FROM t a JOIN t b ON a.k = b.k", {}),
    ("SELECT a.id, b.name FROM t a LEFT JOIN t b ON a.k = b.id", {}),
    ("SELECT id FROM t WHERE k IN (SELECT id FROM t)", {}),
    ("SELECT id, k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS n FROM t) WHERE n <= 1", {}),
    ("SELECT id, k FROM t UNION ALL SELECT id, k FROM t WHERE k = 1", {}),
]


KeyAndValue = tuple[bytes | None, bytes | None]


def row(number: int, k: int | None = 1, name: str | None = "a") -> dict[str, Any]:
    """Return a row of the table."""
    return {"id": number, "k": k, "name": name}


def key(number: int) -> bytes:
    """Return the key of a record."""
    return json.dumps({"id": number}).encode()


def history(rng: random.Random, *, truncated: bool) -> tuple[list[KeyAndValue], list[dict[str, Any]]]:
    """Return records as a connector may send them, and the rows of the table after the last record.

    Rows change their primary keys, and snapshots are repeated. If `truncated`, the table may be truncated.
    """
    rows: dict[int, dict[str, Any]] = {}
    records: list[KeyAndValue] = []

    def send(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> None:
        records.append((key((after or before or {})["id"]), envelope(op, before, after)))

    for _ in range(rng.randrange(3, 25)):
        new = row(rng.randrange(5), rng.choice([1, 2, 3, None]), rng.choice(["a", "b", None]))
        match rng.randrange(7):
            case 0:
                for each in rows.values():
                    send("r", None, each)
            case 1 if rows:
                old = rows.pop(rng.choice(sorted(rows)))
                send("d", old, None)
                records.append((key(old["id"]), None))
            case 2 if rows and new["id"] not in rows:
                old = rows.pop(rng.choice(sorted(rows)))
                rows[new["id"]] = new
                send("u", old, new)
            case 3 if truncated:
                rows.clear()
                records.append((None, envelope("t")))
            case _:
                old = rows.get(new["id"])
                rows[new["id"]] = new
                send("c" if old is None else "u", old, new)
    return records, list(rows.values())


SETTINGS: list[Mapping[str, Any]] = [{}, {"exact": True}, {"on_truncate": "empty"}]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("sql", "sink"), QUERIES)
def test_results_are_those_of_the_table(
    sql: str, sink: Mapping[str, Any], settings: Mapping[str, Any], tmp_path: Path
) -> None:
    """For all histories and batch sizes, the result equals that of the table's rows, without dead letters."""
    for seed in seeds():
        records, rows = history(random.Random(f"{sql} {seed}"), truncated="on_truncate" in settings)
        append = {"t": {"mode": "append", "columns": COLUMNS}}
        wanted = sorted(folded(tmp_path, sql, append, inserts("t", rows)), key=str)
        for size in (1, 4, len(records)):
            job = DebeziumJob(tmp_path, sql, {**TABLE, **settings}, **sink)
            assert job.run(records, size) == wanted, (seed, size)
            assert not job.letters
            assert not job.broken


@pytest.mark.parametrize("exact", [False, True])
def test_an_update_of_the_primary_key_retracts_the_old_row(tmp_path: Path, *, exact: bool) -> None:
    """An update of the primary key retracts the old row, of which only the key is needed unless the table is exact."""
    job = DebeziumJob(tmp_path, "SELECT id, k FROM t", {**TABLE, "exact": exact}, **KEYED)
    job.batch((key(1), envelope("c", None, row(1))))
    job.batch((key(2), envelope("u", row(1) if exact else {"id": 1}, row(2))))
    assert job.rows == [{"id": 2, "k": 1}]


def test_a_second_snapshot_of_an_exact_table_changes_what_differs(tmp_path: Path) -> None:
    """A repeated snapshot counts no row twice, and corrects a row whose change the connector missed."""
    job = DebeziumJob(tmp_path, "SELECT COUNT(*) AS n, SUM(k) AS s FROM t", {**TABLE, "exact": True})
    for _ in range(2):
        job.batch(*((key(number), envelope("r", None, row(number, 5))) for number in (1, 2, 3)))
        assert job.rows == [{"n": 3, "s": 15}]
    job.batch((key(1), envelope("r", None, row(1, 6))))
    assert job.rows == [{"n": 3, "s": 16}]
    assert not job.broken


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("size", [1, 7])
def test_a_truncation_empties_the_table(size: int, tmp_path: Path, *, exact: bool) -> None:
    """A truncation removes all rows before it, even of the same batch, and none after it, with any `on_expire`."""
    settings = {**TABLE, "exact": exact, "on_truncate": "empty", "ttl": "1d"}
    records = [
        (key(1), envelope("c", None, row(1))),
        (key(2), envelope("c", None, row(2))),
        (None, envelope("t")),
        (key(2), envelope("c", None, row(2))),
        (None, envelope("t")),
        (key(3), envelope("c", None, row(3))),
        (key(2), envelope("c", None, row(2, 2))),
    ]
    for on_expire in ("forget", "retract"):
        job = DebeziumJob(tmp_path, "SELECT id, k FROM t", {**settings, "on_expire": on_expire})
        assert job.run(records, size) == [{"id": 2, "k": 2}, {"id": 3, "k": 1}]
        assert not job.letters


def test_a_truncation_is_refused_unless_the_table_is_to_be_emptied(tmp_path: Path) -> None:
    """Without `on_truncate: empty` the rows stay, and the dead letter names the setting."""
    job = DebeziumJob(tmp_path, "SELECT id, k FROM t", TABLE)
    job.batch((key(1), envelope("c", None, row(1))), (None, envelope("t")))
    assert job.rows == [{"id": 1, "k": 1}]
    (letter,) = job.letters
    assert (letter.stage, letter.offset) == ("changelog", 1)
    assert "with `on_truncate: empty`, the job empties table t too" in letter.message


def test_a_table_that_may_be_emptied_has_no_versions(tmp_path: Path) -> None:
    """A versioned join with a table that has `on_truncate: empty` is refused, because a truncation has no time."""
    timed = {"columns": {**COLUMNS, "at": "TIMESTAMP NOT NULL"}, "primary_key": "id", "watermark": "at"}
    sql = "SELECT a.id FROM t a JOIN t FOR SYSTEM_TIME AS OF a.at AS b ON a.k = b.id"
    with pytest.raises(PlanError, match="a time of the row cannot read a table with `on_truncate: empty`"):
        DebeziumJob(tmp_path, sql, {**timed, "on_truncate": "empty"})


AMOUNTS: Mapping[str, Any] = {
    "columns": {"id": "BIGINT NOT NULL", "amount": "DECIMAL(6,2)", "name": "STRING", "n": "INT NOT NULL"},
    "primary_key": "id",
}
GOOD = {"id": 1, "amount": "1.50", "name": "a", "n": 1}
NAN = GOOD | {"amount": "NAN", "name": "b"}


def value(mode: str, op: str, before: Any, after: Any) -> bytes:
    """Return a record of a table with this mode."""
    return envelope(op, before, after) if mode == "debezium" else json.dumps(after).encode()


@pytest.mark.parametrize("mode", ["debezium", "upsert"])
@pytest.mark.parametrize(
    ("policy", "rows"), [("keep", [GOOD]), ("retract", []), ("null", [GOOD | {"amount": None, "name": "b"}])]
)
@pytest.mark.parametrize("size", [1, 9])
def test_a_bad_update_does_to_its_row_what_the_table_says(
    size: int, policy: str, rows: list[Any], mode: str, tmp_path: Path
) -> None:
    """`on_bad_update` keeps the row, retracts it or sets the bad column to NULL, and the update is a dead letter."""
    settings = {**AMOUNTS, "mode": mode, "on_bad_update": policy}
    job = DebeziumJob(tmp_path, "SELECT * FROM t", settings)
    records = [(key(1), value(mode, "c", None, GOOD)), (key(1), value(mode, "u", GOOD, NAN))]
    assert job.run(records, size) == rows
    (letter,) = job.letters
    assert (letter.stage, letter.offset) == ("value", 1)
    assert "amount" in letter.message
    later = GOOD | {"amount": "2.00"}
    assert job.run([(key(1), value(mode, "u", NAN, later))], 1) == [later]


@pytest.mark.parametrize("mode", ["debezium", "upsert"])
@pytest.mark.parametrize("policy", ["retract", "null"])
def test_a_bad_update_that_has_no_row_at_all(policy: str, mode: str, tmp_path: Path) -> None:
    """With `retract`, an unreadable update deletes the row of the record's key; with `null`, the row stays."""
    job = DebeziumJob(tmp_path, "SELECT id FROM t", {**AMOUNTS, "mode": mode, "on_bad_update": policy})
    two = GOOD | {"id": 2}
    job.batch((key(1), value(mode, "c", None, GOOD)), (key(2), value(mode, "c", None, two)), (key(1), b"{"))
    job.batch((b"?", b"{"), (None, b"["))
    assert job.rows == ([{"id": 2}] if policy == "retract" else [{"id": 1}, {"id": 2}])
    assert [letter.offset for letter in job.letters] == [2, 3, 4]


@pytest.mark.parametrize("policy", ["retract", "null"])
def test_a_bad_update_of_the_primary_key(policy: str, tmp_path: Path) -> None:
    """An invalid update that changes the primary key retracts the row of the old key."""
    job = DebeziumJob(tmp_path, "SELECT id, amount FROM t", {**AMOUNTS, "on_bad_update": policy})
    job.batch((key(1), envelope("c", None, GOOD)), (key(2), envelope("u", GOOD, NAN | {"id": 2})))
    assert job.rows == ([] if policy == "retract" else [{"id": 2, "amount": None}])


def test_a_column_that_may_not_be_null_keeps_the_row(tmp_path: Path) -> None:
    """With `on_bad_update: null`, a bad value in a NOT NULL column leaves the row unchanged."""
    job = DebeziumJob(tmp_path, "SELECT id, n FROM t", {**AMOUNTS, "on_bad_update": "null"})
    job.batch((key(1), envelope("c", None, GOOD)), (key(1), envelope("u", GOOD, GOOD | {"n": "?"})))
    assert job.rows == [{"id": 1, "n": 1}]


def test_an_unavailable_value_is_null_where_the_table_says_so(tmp_path: Path) -> None:
    """With `on_bad_update: null`, Debezium's placeholder for an unavailable value becomes NULL."""
    job = DebeziumJob(tmp_path, "SELECT id, name FROM t", {**AMOUNTS, "on_bad_update": None})
    toast = GOOD | {"name": "__debezium_unavailable_value"}
    job.batch((key(1), envelope("c", None, GOOD)), (key(1), envelope("u", GOOD, toast)))
    assert job.rows == [{"id": 1, "name": None}]
