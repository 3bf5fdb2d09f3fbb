"""WATERMARK in FROM, as in Spark: its declaration, the column that it adds, and the refused forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical.source_table import Watermark
from rowkind.service.plan.errors import PlanError
from rowkind.service.plan.pipeline import plan, source_table
from tests.clocked import Clocked

SECOND = 1_000_000
COLUMNS = '{id: BIGINT NOT NULL, ms: BIGINT NOT NULL, at: TIMESTAMP, place: "STRUCT<seen: TIMESTAMP>"}'


def job(folder: Path, *sql: str, said: str = "", views: str = "{}") -> Job:
    """Return a job with a sink for each query; `said` is the watermark setting in the job file."""
    table = f"{{mode: append, columns: {COLUMNS}{said and f', watermark: {said}'}}}"
    sinks = [f"  s{number}: {{mode: retract, sql: {json.dumps(each)}}}" for number, each in enumerate(sql)]
    text = (
        f"job: j\nviews: {views}\ntables:\n  events: {table}\n  others: {{mode: append, columns: {COLUMNS}}}\nsinks:\n"
    )
    (folder / "job.yaml").write_text(text + "\n".join(sinks))
    return load(folder / "job.yaml", {})


def declared(job: Job) -> Watermark:
    """Return the watermark of the table."""
    found = source_table(job, "events").watermark
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("clause", "of", "delay"),
    [
        ("events WATERMARK at DELAY OF INTERVAL 5 SECONDS", "at", 5 * SECOND),
        ("Events watermark AT delay of interval '1:30' MINUTE TO SECOND AS e", "at", 90 * SECOND),
        ("events WATERMARK e.at DELAY OF INTERVAL 1 MINUTE 30 SECONDS e", "at", 90 * SECOND),
        ("STREAM events WATERMARK at DELAY OF INTERVAL 0 SECONDS", "at", 0),
        ("STREAM(events) WATERMARK at DELAY OF INTERVAL 1 DAY AS e", "at", 86_400 * SECOND),
        (
            "events WATERMARK timestamp_millis(ms) AS ts DELAY OF INTERVAL 5 SECONDS e",
            "TIMESTAMP_MILLIS(ms)",
            5 * SECOND,
        ),
        ("events WATERMARK place.seen AS ts DELAY OF INTERVAL 5 SECONDS e", "place.seen", 5 * SECOND),
        ("others JOIN events WATERMARK at DELAY OF INTERVAL 1 DAY e USING (id)", "at", 86_400 * SECOND),
    ],
)
def test_the_clause_declares_the_watermark_of_the_table(tmp_path: Path, clause: str, of: str, delay: int) -> None:
    """In every spelling, the clause declares the watermark for all queries of the job."""
    both = job(tmp_path, "SELECT id FROM events", f"SELECT id FROM {clause}")
    found = declared(both)
    assert (found.subject, found.delay_us, found.idle_ms, found.late) == (of, delay, 30_000, "drop")
    for sink in both.sinks:
        plan(both, sink)


def test_what_the_clause_has_no_word_for_is_in_the_job_file(tmp_path: Path) -> None:
    """Settings that the clause lacks come from an equal watermark in the job file; a clause in a view counts too."""
    said = "{column: at, delay: 5s, idle: 2m, late: drop, allowed_lateness: 1h}"
    clause = "SELECT * FROM events WATERMARK at DELAY OF INTERVAL 5 SECONDS"
    found = declared(job(tmp_path, "SELECT id FROM v", clause, said=said, views=f'{{v: "{clause}"}}'))
    assert (found.subject, found.delay_us, found.idle_ms, found.allowed_ms) == ("at", 5 * SECOND, 120_000, 3_600_000)


def test_a_watermark_with_a_name_is_the_first_column(tmp_path: Path) -> None:
    """As in Spark, a named watermark expression is the first column, and windows over it are closed."""
    sql = "SELECT * FROM events WATERMARK TIMESTAMP_MILLIS(ms) AS ts DELAY OF INTERVAL 5 SECONDS AS e"
    assert plan(job(tmp_path, sql), "s0").value.names == ("ts", "id", "ms", "at", "place")
    counts = f"SELECT window.end AS e, COUNT(*) AS n FROM ({sql}) GROUP BY window(ts, '1 minute')"
    final = job(tmp_path, counts)
    sink = final.sinks["s0"].model_copy(update={"mode": "append"})
    query = Clocked.of(final.model_copy(update={"sinks": {"result": sink}}))
    for ms in (0, 64_999, 65_000):
        query.batch(0, ("events", "+I", {"id": 1, "ms": ms, "at": None, "place": None}))
        assert len(query.result) == (ms == 65_000)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT watermark.id FROM events watermark",
        "SELECT w.id FROM events AS w",
        "WITH watermark AS (SELECT id FROM events) SELECT id FROM watermark",
    ],
)
def test_a_table_may_be_called_so(tmp_path: Path, sql: str) -> None:
    """WATERMARK is an ordinary name if no time follows it."""
    plan(job(tmp_path, sql), "s0")


@pytest.mark.parametrize(
    ("sql", "said", "reason", "marked"),
    [
        (
            "events WATERMARK at DELAY OF INTERVAL 6 SECONDS",
            "{column: at, delay: 5s}",
            "table events already has a different watermark, at with a delay of 5s in the job file, and all queries of",
            "at",
        ),
        (
            "events WATERMARK at DELAY OF INTERVAL 1 DAY, events WATERMARK at DELAY OF INTERVAL 2 DAYS AS b",
            "",
            "table events already has a different watermark, at with a delay of 1d in sinks.s0.sql",
            "at",
        ),
        ("events WATERMARK att DELAY OF INTERVAL 1 SECOND", "", "events has no column att; did you mean at?", "att"),
        ("events WATERMARK x.at DELAY OF INTERVAL 1 SECOND e", "", "there is no table x in FROM; available: e", "x"),
        (
            "events WATERMARK ms DELAY OF INTERVAL 1 SECOND",
            "",
            "a watermark needs a TIMESTAMP, but ms has type BIGINT: write TIMESTAMP_MILLIS(ms)",
            "ms",
        ),
        (
            "events WATERMARK at DELAY OF INTERVAL -5 SECONDS",
            "",
            "the delay cannot be negative",
            "at",
        ),
        ("events WATERMARK at DELAY OF INTERVAL 1 MONTH", "", "the delay must be in days or shorter units", "at"),
        (
            "events WATERMARK at DELAY OF '5 seconds'",
            "",
            "expected a time and a delay, as in WATERMARK ts DELAY OF",
            "",
        ),
        ("(SELECT * FROM events) WATERMARK at DELAY OF INTERVAL 1 DAY", "", "must follow the name of a table", "at"),
        ("v WATERMARK at DELAY OF INTERVAL 1 DAY", "", "move it to that table, inside the view or derived table", "at"),
        (
            "events WATERMARK TIMESTAMP_MILLIS(ms) DELAY OF INTERVAL 1 DAY",
            "",
            "the time of a watermark needs a name: write WATERMARK TIMESTAMP_MILLIS(ms) AS ts DELAY OF …",
            "TIMESTAMP_MILLIS(ms",
        ),
        (
            "events WATERMARK TIMESTAMP_MILLIS(ms) AS at DELAY OF INTERVAL 1 DAY",
            "",
            "there is already a column at: give the time another name",
            "at",
        ),
        ("events WATERMARK at DELAY OF INTERVAL 1 DAY e(a, b, c, d)", "", "name the columns in a derived table", ""),
    ],
)
def test_what_is_refused(tmp_path: Path, sql: str, said: str, reason: str, marked: str) -> None:
    """An invalid clause is refused with the reason and its place in the SQL."""
    with pytest.raises(PlanError) as caught:
        plan(job(tmp_path, f"SELECT id FROM {sql}", said=said, views='{v: "SELECT * FROM events"}'), "s0")
    assert reason in str(caught.value)
    span = caught.value.span
    assert span is not None
    assert caught.value.sql[span.first : span.last + 1].startswith(marked)


def test_another_sink_is_blamed_where_it_is_its_clause(tmp_path: Path) -> None:
    """A conflict between two clauses is reported at the clause of the sink that causes it, not at the planned sink."""
    clause = "SELECT id FROM events WATERMARK at DELAY OF INTERVAL {} SECONDS"
    with pytest.raises(
        PlanError, match=r"job.yaml:9: sinks.s2.sql: table events already has a different watermark.*sinks.s1.sql"
    ):
        plan(job(tmp_path, "SELECT id FROM events", clause.format(1), clause.format(2)), "s0")
