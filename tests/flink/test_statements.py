"""Statement sets, CREATE TABLE … AS, ON CONFLICT, and sinks that accept every change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rowkind.service.flink.job_file import imported
from rowkind.service.flink.script import ScriptError
from tests.flink.trying import given, imported_job
from tests.trying import inserts

KAFKA = "'connector' = 'kafka', 'format' = 'json'"
UPSERT = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
TABLES = f"""CREATE TABLE t (id BIGINT NOT NULL, a INT) WITH ({KAFKA});
CREATE TABLE o (id BIGINT, a INT) WITH ({KAFKA});
CREATE TABLE u (id BIGINT PRIMARY KEY NOT ENFORCED, n BIGINT) WITH ({UPSERT});
"""
COPY = "INSERT INTO o SELECT id, a FROM t;"
COUNT = "INSERT INTO u SELECT id, COUNT(*) FROM t GROUP BY id;"
ROWS = inserts("t", [{"id": 1, "a": 2}, {"id": 1, "a": 3}, {"id": 2, "a": None}])
COPIED = [{"id": 1, "a": 2}, {"id": 1, "a": 3}, {"id": 2, "a": None}]
COUNTED = [{"id": 1, "n": 2}, {"id": 2, "n": 1}]


@pytest.mark.parametrize(
    "statements",
    [
        f"{COPY} {COUNT}",
        f"EXECUTE STATEMENT SET BEGIN {COPY} {COUNT} END;",
        f"EXECUTE STATEMENT SET\nBEGIN\n-- two of them\n{COPY}\n{COUNT}\nEND",
        f"BEGIN STATEMENT SET; {COPY} {COUNT} END;",
        f"STATEMENT SET BEGIN {COPY} {COUNT} END;",
        f"EXECUTE {COPY} EXECUTE {COUNT}",
        f"BEGIN STATEMENT SET; CREATE VIEW v AS SELECT * FROM t; {COPY.replace('FROM t', 'FROM v')} {COUNT} END;",
        f"COMPILE AND EXECUTE PLAN 'p.json' IF NOT EXISTS FOR STATEMENT SET BEGIN {COPY} {COUNT} END;",
    ],
)
def test_every_insert_of_a_set_is_a_sink(tmp_path: Path, statements: str) -> None:
    """A statement set in any spelling becomes a job with both sinks, without notes."""
    assert imported("f.sql", TABLES + statements).notes == ()
    job = imported_job(tmp_path, TABLES + statements)
    assert sorted(given(job, ROWS, "o"), key=str) == sorted(COPIED, key=str)
    assert given(job, ROWS, "u") == COUNTED


@pytest.mark.parametrize(
    ("statement", "note"),
    [
        (f"EXPLAIN STATEMENT SET BEGIN {COUNT} {COUNT} END;", "EXPLAIN is left out: `rowkind explain` shows the plan"),
        (f"COMPILE PLAN 'p' FOR STATEMENT SET BEGIN {COUNT} {COUNT} END;", "which are planned at each start"),
        ("EXECUTE PLAN 'p';", "it runs a plan or a statement that is not in the script"),
        ("INSERT OVERWRITE o SELECT id, a FROM t;", "INSERT OVERWRITE is not carried over"),
        ("INSERT INTO o PARTITION (a = 1) SELECT id FROM t;", "a topic is not partitioned by columns"),
        ("EXECUTE STATEMENT SET BEGIN INSERT INTO o VALUES (1, 2); END;", "writes rows once and is not a query"),
        ("EXECUTE STATEMENT SET BEGIN SELECT * FROM t; END;", "its result is only printed"),
        ("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' MINUTE AS SELECT id FROM t;", "use CREATE TABLE"),
        ("STOP JOB 'j';", "STOP is left out: SIGTERM stops `rowkind run`"),
        ("HELP;", "HELP is left out"),
        ("CREATE TABLE w (b, c INT) WITH ('connector' = 'kafka');", "the column b is left out: it has no type"),
        (f"CREATE TABLE w WITH ({KAFKA}) AS SELECT id FROM t; INSERT INTO u SELECT id, 1 FROM w;", "w is not read"),
        (f"CREATE TABLE w (b INT NOT NULL) WITH ({KAFKA}) AS SELECT id FROM t;", "does not have are left out: b"),
    ],
)
def test_a_statement_that_is_no_sink_is_named(statement: str, note: str) -> None:
    """A statement that is not a sink is reported with the next step, and the INSERTs around it become sinks."""
    found = imported("f.sql", f"{TABLES}{statement}\n{COPY}")
    assert any(note in each for each in found.notes), found.notes
    assert "sinks:\n" in found.text
    assert "INSERT" not in found.text.partition("\njob:")[2]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", {"a": 2, "id": 1}),
        ("(id, a)", {"a": 2, "id": 1}),
        ("(id STRING)", {"a": 2, "id": "1"}),
        ("(w AS a + 1)", {"a": 2, "id": 1}),
        ("(b DECIMAL(5, 2))", {"a": 2, "b": None, "id": 1}),
    ],
)
def test_columns_of_create_table_as_are_the_querys_by_their_names(
    tmp_path: Path, table: str, expected: dict[str, Any]
) -> None:
    """The columns of CREATE TABLE … AS are the query's by name, and the table can change their types."""
    job = imported_job(tmp_path, f"{TABLES}CREATE TABLE w {table} WITH ({KAFKA}) AS SELECT a, id FROM t;")
    assert given(job, ROWS[:1], "w") == [expected]


