"""Generated tables: a valid changelog with the shares that were asked for, the same for every division into ranges."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowkind.avro.registry import FolderRegistry
from rowkind.operators.changelog import SYMBOLS, ChangelogMode
from rowkind.operators.columns.changes import Rows
from rowkind.service.job.errors import JobError
from rowkind.service.job.load import generate_settings, loaded
from rowkind.service.kafka.decode import Decoder
from rowkind.service.kafka.generated_topic import GeneratedTopic
from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.pipeline import plan, source_table
from tests.kafka.tables import pass_on

BEGUN = 1_700_000_000_000
COUNT = 4_000
COLUMNS = """
      id: BIGINT NOT NULL
      flag: BOOLEAN
      name: STRING
      code: BINARY
      price: DECIMAL(10,2)
      small: DECIMAL(2,2)
      score: DOUBLE
      ratio: FLOAT
      count: INT
      day: DATE
      hour: TIME
      at: TIMESTAMP NOT NULL
      local: TIMESTAMP_NTZ
      tags: ARRAY<STRING>
      sizes: "MAP<STRING, INT>"
      place: "STRUCT<x: INT, y: STRING>"
"""


def table(mode: str, generate: str = "{}", columns: str = COLUMNS) -> SourceTable:
    """Return a generated table with a row per ms."""
    text = f"""
job: j
tables:
  t:
    mode: {mode}
    {"primary_key: id" if mode != "append" else ""}
    generate: {generate}
    columns:{columns.rstrip()}
