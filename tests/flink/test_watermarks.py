"""WATERMARK in a script, and the options about idle sources: what the table says in the job file, or why nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.flink.job_file import imported
from rowkind.service.job.load import load
from rowkind.service.job.table import WatermarkSettings

KAFKA = "'connector' = 'kafka', 'format' = 'json'"


def script(definition: str, options: str = "", before: str = "") -> str:
    """A script with a table that has this definition among its columns."""
    return f"""{before}
    CREATE TABLE t (id BIGINT, ms BIGINT, at TIMESTAMP(3), p AS PROCTIME(), ts AS TO_TIMESTAMP_LTZ(ms, 3), {definition})
      WITH ({KAFKA}{options});
    CREATE TABLE o (id BIGINT) WITH ({KAFKA});
    INSERT INTO o SELECT id FROM t;"""


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("WATERMARK FOR at AS at", {"column": "at"}),
        ("WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND", {"column": "at", "delay": 5_000}),
        ("WATERMARK FOR at AS at - INTERVAL '0.001' SECOND", {"column": "at", "delay": 1}),
        ("WATERMARK FOR at AS at - INTERVAL '1:30' MINUTE TO SECOND", {"column": "at", "delay": 90_000}),
        ("WATERMARK FOR at AS at - INTERVAL '1' DAY(3)", {"column": "at", "delay": 86_400_000}),
        ("WATERMARK FOR ts AS ts - INTERVAL '5' MINUTES", {"column": "TIMESTAMP_MILLIS(ms)", "delay": 300_000}),
    ],
)
def test_a_watermark_is_the_tables(tmp_path: Path, definition: str, expected: dict[str, object]) -> None:
    """Of a column or of what is computed from some, less an interval."""
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
    """The table's own option counts before that of all tables, and where none says so it is the job's default."""
    found = _carried(tmp_path, script("WATERMARK FOR at AS at", options, before))
    assert found is not None
    assert found.idle == idle


@pytest.mark.parametrize(
    ("definition", "note"),
    [
        ("WATERMARK FOR at AS at + INTERVAL '5' SECOND", "WATERMARK FOR at is not carried over: write at - INTERVAL"),
        ("WATERMARK FOR at AS at - INTERVAL '1' MONTH", "what is taken off at is an INTERVAL"),
        ("WATERMARK FOR at AS SOURCE_WATERMARK()", "write at - INTERVAL '5' SECOND"),
        ("WATERMARK FOR p AS p", "the table has no column p in its rows"),
        (
            "m TIMESTAMP(3) METADATA FROM 'timestamp', WATERMARK FOR m AS m",
            "the table has no column m in its rows",
        ),
    ],
)
def test_a_watermark_that_is_not_carried_over_is_named(tmp_path: Path, definition: str, note: str) -> None:
    """The table is there without it, and the place and the reason are told."""
    text = script(definition)
    found = imported("f.sql", text)
    assert any(note in each and each.startswith("f.sql:2:") for each in found.notes), found.notes
    assert _carried(tmp_path, text) is None


def test_watermarks_are_like_those_of_another_table_unless_it_says_otherwise(tmp_path: Path) -> None:
    """LIKE takes them over, EXCLUDING WATERMARKS does not."""
    base = f"CREATE TABLE b (at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ({KAFKA});"
    rest = f"CREATE TABLE o (id BIGINT) WITH ({KAFKA}); INSERT INTO o SELECT id FROM t;"
    for clause, there in (("LIKE b", True), ("LIKE b (EXCLUDING WATERMARKS)", False), ("LIKE b (INCLUDING ALL)", True)):
        text = f"{base} CREATE TABLE t (id BIGINT) WITH ({KAFKA}) {clause}; {rest}"
        assert (_carried(tmp_path, text) is not None) == there


@pytest.mark.parametrize(
    ("early", "emit"), [("", "final"), ("SET 'table.exec.emit.early-fire.enabled' = 'true';", None)]
)
def test_rows_of_windows_come_once_unless_they_are_fired_early(tmp_path: Path, early: str, emit: str | None) -> None:
    """As in Flink, where a window's row comes when the window is over, also in an upsert topic."""
    text = f"""{early} CREATE TABLE t (id BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ({KAFKA});
    CREATE TABLE o (id BIGINT, ends TIMESTAMP(3), n BIGINT, PRIMARY KEY (id, ends) NOT ENFORCED)
      WITH ('connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json');
    INSERT INTO o SELECT id, window_end, COUNT(*)
    FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' HOUR))
    WHERE id > 0 GROUP BY id, window_start, window_end;"""
    file = tmp_path / "job.yaml"
    file.write_text(imported("f.sql", text).text)
    assert load(file, {}).sinks["o"].emit == emit


def _carried(folder: Path, text: str) -> WatermarkSettings | None:
    """The watermark of the table in the job that a script becomes."""
    file = folder / "job.yaml"
    file.write_text(imported("f.sql", text).text)
    tables = load(file, {}).tables
    return tables.get("t", tables.get("t_topic")).watermark  # type: ignore[union-attr]