@pytest.mark.parametrize(
    ("clause", "setting", "expected"),
    [("", "last", 3), ("ON CONFLICT DO DEDUPLICATE", "last", 3), ("ON CONFLICT DO NOTHING", "first", 2)],
)
def test_on_conflict_is_the_sinks(tmp_path: Path, clause: str, setting: str, expected: int) -> None:
    """The clause ON CONFLICT becomes the sink's `on_conflict`."""
    job = imported_job(tmp_path, f"{TABLES}INSERT INTO u SELECT id, a FROM t WHERE id = 1 {clause};")
    assert job.sinks["u"].on_conflict == setting
    assert given(job, ROWS, "u") == [{"id": 1, "n": expected}]


def test_on_conflict_do_error_needs_a_key_of_the_result() -> None:
    """ON CONFLICT DO ERROR is refused unless the sink's key identifies a row of the result."""
    with pytest.raises(ScriptError, match=r"the sink's key \(id\) does not identify a row of the result"):
        imported("f.sql", f"{TABLES}INSERT INTO u SELECT id, a FROM t ON CONFLICT DO ERROR;")
    assert "on_conflict" not in imported("f.sql", TABLES + COUNT.replace(";", " ON CONFLICT DO ERROR;")).text


@pytest.mark.parametrize("connector", ["print", "blackhole"])
def test_print_and_blackhole_take_every_change(tmp_path: Path, connector: str) -> None:
    """Sinks with the connectors print and blackhole accept any query, with or without a primary key."""
    script = f"""{TABLES}CREATE TABLE p (n BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = '{connector}');
    CREATE TABLE q WITH ('connector' = '{connector}') LIKE o (EXCLUDING ALL);
    INSERT INTO p SELECT COUNT(*) FROM t GROUP BY id;
    INSERT INTO q SELECT id, MAX(a) FROM t GROUP BY id;"""
    found = imported("f.sql", script)
    assert found.whole, found.notes
    job = imported_job(tmp_path, script)
    assert [job.sinks[name].to for name in ("p", "q")] == [connector, connector]
    assert not any(job.sinks[name].topic or job.sinks[name].key for name in ("p", "q"))
    assert sorted(row["n"] for row in given(job, ROWS, "p")) == [1, 2]
    assert given(job, ROWS, "q") == [{"id": 1, "a": 3}, {"id": 2, "a": None}]


def test_the_identifier_of_a_print_table_is_the_prefix(tmp_path: Path) -> None:
    """The option print-identifier begins each printed line; without it, the sink's name does."""
    script = f"""{TABLES}CREATE TABLE p (n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'per id');
    CREATE TABLE q (n BIGINT) WITH ('connector' = 'print');
    INSERT INTO p SELECT COUNT(*) FROM t GROUP BY id;
    INSERT INTO q SELECT COUNT(*) FROM t;"""
    job = imported_job(tmp_path, script)
    assert (job.sinks["p"].prefix, job.sinks["q"].prefix) == ("per id", "")


def test_options_of_a_print_table_need_a_note_only_if_they_are_lost() -> None:
    """A job prints to standard error with its own parallelism, so those options need no note. Other options do."""
    script = f"""{TABLES}CREATE TABLE p (n BIGINT) WITH ('connector' = 'print', 'standard-error' = 'true',
        'sink.parallelism' = '1'{{more}});
    INSERT INTO p SELECT COUNT(*) FROM t;"""
    assert imported("f.sql", script.format(more="")).whole
    found = imported("f.sql", script.format(more=", 'print-idenifier' = 'x'"))
    assert not found.whole
    assert "p: the option print-idenifier of print is not carried over" in " ".join(found.notes)


@pytest.mark.parametrize("format_", ["canal-json", "maxwell-json", "ogg-json", "debezium-json"])
def test_a_table_of_changes_in_envelopes_is_one_that_updates(tmp_path: Path, format_: str) -> None:
    """A source of change envelopes becomes a Debezium table, with notes on other formats; a sink, a retract topic."""
    script = f"""CREATE TABLE s (id BIGINT, a INT) WITH ('connector' = 'kafka', 'format' = '{format_}');
    CREATE TABLE d (a INT, n BIGINT) WITH ('connector' = 'kafka', 'format' = '{format_}');
    INSERT INTO d SELECT a, COUNT(*) FROM s GROUP BY a;"""
    job = imported_job(tmp_path, script)
    assert (job.tables["s"].mode, job.sinks["d"].mode) == ("debezium", "retract")
    notes = " ".join(imported("f.sql", script).notes)
    assert (f"the format {format_} is not supported: let Debezium write" in notes) == (format_ != "debezium-json")
    assert "d: Debezium envelopes cannot be written" in notes


@pytest.mark.parametrize(
    ("clause", "columns"),
    [
        ("", ["id", "at", "day"]),
        ("(EXCLUDING ALL)", ["id", "at"]),
        ("(EXCLUDING GENERATED)", ["id", "at"]),
        ("(EXCLUDING ALL INCLUDING GENERATED)", ["id", "at", "day"]),
        ("(OVERWRITING OPTIONS)", ["id", "at", "day"]),
    ],
)
def test_like_takes_the_columns_of_the_record_always(tmp_path: Path, clause: str, columns: list[str]) -> None:
    """LIKE always copies the topic's columns; only computed columns can be excluded."""
    script = f"""CREATE TABLE b (id BIGINT, at TIMESTAMP(3), day AS CAST(at AS DATE)) WITH ({KAFKA});
    CREATE TABLE c WITH ({KAFKA}) LIKE b {clause};
    CREATE TABLE p WITH ('connector' = 'print') AS SELECT * FROM c;"""
    rows = inserts("c", [{"id": 1, "at": "2026-01-02T03:04:05"}])
    (row,) = given(imported_job(tmp_path, script), rows, "p")
    assert list(row) == columns