sinks: {{o: {{mode: retract, sql: SELECT * FROM t}}}}
"""
    return source_table(loaded(text, Path("job.yaml")), "t")


def changes(mode: str, generate: str = "{}", count: int = COUNT) -> list[tuple[str, dict[str, Any]]]:
    """Return the first changes: row kinds and rows."""
    topic = GeneratedTopic(table(mode, generate), BEGUN)
    found = topic.changes(0, count)
    rows = topic.columns(found).to_pylist()
    return [(SYMBOLS[kind], row) for kind, row in zip(found.kind.tolist(), rows, strict=True)]


@pytest.mark.parametrize("mode", ["retract", "upsert"])
@pytest.mark.parametrize(
    "shares", ["{keys: 50}", "{updates: 0.4, deletes: 0.25, keys: 7}", "{updates: 0.8, deletes: 0.05, skew: 2}"]
)
def test_the_changes_are_a_changelog_of_their_mode(mode: ChangelogMode, shares: str) -> None:
    """A row is inserted once, and retracted as it was sent."""
    rows: dict[int, dict[str, object]] = {}
    found = changes(mode, shares)
    for kind, row in found:
        key = row["id"]
        if kind == "+I":
            assert key not in rows
        elif kind in ("-U", "-D"):
            assert rows.pop(key) == row
        else:
            assert (key in rows) == (mode == "upsert")
        if kind in ("+I", "+U"):
            rows[key] = row
    kinds = {kind for kind, _ in found}
    assert kinds == {"+I", "+U", "-D"} | ({"-U"} if mode == "retract" else set())


@pytest.mark.parametrize("mode", ["append", "retract", "upsert"])
def test_any_range_is_generated_alone(mode: ChangelogMode) -> None:
    """The records of a range do not depend on the ranges that were read before."""
    topic = GeneratedTopic(table(mode, "{keys: 300, skew: 1, updates: 0.6, deletes: 0.15}"), BEGUN)
    whole = next(topic.records(0, 9_000))
    rng = np.random.default_rng(7)
    for start, stop in np.sort(rng.integers(0, 9_000, (20, 2)), axis=1).tolist():
        parts = list(topic.records(start, stop))
        inside = np.flatnonzero((whole.offset >= start) & (whole.offset < stop))
        expected = whole.take(inside)
        assert sum(map(len, parts)) == len(inside), (start, stop)
        for part in parts:
            assert part.offset.tolist() == expected.offset.tolist()
            assert part.value.equals(expected.value)
            assert part.key.equals(expected.key)
            assert list(part.headers or ()) == list(expected.headers or ())


@pytest.mark.parametrize("mode", ["append", "retract", "upsert"])
def test_the_records_are_read_as_those_of_a_topic(mode: ChangelogMode, tmp_path: Path) -> None:
    """The decoder reads every record, with the kinds and rows that were generated."""
    of = table(mode)
    topic = GeneratedTopic(of, BEGUN)
    scan = PhysicalScan("t", of, pass_on(of.declared))
    decoder = Decoder(scan, FolderRegistry(tmp_path), tolerate=False)
    decoded = Rows.concat([decoder.decode(records).rows for records in topic.records(0, COUNT)])
    kinds = [kind for kind, _ in changes(mode)]
    if mode == "upsert":
        kinds = ["-D" if kind == "-D" else "+U" for kind in kinds]
    assert [SYMBOLS[kind] for kind in decoded.kind.tolist()] == kinds


def test_an_append_table_gets_insertions_only() -> None:
    """Numbers are random, unless the column is a sequence, whose end ends the table."""
    found = changes("append", "{columns: {id: {start: 5, end: 30}, count: {min: 3, max: 4}}}")
    assert [(kind, row["id"]) for kind, row in found[:3]] == [("+I", 5), ("+I", 6), ("+I", 7)]
    assert {row["count"] for _, row in found} == {3, 4}
    schedule = table("append", "{columns: {id: {start: 5, end: 30}}}").schedule(BEGUN)
    assert schedule is not None
    assert schedule.end(BEGUN + 1e9) == 26


def test_the_shares_are_about_those_asked_for() -> None:
    """Updates, deletes, NULLs and late rows."""
    found = changes(
        "upsert", "{updates: 0.5, deletes: 0.2, late: 0.1, rows_per_second: 1000, columns: {name: {null_rate: 0.25}}}"
    )
    kinds = Counter(kind for kind, _ in found)
    assert kinds["+U"] / COUNT == pytest.approx(0.5, abs=0.05)
    assert kinds["-D"] / COUNT == pytest.approx(0.2, abs=0.05)
    assert sum(row["name"] is None for _, row in found) / COUNT == pytest.approx(0.25, abs=0.03)
    begun = datetime.fromtimestamp(BEGUN / 1000, UTC)
    assert sum(row["at"] < begun for _, row in found) / COUNT == pytest.approx(0.1, abs=0.03)
    assert max(row["at"] for _, row in found) - begun < timedelta(seconds=COUNT / 1000)


def test_values_fit_their_types_and_settings() -> None:
    """Ranges, lengths, choices and past times."""
    found = changes(
        "append",
        "{columns: {name: {length: 3, var_len: true}, price: {min: 1, max: 2.5}, count: {skew: 2}, "
        "local: {max_past: 1min}, small: [0.5], tags: {length: 2}}, rows_per_second: 1000000}",
    )
    rows = [row for _, row in found]
    assert {len(row["name"]) for row in rows} == {1, 2, 3}
    assert all(Decimal(1) <= row["price"] <= Decimal("2.5") for row in rows)
    assert {row["small"] for row in rows} == {Decimal("0.50")}
    assert {len(row["tags"]) for row in rows} == {2}
    past = [(row["at"].replace(tzinfo=None) - row["local"]).total_seconds() for row in rows]
    assert 0 <= min(past) < 1
    assert 59 < max(past) <= 60
    counts = Counter(row["count"] for row in rows)
    assert counts[0] > 4 * counts[1] / 2 > 0


def test_equal_seeds_give_equal_changes() -> None:
    """Except for the times."""
    times = ("at", "local", "hour", "day")
    plain = [
        [
            (kind, {name: row[name] for name in row if name not in times})
            for kind, row in changes("retract", f"{{seed: {seed}}}", 500)
        ]
        for seed in (7, 7, 8)
    ]
    assert plain[0] == plain[1]
    assert plain[0] != plain[2]


def test_a_table_grows_with_the_clock() -> None:
    """An update of a retract table is one change, but two records."""
    settings = "{rows_per_second: 10, number_of_rows: 25}"
    append, retract = (table(mode, settings).schedule(BEGUN) for mode in ("append", "retract"))
    assert append is not None
    assert retract is not None
    assert [append.end(BEGUN + ms) for ms in (-200, 0, 99, 100, 1_000, 60_000)] == [0, 1, 1, 2, 11, 25]
    assert retract.end(BEGUN + 1_000) == 22
    assert (append.time_ms(11), retract.time_ms(11)) == (BEGUN + 1_100, BEGUN + 500)


REFUSED = {
    "generate: {columns: {x: {min: 1}}}": "`generate` has 'x', which is not a column; the columns are id, name",
    "generate: {columns: {id: {max: 9223372036854775808}}}": "'id' is BIGINT, which cannot be 9223372036854775808",
    "generate: {columns: {name: {min: 1}}}": "'name' is STRING, to which `min` does not apply",
    "generate: {columns: {name: {start: 1}}}": "'name' is STRING, but only numbers can be a sequence",
    "generate: {columns: {id: {null_rate: 0.1}}}": "'id' is NOT NULL, so it cannot have a `null_rate`",
    "generate: {columns: {id: [1, x]}}": "'id' is BIGINT, but its value 'x' is not a number",
    "generate: {columns: {id: {min: 3, max: 2}}}": "`max` is 2, but must be at least `min`, 3",
    "generate: {columns: {id: {mni: 3}}}": "unknown setting; did you mean min?",
    "generate: {updates: 0.8, deletes: 0.1}": "`deletes` leave a share of 0.1 for inserts, which must be at least 0.11",
    "generate: {rate: 5}": "unknown setting; ",
    "generate: {}\n    topic: a": "`topic` is about a topic, but the table is generated: remove it, or `generate`",
    "generate: {}\n    start: latest": "`start` is about a topic, but the table is generated",
}


@pytest.mark.parametrize("settings", REFUSED)
def test_settings_that_do_not_fit_are_refused(settings: str) -> None:
    """The message says which setting, and why."""
    text = f"""
