"""WATERMARK in a script and the options on idle sources: the table's settings in the job file, or the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.flink.job_file import imported
from rowkind.service.job.load import load
from rowkind.service.job.table import WatermarkSettings
from tests.flink.trying import given, imported_job
from tests.trying import inserts

KAFKA = "'connector' = 'kafka', 'format' = 'json'"


def script(definition: str, options: str = "", before: str = "") -> str:
    """Return a script with a table whose columns include this definition."""
    return f"""{before}
    CREATE TABLE t (id BIGINT, ms BIGINT, at TIMESTAMP(3), p AS PROCTIME(), ts AS TO_TIMESTAMP_LTZ(ms, 3), {definition})
      WITH ({KAFKA}{options});
    CREATE TABLE o (id BIGINT) WITH ({KAFKA});
    INSERT INTO o SELECT id FROM t;"""


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("WATERMARK FOR at AS at", {"column": "at"}),
        ("WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND", {"column": "at", "delay": "5s"}),
        ("WATERMARK FOR at AS at - INTERVAL '0.001' SECOND", {"column": "at", "delay": "1ms"}),
        ("WATERMARK FOR at AS at - INTERVAL '1:30' MINUTE TO SECOND", {"column": "at", "delay": "90s"}),
        ("WATERMARK FOR at AS at - INTERVAL '1' DAY(3)", {"column": "at", "delay": "1d"}),
        ("WATERMARK FOR ts AS ts - INTERVAL '5' MINUTES", {"column": "TIMESTAMP_MILLIS(ms)", "delay": "5m"}),
    ],
)
def test_a_watermark_is_the_tables(tmp_path: Path, definition: str, expected: dict[str, object]) -> None:
    """A watermark on a column or on a computed column, less an interval, is imported."""
    assert _carried(tmp_path, script(definition)) == WatermarkSettings.model_validate(expected)


@pytest.mark.parametrize(
    ("options", "before", "idle"),
    [
        ("", "", 30_000),
        ("", "SET 'table.exec.source.idle-timeout' = '1 min';", 60_000),
        (", 'scan.watermark.idle-timeout' = '5s'", "SET 'table.exec.source.idle-timeout' = '1 min';", 5_000),
        (", 'scan.watermark.emit.strategy' = 'on-event'", "SET 'table.exec.source.idle-timeout' = '0';", 30_000),
    ],
)
def test_a_source_is_idle_as_the_script_says(tmp_path: Path, options: str, before: str, idle: int) -> None:
    """The table's own idle option has precedence over the global one, and without both the job's default applies."""
    found = _carried(tmp_path, script("WATERMARK FOR at AS at", options, before))
    assert found is not None
    assert found.idle == idle


@pytest.mark.parametrize(
    ("definition", "note"),
    [
        ("WATERMARK FOR at AS at + INTERVAL '5' SECOND", "WATERMARK FOR at is not carried over: write at - INTERVAL"),
        ("WATERMARK FOR at AS at - INTERVAL '1' MONTH", "only an INTERVAL can be subtracted from at"),
        ("WATERMARK FOR at AS SOURCE_WATERMARK()", "write at - INTERVAL '5' SECOND"),
        ("WATERMARK FOR p AS p", "the rows of the table have no column p"),
        (
            "m TIMESTAMP(3) METADATA FROM 'timestamp', WATERMARK FOR m AS m",
            "the rows of the table have no column m",
        ),
    ],
)
def test_a_watermark_that_is_not_carried_over_is_named(tmp_path: Path, definition: str, note: str) -> None:
    """A watermark that cannot be imported is reported with its place and reason, and the table has none."""
    text = script(definition)
    found = imported("f.sql", text)
    assert any(note in each and each.startswith("f.sql:2:") for each in found.notes), found.notes
    assert _carried(tmp_path, text) is None


def test_watermarks_are_like_those_of_another_table_unless_it_says_otherwise(tmp_path: Path) -> None:
    """LIKE copies watermarks unless EXCLUDING WATERMARKS is given."""
    base = f"CREATE TABLE b (at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ({KAFKA});"
    rest = f"CREATE TABLE o (id BIGINT) WITH ({KAFKA}); INSERT INTO o SELECT id FROM t;"
    for clause, there in (("LIKE b", True), ("LIKE b (EXCLUDING WATERMARKS)", False), ("LIKE b (INCLUDING ALL)", True)):
        text = f"{base} CREATE TABLE t (id BIGINT) WITH ({KAFKA}) {clause}; {rest}"
        assert (_carried(tmp_path, text) is not None) == there


@pytest.mark.parametrize(
    ("early", "emit"), [("", "final"), ("SET 'table.exec.emit.early-fire.enabled' = 'true';", None)]
)
def test_rows_of_windows_come_once_unless_they_are_fired_early(tmp_path: Path, early: str, emit: str | None) -> None:
    """As in Flink, windows are emitted once and final, also to an upsert topic, unless early firing is enabled."""
    text = f"""{early} CREATE TABLE t (id BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ({KAFKA});
    CREATE TABLE o (id BIGINT, ends TIMESTAMP(3), n BIGINT, PRIMARY KEY (id, ends) NOT ENFORCED)
      WITH ('connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json');
    INSERT INTO o SELECT id, window_end, COUNT(*)
    FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' HOUR))
    WHERE id > 0 GROUP BY id, window_start, window_end;"""
    file = tmp_path / "job.yaml"
    file.write_text(imported("f.sql", text).text)
    assert load(file, {}).sinks["o"].emit == emit


@pytest.mark.parametrize(
    ("time", "value"),
    [("at TIMESTAMP(3)", "2026-01-01T00:00:{:02}"), ("s STRING, at AS TO_TIMESTAMP(s)", "2026-01-01 00:00:{:02}")],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM t ORDER BY at",
        "SELECT COUNT(*) OVER (ORDER BY at) AS id FROM t",
        "SELECT SUM(id - 1) OVER (ORDER BY at RANGE INTERVAL '1' SECOND PRECEDING) AS id FROM t",
        "SELECT ROW_NUMBER() OVER (ORDER BY at) AS id FROM t",
        "SELECT id FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES A.id AS id PATTERN (A) DEFINE A AS TRUE)",
    ],
)
def test_a_time_attribute_is_not_null(tmp_path: Path, time: str, value: str, query: str) -> None:
    """A time attribute, stored or computed, is NOT NULL, so OVER, ORDER BY and MATCH_RECOGNIZE can use it."""
    text = f"""CREATE TABLE t (id BIGINT, {time}, WATERMARK FOR at AS at - INTERVAL '1' SECOND) WITH ({KAFKA});
    CREATE TABLE o WITH ({KAFKA}) AS {query};"""
    column = "s" if "STRING" in time else "at"
    rows = inserts("t", [{"id": each, column: value.format(each)} for each in (2, 1, 3)])
    found = given(imported_job(tmp_path, text), rows, "o")
    assert sorted(row["id"] for row in found) == ([0, 1, 3] if "SUM" in query else [1, 2, 3])


def test_a_row_whose_computed_time_is_null_is_left_out(tmp_path: Path) -> None:
    """A row whose computed time is NULL is filtered out with a note, while Flink's job would fail."""
    text = f"""CREATE TABLE t (id BIGINT, s STRING, at AS TO_TIMESTAMP(s), WATERMARK FOR at AS at) WITH ({KAFKA});
    CREATE TABLE o WITH ({KAFKA}) AS
      SELECT id, window_end FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' HOUR));"""
    texts = ["2026-01-01 00:30:00", None, "no time", "2026-01-01 01:30:00"]
    rows = inserts("t", [{"id": each, "s": text} for each, text in enumerate(texts)])
    found = given(imported_job(tmp_path, text), rows, "o")
    assert [row["id"] for row in found] == [0, 3]
    (note,) = imported("f.sql", text).notes
    assert note == "f.sql:1:38: t: rows whose at is NULL are filtered out; Flink fails on them"


def _carried(folder: Path, text: str) -> WatermarkSettings | None:
    """Return the table's watermark in the imported job."""
    file = folder / "job.yaml"
    file.write_text(imported("f.sql", text).text)
    tables = load(file, {}).tables
    return tables.get("t", tables.get("t_topic")).watermark  # type: ignore[union-attr]
