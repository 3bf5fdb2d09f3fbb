"""Errors of a job file: the exact messages, with file, line and field."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from rowkind.service.job.errors import JobError
from rowkind.service.job.load import load

GOOD = """
job: shop
kafka: {bootstrap.servers: "localhost:9092"}
registry: {folder: schemas}
checkpoint: /tmp/checkpoint
tables:
  orders:
    mode: retract
    columns: {order_id: BIGINT NOT NULL, amount: "DECIMAL(10,2)"}
    primary_key: [order_id]
sinks:
  result:
    mode: retract
    sql: SELECT order_id FROM orders
"""


def refused(folder: Path, text: str) -> list[str]:
    """Return the problems of a job file, without the path before the line number."""
    file = folder / "job.yaml"
    file.write_text(textwrap.dedent(text).lstrip("\n"))
    with pytest.raises(JobError) as caught:
        load(file, environment={"SET": "x"})
    return [line.removeprefix(f"{file}:") for line in str(caught.value).splitlines()]


def changed(old: str, new: str) -> str:
    """Return the valid job with one line changed."""
    assert old in GOOD
    return GOOD.replace(old, new)


TYPES = (
    "Accepted types: BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, VARCHAR(n), "
    "CHAR(n), BINARY, DATE, TIME(p), TIMESTAMP(p), TIMESTAMP_NTZ(p), UUID, ARRAY<…>, MAP<STRING, …>, STRUCT<name: …>, "
    "each with or without NOT NULL."
)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("job: shop", "job: my shop", "1: job: 'my shop': expected letters, digits, . _ and - only"),
        ("job: shop", "jobb: shop", "1: jobb: unknown setting; did you mean job?"),
        ("job: shop", "", "1: job is missing: the job's name, which is also used for its transactions and metrics"),
        (
            '{bootstrap.servers: "localhost:9092"}',
            "{client.id: x}",
            "2: kafka: `bootstrap.servers` is missing: the addresses of the brokers, such as localhost:9092",
        ),
        ('{bootstrap.servers: "localhost:9092"}', "[localhost]", "2: kafka: expected a mapping"),
        (
            '{bootstrap.servers: "localhost:9092"}',
            '{bootstrap.servers: "localhost:9092", outage: long}',
            "2: kafka: `outage`: 'long' is not a length of time such as 30d, 12h, 15m, 90s or 1500ms",
        ),
        (
            "{folder: schemas}",
            "{folder: schemas, url: http://localhost}",
            "3: registry: expected either `url`, a registry with Confluent's API, or `folder`, a folder of .avsc files",
        ),
        (
            "{folder: schemas}",
            "{url: http://localhost, timeout: 5s}",
            "3: registry: `timeout` must be a number of seconds above 0, not '5s'",
        ),
        (
            "{folder: schemas}",
            "{url: http://localhost, max.retries: many}",
            "3: registry: `max.retries` must be a number, 0 or more, not 'many'",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "ttl: 30 days",
            "4: ttl: '30 days' is not a length of time such as 30d, 12h, 15m, 90s or 1500ms",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "ttl: 0d",
            "4: ttl: the length must be more than 0, or everything would expire at once; omit the setting for no limit",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "ttl: 30",
            "4: ttl: 30 has no unit: write 30ms, 30s, 30m, 30h or 30d",
        ),
        ("checkpoint: /tmp/checkpoint", "parallelism: many", "4: parallelism: 'many': expected a whole number"),
        ("checkpoint: /tmp/checkpoint", "parallelism: 0", "4: parallelism: '0': expected more than 0"),
        (
            "checkpoint: /tmp/checkpoint",
            "memory: 2 GByte",
            "4: memory: '2 GByte' is not an amount of memory such as 2g, 1536m or 2Gi",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "memory: 1000m",
            "1: `memory` is 1000m, but a job with parallelism 2 needs at least 2020m",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "batch: {max_row: 5}",
            "4: batch.max_row: unknown setting; did you mean max_rows?",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "unmatched: explode",
            "4: unmatched: 'explode': expected ignore, dead_letter or fail",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "unmatched: dead_letter",
            "1: `unmatched: dead_letter` needs `dead_letters: {topic: …}`",
        ),
        (
            "checkpoint: /tmp/checkpoint",
            "dead_letters: {tolerance: all}",
            "4: dead_letters: `tolerance: all` needs a `topic`: dead letters must be written somewhere",
        ),
        (
            "    mode: retract\n    columns",
            "    mode: retrakt\n    columns",
            "7: tables.orders.mode: 'retrakt': expected append, upsert, retract or debezium",
        ),
        (
            "    mode: retract\n    columns",
            "    columns",
            "6: tables.orders: mode is missing: append, retract or upsert",
        ),
        (
            (
                '    mode: retract\n    columns: {order_id: BIGINT NOT NULL, amount: "DECIMAL(10,2)"}\n'
                "    primary_key: [order_id]"
            ),
            "    mode: debezium\n    columns: {order_id: BIGINT NOT NULL}",
            "6: tables.orders: a debezium table needs `primary_key`: the columns that identify the row to be replaced",
        ),
        (
            '    mode: retract\n    columns: {order_id: BIGINT NOT NULL, amount: "DECIMAL(10,2)"}',
            "    mode: retract\n    format: json",
            "6: tables.orders: `format: json` needs `columns` or a `schema`: its columns are not in a registry",
        ),
        (
            "BIGINT NOT NULL",
            "BIGNT",
            f"8: tables.orders.columns: column 'order_id': SQL type 'BIGNT': BIGNT is not a known type. {TYPES}",
        ),
        (
            "DECIMAL(10,2)",
            "DECIMAL(50,2)",
            (
                "8: tables.orders.columns: column 'amount': DECIMAL(50,2) is too wide: a decimal has up to 38 digits, "
                "as DECIMAL(38,2)"
            ),
        ),
        (
            "    primary_key: [order_id]",
            "    primry_key: [order_id]",
            "9: tables.orders.primry_key: unknown setting; did you mean primary_key?",
        ),
        (
            "    primary_key: [order_id]",
            "    primary_key: [id]",
            "6: tables.orders: the primary key has 'id', which is not a column; the columns are order_id, amount",
        ),
        (
            "    primary_key: [order_id]",
            "    schema: orders.avsc",
            "6: tables.orders: `columns` and `schema` cannot both be set: remove one of them",
        ),
        (
            "    primary_key: [order_id]",
            "    row_kind: {preset: flink}",
            (
                "9: tables.orders.row_kind.preset: 'flink' is not a known spelling of row kinds: expected debezium, "
                "diff, ordinal, rowkind or words"
            ),
        ),
        (
            "    primary_key: [order_id]",
            "    row_kind: {values: {new: +I, gone: -X}}",
            "9: tables.orders.row_kind.values: the row kind of 'gone' is '-X', but must be +I, -U, +U or -D",
        ),
        (
            "    primary_key: [order_id]",
            "    row_kind: {values: {new: +I}}",
            "9: tables.orders.row_kind.values: a row kind header must have a spelling for +I and a spelling for -D",
        ),
        (
            "    primary_key: [order_id]",
            "    start: {at: timestamp}",
            "9: tables.orders.start: `at: timestamp` and `timestamp` must be set together",
        ),
        (
            "    primary_key: [order_id]",
            "    start: {timestamp: yesterday}",
            "9: tables.orders.start.timestamp: 'yesterday': expected a time such as 2026-01-31T12:00:00Z",
        ),
        (
            "    mode: retract\n    sql",
            "    mode: upsert\n    sql",
            "11: sinks.result: an upsert sink needs `key`: the columns that identify a row of the result",
        ),
        (
            "    mode: retract\n    sql",
            "    mode: retract\n    delivery: at_least_once\n    sql",
            (
                "11: sinks.result: `delivery: at_least_once` may write changes twice, which only upsert sinks "
                "allow; this sink has mode retract"
            ),
        ),
        (
            "    sql: SELECT order_id FROM orders",
            "    topic: a b",
            "13: sinks.result.topic: 'a b': expected letters, digits, . _ and - only",
        ),
        ("  orders:", "  my-orders:", "6: tables.my-orders: 'my-orders': expected letters, digits and _ only"),
        (
            "sinks:\n",
            "views: {Orders: SELECT 1}\nsinks:\n",
            "1: 'orders' and 'Orders' are the same name in SQL: rename one",
        ),
        (
            "sinks:\n",
            "sinks:\n  other: {mode: retract, sql: SELECT order_id, amount FROM orders}\n",
            (
                "11: sinks.other.sql: text with a comma must be in quotes here: sql: "
                '"SELECT order_id, amount FROM orders"'
            ),
        ),
        (
            '"DECIMAL(10,2)"',
            "DECIMAL(10,2)",
            '8: tables.orders.columns.amount: text with a comma must be in quotes here: amount: "DECIMAL(10, 2)"',
        ),
        (
            "sinks:\n",
            "sinks:\n  other: {topic: result, mode: retract, sql: SELECT 1}\n",
            "1: the sinks 'other' and 'result' both write to topic 'result'",
        ),
        (
            "primary_key: [order_id]",
            "watermark: {delay: 5s}",
            (
                "9: tables.orders.watermark: column is missing: the column with the time of a row, or an SQL "
                "expression over the columns"
            ),
        ),
        (
            "primary_key: [order_id]",
            "watermark: {column: placed, delay: -5s}",
            "9: tables.orders.watermark.delay: the delay cannot be negative, because rows in order would then be late",
        ),
        (
            "primary_key: [order_id]",
            "watermark: {column: placed, delay: 5 apples}",
            "9: tables.orders.watermark.delay: '5 apples' is not a length of time such as 30d, 12h, 15m, 90s or 1500ms",
        ),
        (
            "primary_key: [order_id]",
            "watermark: {column: placed, idle: 0s}",
            (
                "9: tables.orders.watermark.idle: `idle` must be more than 0, or every partition would be idle at "
                "once: write a length of time such as 30s"
            ),
        ),
        (
            "primary_key: [order_id]",
            "watermark: {column: placed, late: keep}",
            "9: tables.orders.watermark.late: 'keep': expected drop or dead_letter",
        ),
        (
            "primary_key: [order_id]",
            "watermark: {column: placed, late: dead_letter}",
            "1: `late: dead_letter` in the watermark of orders needs `dead_letters: {topic: …}`",
        ),
        (
            "primary_key: [order_id]",
            "watermark: {column: placed, allowed_lateness: -1h}",
            (
                "9: tables.orders.watermark.allowed_lateness: the allowed lateness cannot be negative: use a shorter "
                "delay instead"
            ),
        ),
        (
            "primary_key: [order_id]",
            "on_truncate: empty",
            "6: tables.orders: `on_truncate: empty` is only for debezium tables with a `primary_key`",
        ),
        (
            "primary_key: [order_id]",
            "on_bad_update: retract",
            "6: tables.orders: `on_bad_update` is only for upsert tables, and debezium tables without `exact`",
        ),
        (
            "mode: retract\n    columns",
            "mode: upsert\n    on_bad_update: null\n    columns",
            "1: `on_bad_update: null` of table orders needs `dead_letters: {topic: …}`",
        ),
        (
            "primary_key: [order_id]",
            "on_truncate: clear",
            "9: tables.orders.on_truncate: 'clear': expected refuse or empty",
        ),
        (
            "mode: retract\n    sql:",
            "mode: retract\n    connect_schema: true\n    sql:",
            "11: sinks.result: `connect_schema` is only for `format: json`; this sink uses avro",
        ),
        (
            "mode: retract\n    sql:",
            "mode: retract\n    emit: once\n    sql:",
            "13: sinks.result.emit: 'once': expected changes or final",
        ),
    ],
)
def test_a_problem_is_named_with_line_field_and_what_was_expected(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """One mistake in a valid job gives the message for it, with the line, the field and the expected value."""
    assert problem in refused(tmp_path, changed(old, new))


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """All problems of a file are reported at once, in the order of the file."""
    text = GOOD.replace("job: shop", "job: my shop").replace("primary_key", "primarykey").replace("sql:", "sqll:")

    assert refused(tmp_path, text) == [
        "1: job: 'my shop': expected letters, digits, . _ and - only",
        "9: tables.orders.primarykey: unknown setting; did you mean primary_key?",
        "11: sinks.result: sql is missing: the query whose result is written to the topic",
        "13: sinks.result.sqll: unknown setting; did you mean sql?",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("job: shop\ntables: [", "2: the file is not valid YAML: expected the node content, but found '<stream end>'"),
        (
            "job: a\njob: b",
            '2: the file is not valid YAML: found duplicate key "job" with value "b" (original value: "a")',
        ),
        ("- job", "1: expected a mapping with job, tables and sinks"),
        ("", "1: expected a mapping with job, tables and sinks"),
    ],
)
def test_a_file_that_is_no_job_is_said_to_be_none(tmp_path: Path, text: str, problem: str) -> None:
    """A YAML error is reported with its line, and a document that is not a mapping is refused."""
    assert refused(tmp_path, text) == [problem]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error for a missing file names the file without a line."""
    file = tmp_path / "none.yaml"

    with pytest.raises(JobError) as caught:
        load(file)

    assert str(caught.value) == f"{file}: the job file cannot be read: No such file or directory"


def test_what_only_a_running_job_needs_is_asked_for_when_it_runs(tmp_path: Path) -> None:
    """A job without Kafka, registry and checkpoint loads, but is refused when it is to run."""
    file = tmp_path / "job.yaml"
    lines = GOOD.lstrip("\n").splitlines(keepends=True)
    file.write_text("".join(lines[:1] + lines[4:]))
    job = load(file)

    with pytest.raises(JobError) as caught:
        job.check_runnable()

    assert str(caught.value).splitlines() == [
        f"{file}:1: checkpoint is missing: the folder for offsets and state",
        f"{file}:1: kafka is missing: the brokers, as `{{bootstrap.servers: …}}`; `rowkind run --dev` starts a broker",
        f"{file}:1: registry is missing: the location of schemas, as `{{url: …}}` or `{{folder: …}}`",
    ]
