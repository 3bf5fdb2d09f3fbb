"""The names by which `rowkind sql` calls the sinks and tables of a job, and tables without a topic."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowkind.operators.columns.changes import Rows
from rowkind.service.cli.query_output import warn_of_undecodable
from rowkind.service.client.as_of import as_of
from rowkind.service.client.consume import Chunk
from rowkind.service.client.external_table import OutsideError
from rowkind.service.client.job_tables import JobTables, QueryError
from rowkind.service.client.query_names import job_tables
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.kafka.dead_letter import DeadLetter

_SQL = "SELECT id FROM made"


def job(folder: Path, tables: dict[str, Any], sinks: dict[str, Any]) -> Job:
    """Return a job with these tables and sinks besides a generated table, whose broker does not exist."""
    made = {"mode": "append", "generate": {}, "columns": {"id": "BIGINT"}}
    document = {
        "job": "named",
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "registry": {"folder": "schemas"},
        "dead_letters": {"topic": "letters"},
        "tables": {"made": made, **tables},
        "sinks": sinks,
    }
    (folder / "job.yaml").write_text(json.dumps(document))
    return load(folder / "job.yaml")


def test_names_are_distinct_even_without_case(tmp_path: Path) -> None:
    """A table with the name of a sink is called after its source; no two names differ only in case."""
    table = {"mode": "append", "columns": {"id": "BIGINT"}}
    names = ("Totals", "LARGE_source", "large")
    sinks = {name: {"topic": f"{name}-out", "mode": "append", "sql": _SQL} for name in ("totals", "LARGE", "TOTALS")}
    found = job_tables(job(tmp_path, {name: {"topic": f"{name}-in", **table} for name in names}, sinks))
    assert {name: of.topic for name, of in found.items()} == {
        "totals": "totals-out",
        "LARGE": "LARGE-out",
        "TOTALS_": "TOTALS-out",
        "made": "",
        "Totals_source": "Totals-in",
        "LARGE_source": "LARGE_source-in",
        "large_source_": "large-in",
        "dead_letters": "letters",
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("made", "table made has no topic, because the job generates its rows: set `topic` instead of `generate`"),
        ("shown", "sink shown has no topic that could be read: with `to: print`, its changes are in the log of the"),
        ("gone", "sink gone has no topic that could be read: with `to: blackhole`, its changes are discarded."),
    ],
)
def test_a_table_without_a_topic_cannot_be_queried(name: str, message: str, tmp_path: Path) -> None:
    """The message says why there is no topic. It appears before a broker is asked for anything."""
    to = {"shown": {"to": "print", "sql": _SQL}, "gone": {"to": "blackhole", "sql": _SQL}}
    of = job(tmp_path, {}, to)
    with closing(JobTables(of, lambda: iter(()))) as tables:
        with pytest.raises(OutsideError) as caught:
            tables.ask(f"SELECT count(*) FROM {name}")
        assert str(caught.value).startswith(message)
        with pytest.raises(OutsideError):
            tables.describe(name)
    with pytest.raises(OutsideError, match=f"{name} has no topic, so it has no record {name}:0:7"):
        as_of(of, [f"{name}:0:7"])


def test_an_unknown_table_is_refused_with_the_names_of_the_job(tmp_path: Path) -> None:
    """DuckDB would suggest one of its own tables. A table that a query has created is found."""
    with closing(JobTables(job(tmp_path, {}, {"s": {"to": "print", "sql": _SQL}}), lambda: iter(()))) as tables:
        for name, end in (("mode", "did you mean made?"), ('"My Table"', "available: s, made, dead_letters")):
            with pytest.raises(QueryError) as caught:
                tables.ask(f"SELECT * FROM {name}")
            plain = name.strip('"')
            assert str(caught.value) == f"there is no table {plain!r}; {end}"
        tables.ask("CREATE TABLE mine AS SELECT 1 AS a")
        assert tables.ask("FROM mine").columns == ("a",)


def test_records_that_cannot_be_decoded_are_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A warning has their number and the reason of the first one. It is repeated only if the number grows."""
    table = {"topic": "in", "mode": "append", "columns": {"id": "BIGINT"}}
    of = job(tmp_path, {"orders": table}, {"s": {"to": "print", "sql": _SQL}})
    letter = DeadLetter("orders", "value", "UndecodableRowError", "it is bad", "in", 0, 3, 0)
    chunk = Chunk(Rows.empty(), [letter], np.empty(0, np.int64))
    with closing(JobTables(of, lambda: iter(()))) as tables:
        tables.describe("orders")
        for _ in range(2):
            tables._topics.tables["orders"].add(chunk)
            warn_of_undecodable(tables)
            warn_of_undecodable(tables)
    of_all = "of orders cannot be decoded and {} left out; the first is partition 0, offset 3: it is bad\n"
    assert capsys.readouterr().err == (
        f"rowkind: 1 record {of_all.format('is')}rowkind: 2 records {of_all.format('are')}"
    )


def test_unsigned_numbers_are_aligned_as_numbers(tmp_path: Path) -> None:
    """A list of numbers and a UUID are not."""
    with closing(JobTables(job(tmp_path, {}, {"s": {"to": "print", "sql": _SQL}}), lambda: iter(()))) as tables:
        found = tables.ask("SELECT 1::UBIGINT AS a, 1.5 AS b, [1] AS c, uuid() AS d, 'x' AS e, 1::UHUGEINT AS f")
        assert found.numbers == {"a", "b", "f"}
