"""Tables with Flink's connector datagen become generated tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rowkind.service.flink.job_file import imported
from rowkind.service.kafka.generated_topic import GeneratedTopic
from rowkind.service.plan.pipeline import source_table
from tests.flink.trying import imported_job

SCRIPT = """
CREATE TABLE Orders (
  order_number BIGINT,
  quantity SMALLINT,
  price DECIMAL(32,2),
  buyer ROW<first_name STRING, last_name STRING>,
  note STRING,
  order_time TIMESTAMP(3),
  total AS price * 2,
  WATERMARK FOR order_time AS order_time - INTERVAL '5' SECOND
) WITH (
  'connector' = 'datagen', 'rows-per-second' = '5', 'number-of-rows' = '100',
  'fields.order_number.kind' = 'sequence', 'fields.order_number.start' = '7', 'fields.order_number.end' = '20',
  'fields.price.min' = '1', 'fields.price.max' = '2.5',
  'fields.note.length' = '10', 'fields.note.var-len' = 'true', 'fields.note.null-rate' = '0.5',
  'fields.order_time.max-past' = '1 min'{OPTION}
);
CREATE TABLE sums (n BIGINT, total DECIMAL(38,2)) WITH ('connector' = 'print');
INSERT INTO sums SELECT COUNT(*), SUM(total) FROM Orders;
"""


def test_the_options_of_datagen_are_settings_of_generate(tmp_path: Path) -> None:
    """Every option has its setting, and the defaults of Flink are written out."""
    job = imported_job(tmp_path, SCRIPT.replace("{OPTION}", ""))
    generate = job.tables["Orders_topic"].generate
    assert generate is not None
    assert (generate.rows_per_second, generate.number_of_rows) == (5, 100)
    assert settings(generate.columns) == {
        "order_number": {"kind": "sequence", "start": 7, "end": 20},
        "quantity": {"min": -32768, "max": 32767},
        "price": {"min": 1, "max": 2.5},
        "note": {"length": 10, "var_len": True, "null_rate": 0.5},
        "order_time": {"max_past": 60_000},
    }
    topic = GeneratedTopic(source_table(job, "Orders_topic"), 0)
    rows = topic.columns(topic.changes(0, 14)).to_pylist()
    assert [row["order_number"] for row in rows] == list(range(7, 21))


def test_what_a_job_cannot_generate_is_noted() -> None:
    """An option that has no setting, a field that the table does not have, and a value that is no number."""
    for option, told in (
        (", 'fields.absent.min' = '1'", "Orders: the option fields.absent.min of datagen is not supported"),
        (", 'fields.quantity.min' = 'x'", "Orders: min: 'x' is not a number"),
        (", 'source' = 'x'", "Orders: the option source of datagen is not supported"),
    ):
        assert any(told in note for note in imported("f.sql", SCRIPT.replace("{OPTION}", option)).notes), option


def settings(columns: Any) -> dict[str, Any]:
    """Return the settings that the columns have."""
    return {name: column.model_dump(exclude_unset=True) for name, column in columns.items()}
