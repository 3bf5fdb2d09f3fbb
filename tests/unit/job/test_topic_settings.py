"""Topic settings of a table besides its columns: units of numbers, key format, record name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowkind.service.job.columns import declared
from rowkind.service.job.errors import JobError
from rowkind.service.job.load import loaded
from rowkind.service.plan.pipeline import source_table

COLUMNS = "{id: BIGINT NOT NULL, code: STRING NOT NULL, day: DATE, at: TIME, due: TIMESTAMP_NTZ}"


def table(settings: str) -> str:
    """Return a job file whose table has the given settings."""
    return f"""
job: j
tables:
  t: {{mode: upsert, format: json, columns: {COLUMNS}, {settings}}}
sinks:
  out: {{topic: o, mode: upsert, key: id, sql: SELECT id FROM t}}
"""


def test_units_keys_and_the_record_type_reach_the_reader(tmp_path: Path) -> None:
    """Units, the key format and the record name reach the source; `key` may be a section."""
    for key in ("key.format: long", "key: {format: long}"):
        settings = f"primary_key: id, {key}, record: a.B, units: {{day: days, at: millis, due: micros}}"
        source = source_table(loaded(table(settings), tmp_path / "job.yaml"), "t")
        assert source.key_format == "long"
        assert source.record == "a.B"
        assert dict(source.units) == {"day": "days", "at": "millis", "due": "micros"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            "primary_key: id, units: {x: days}",
            "units: `units` has 'x', which is not a column; the columns are id, code",
        ),
        ("primary_key: id, units: {id: millis}", "'id' is BIGINT: only a DATE, TIME or TIMESTAMP has a unit"),
        ("primary_key: id, units: {day: millis}", "'day' is DATE, whose unit must be days, not millis"),
        ("primary_key: id, units: {due: days}", "whose unit must be seconds, millis, micros or nanos, not days"),
        ("primary_key: id, units: {due: hours}", "'hours': expected days, seconds, millis, micros or nanos"),
        ("primary_key: id, key.format: raw", "'raw': expected string, long, json or avro"),
        (
            "primary_key: [id, code], key.format: string",
            "needs a primary key of one column, but the primary key has 2: id, code",
        ),
        ("primary_key: code, key.format: long", "`key.format: long` needs a BIGINT key, but 'code' is STRING"),
        ("primary_key: id, format: plain_avro, record: a.B", "`format: plain_avro` does not have"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: str, problem: str, tmp_path: Path) -> None:
    """An invalid setting is refused with the valid choices."""
    text = table(settings).replace("format: json, ", "") if "plain_avro" in settings else table(settings)
    with pytest.raises(JobError) as caught:
        declared(loaded(text, tmp_path / "job.yaml"), "t")
    assert problem in str(caught.value)