job: j
tables:
  t:
    mode: append
    {settings}
    columns: {{id: BIGINT NOT NULL, name: STRING}}
sinks: {{o: {{mode: append, sql: SELECT id FROM t}}}}
"""
    with pytest.raises(JobError) as refused:
        plan(loaded(text, Path("job.yaml")), "o")
    assert REFUSED[settings] in str(refused.value)


def test_settings_of_the_command_line_are_checked_in_the_same_way() -> None:
    """`rowkind generate` names the setting."""
    assert generate_settings({"seed": 3}, ["a: [x, y]"]).columns["a"].values == ("x", "y")
    with pytest.raises(ValueError, match=r"columns\.a\.null_rate: .*expected at most 1"):
        generate_settings({}, ["a: {null_rate: 2}"])
    with pytest.raises(ValueError, match="expected `name:"):
        generate_settings({}, ["a"])


def test_null_arrays_are_generated() -> None:
    """NULL may be the value of any type."""
    names = [name for name in table("append").declared.names if name not in ("id", "at")]
    columns = ", ".join(f"{name}: {{null_rate: 1}}" for name in names)
    topic = GeneratedTopic(table("append", f"{{columns: {{{columns}}}}}"), BEGUN)
    rows = topic.columns(topic.changes(0, 10))
    assert all(rows.column(name).null_count == 10 for name in names)


def test_the_job_of_the_page_can_be_planned() -> None:
    """docs/how-to/generate-rows.md has one job."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "generate-rows.md").read_text("utf-8")
    job = loaded(page.partition("```yaml\n")[2].partition("```")[0], Path("job.yaml"))
    assert plan(job, "sales").mode == "upsert"
