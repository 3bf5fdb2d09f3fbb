"""The import of Flink SQL scripts: the scripts in this folder, single constructs, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowkind.service.cli import main
from rowkind.service.flink.job_file import imported
from rowkind.service.flink.script import ScriptError
from rowkind.service.job.load import load
from rowkind.service.query.queries import planned
from tests.flink.import_cases import SCRIPTS, made_of

KAFKA = "'connector' = 'kafka', 'format' = 'json', 'properties.bootstrap.servers' = 'k:9092'"
UPSERT = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
HEAD = f"""CREATE TABLE t (id BIGINT NOT NULL, a INT, s STRING, at TIMESTAMP(3)) WITH ({KAFKA});
CREATE TABLE o (id BIGINT, n BIGINT) WITH ({KAFKA});
"""
INSERT = "INSERT INTO o SELECT id, a FROM t;"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_becomes_the_job_file_beside_it(script: Path) -> None:
    """The imported job file equals the expected one, which `python -m tests.flink` writes."""
    assert made_of(script).text == script.with_suffix(".yaml").read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_job_file_is_planned(script: Path) -> None:
    """The job file of each script can be planned."""
    job = load(script.with_suffix(".yaml"), {})
    assert planned(job)["main"].sinks


@pytest.mark.parametrize(("script", "code"), [("whole", 0), ("orders_payments", 0), ("top_n", 1), ("lost", 1)])
def test_the_exit_code_says_whether_something_is_missing(script: str, code: int) -> None:
    """The exit code is 0 if the job does all that the script does, and 1 if something is lost."""
    file = next(each for each in SCRIPTS if each.stem == script)
    assert CliRunner().invoke(main, ["import", str(file)]).exit_code == code


def test_check_of_a_script_prints_the_job_file_too() -> None:
    """`rowkind check` and `rowkind import` print the same job file for a script."""
    script = next(each for each in SCRIPTS if each.stem == "whole")
    results = [CliRunner().invoke(main, [command, str(script)]) for command in ("check", "import")]
    assert results[0].exit_code == 0
    assert results[0].stdout == results[1].stdout == script.with_suffix(".yaml").read_text()


def test_a_job_file_is_written_over_only_if_that_is_said(tmp_path: Path) -> None:
    """An existing job file is overwritten only with `--overwrite`."""
    script = next(each for each in SCRIPTS if each.stem == "whole")
    job = tmp_path / "job.yaml"
    job.write_text("mine")
    refused = CliRunner().invoke(main, ["import", str(script), "-o", str(job)])
    assert (refused.exit_code, job.read_text()) == (2, "mine")
    assert refused.stderr == f"rowkind: {job} already exists: choose another name, or use --overwrite\n"
    assert CliRunner().invoke(main, ["import", str(script), "-o", str(job), "--overwrite"]).exit_code == 0
    assert job.read_text() == script.with_suffix(".yaml").read_text()


def test_an_imported_job_runs(tmp_path: Path) -> None:
    """An imported statement set runs with Flink's results: duplicates are dropped, and integer division truncates."""
    script = next(each for each in SCRIPTS if each.stem == "statement_set")
    job = tmp_path / "job.yaml"
    assert CliRunner().invoke(main, ["import", str(script), "-o", str(job)]).exit_code == 0
    rows = [
        {"click_id": "a", "user_id": 1, "url": "https://shop.example/x", "at_ms": 1000},
        {"click_id": "b", "user_id": 1, "url": "https://shop.example/y", "at_ms": 2000},
        {"click_id": "b", "user_id": 1, "url": "https://other.example/y", "at_ms": 3000},
        {"click_id": "c", "user_id": 2, "url": "no address", "at_ms": 4000},
        {"click_id": "d", "user_id": 2, "url": "no address", "at_ms": 5000},
    ]
    changes = tmp_path / "changes.jsonl"
    changes.write_text("\n".join(json.dumps({"table": "clicks_topic", "op": "+I", "row": row}) for row in rows))

    assert _tried(job, changes, "distinct_clicks") == [
        {"click_id": "a", "host": "shop.example", "at": "1970-01-01T00:00:01Z"},
        {"click_id": "b", "host": "shop.example", "at": "1970-01-01T00:00:02Z"},
        {"click_id": "c", "host": None, "at": "1970-01-01T00:00:04Z"},
        {"click_id": "d", "host": None, "at": "1970-01-01T00:00:05Z"},
    ]
    assert _tried(job, changes, "clicks_per_user") == [
        {"user_id": 1, "clicks": 3, "pages_per_click": 1},
        {"user_id": 2, "clicks": 2, "pages_per_click": 0},
    ]


def _tried(job: Path, changes: Path, sink: str) -> list[object]:
    result = CliRunner().invoke(main, ["try", str(job), "--changes", str(changes), "--sink", sink, "--fold"])
    assert result.exit_code == 0, result.output
    return [json.loads(line)["row"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("SELECT 1;", "f.sql:1:1: SELECT is not carried over: its result is only printed"),
        ("CREATE TABLE t (a INT)", "the script cannot be converted to a job: no INSERT INTO … SELECT writes a result"),
        ("INSERT INTO o SELECT a FROM t", "INSERT INTO o is left out: there is no CREATE TABLE o"),
        (f"{HEAD}INSERT INTO o SELECT id FROM t;", "its query has 1 column, but the table has 2"),
        (f"{HEAD}INSERT INTO o SELECT id, b FROM t;", "f.sql:3:26: INSERT INTO o is left out: t has no column b"),
        (f"{HEAD}INSERT INTO o SELECT id, SUM(a) FROM t GROUP BY id;", "an append sink accepts only inserts"),
        (f"{HEAD}INSERT INTO o SELECT id, 'open FROM t;", "a quotation mark or a comment is not closed"),
        (f"{HEAD}INSERT INTO o SELECT id a b c FROM t;", "syntax error"),
        ("", "the script cannot be converted to a job"),
    ],
)
def test_what_is_no_job_is_refused_with_its_place(script: str, reason: str) -> None:
    """A script without any sink is refused with all reasons and their places."""
    with pytest.raises(ScriptError) as refused:
        imported("f.sql", script)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("statement", "note"),
    [
        ("SET 'table.exec.state.ttl' = 'long';", "f.sql:1:5: table.exec.state.ttl: 'long' is not a length of time"),
        ("SET 'table.exec.mini-batch.enabled' = 'true';", "table.exec.mini-batch.enabled is left out"),
        ("ALTER TABLE t ADD b INT;", "f.sql:1:1: ALTER is not carried over: change the CREATE statement instead"),
        ("EXPLAIN SELECT 1;", "EXPLAIN is left out: `rowkind explain` shows the plan"),
        ("CREATE TABLE w (a MAP<INT, INT>) WITH ('connector' = 'kafka');", "the keys of a MAP must be STRING, not INT"),
        ("CREATE TABLE w LIKE nothing;", "LIKE nothing: no table of this name is declared above"),
        ("CREATE VIEW v AS SELECT a SIMILAR TO 'x' FROM t;", "f.sql:1:27: the view v is left out: SIMILAR TO"),
        ("INSERT INTO o VALUES (1, 2);", "f.sql:1:15: INSERT INTO … VALUES writes rows once"),
    ],
)
def test_what_is_not_carried_over_is_named_with_its_place(statement: str, note: str) -> None:
    """A statement that cannot be imported is reported with its place, and the rest of the script becomes a job."""
    found = imported("f.sql", f"{statement} {HEAD}{INSERT}")
    assert any(note in each for each in found.notes), found.notes
    assert "sinks:\n  o:" in found.text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'connector' = 'kafka', 'format' = 'json', 'topic' = 'x'", {"topic": "x", "format": "json", "mode": "append"}),
        ("'connector' = 'kafka', 'format' = 'avro-confluent'", {"mode": "append"}),
        ("'connector' = 'kafka', 'format' = 'avro'", {"format": "plain_avro", "mode": "append"}),
        ("'connector' = 'kafka', 'value.format' = 'debezium-avro-confluent'", {"mode": "debezium"}),
        ("'connector' = 'kafka', 'format' = 'debezium-json'", {"format": "json", "mode": "debezium"}),
        (UPSERT, {"format": "json", "mode": "upsert"}),
        ("'connector' = 'postgres-cdc'", {"format": "json", "mode": "debezium"}),
        ("'connector' = 'jdbc'", {"format": "json", "mode": "upsert"}),
    ],
)
def test_connector_and_format_say_the_mode_of_a_table(tmp_path: Path, options: str, expected: dict[str, str]) -> None:
    """The mode and format of a table follow from its connector and format."""
    text = f"""CREATE TABLE s (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ({options});
    CREATE TABLE o (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ({UPSERT});
    INSERT INTO o SELECT k, v FROM s;"""
    file = tmp_path / "job.yaml"
    file.write_text(imported("f.sql", text).text)
    table = load(file, {}).tables["s"]
    assert {name: getattr(table, name) for name in expected} == expected
    assert table.primary_key == ("k",)


@pytest.mark.parametrize(
    ("key", "value", "type_", "expected"),
    [
        ("raw", "avro-confluent", "STRING", "string"),
        ("raw", "json", "BIGINT", "long"),
        ("json", "avro-confluent", "BIGINT", "json"),
        ("avro-confluent", "json", "BIGINT", "avro"),
        ("raw", "json", "STRING", None),
        ("json", "json", "BIGINT", None),
    ],
)
def test_a_key_has_its_own_format(tmp_path: Path, key: str, value: str, *, type_: str, expected: str | None) -> None:
    """A key's format is imported if it differs from the value's."""
    options = f"'connector' = 'upsert-kafka', 'key.format' = '{key}', 'value.format' = '{value}'"
    text = f"""CREATE TABLE s (k {type_}, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ({options});
    CREATE TABLE o (k {type_}, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ({UPSERT});
    INSERT INTO o SELECT k, v FROM s;"""
    found = imported("f.sql", text)
    file = tmp_path / "job.yaml"
    file.write_text(found.text)
    assert load(file, {}).tables["s"].key_format == expected
    assert not any("the key has the format" in note for note in found.notes)


@pytest.mark.parametrize(
    ("flink", "spark"),
    [
        ("VARCHAR(10) NOT NULL", "STRING NOT NULL"),
        ("CHAR(2)", "STRING"),
        ("BYTES", "BINARY"),
        ("VARBINARY(8)", "BINARY"),
        ("DECIMAL", "DECIMAL(10,0)"),
        ("NUMERIC(8, 3)", "DECIMAL(8,3)"),
        ("DOUBLE PRECISION", "DOUBLE"),
        ("TINYINT", "TINYINT"),
        ("TIME(3)", "TIME(3)"),
        ("TIMESTAMP", "TIMESTAMP_NTZ"),
        ("TIMESTAMP(3) WITHOUT TIME ZONE", "TIMESTAMP_NTZ(3)"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP(3)"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP"),
        ("ARRAY<ARRAY<INT NOT NULL>>", "ARRAY<ARRAY<INT NOT NULL>>"),
        ("MAP<STRING, ROW<a INT, b DECIMAL(4, 2)>>", "MAP<STRING, STRUCT<a: INT, b: DECIMAL(4,2)>>"),
        ("ROW(a INT 'what it is', `b` STRING)", "STRUCT<a: INT, b: STRING>"),
    ],
)
def test_types_are_called_as_in_spark(flink: str, spark: str) -> None:
    """A column's type in the job file is Spark's type for the same values."""
    text = imported("f.sql", f"{HEAD.replace('a INT', f'a {flink}')}INSERT INTO o SELECT id, id FROM t;").text
    assert f"a: {spark}" in text.replace('"', "")


def test_kafka_and_the_registry_are_reached_as_in_the_script(tmp_path: Path) -> None:
    """Client settings are imported into `kafka` and `registry` with librdkafka's names."""
    options = """'format' = 'avro-confluent', 'avro-confluent.url' = 'https://r',
      'avro-confluent.basic-auth.user-info' = 'u:p', 'avro-confluent.basic-auth.credentials-source' = 'USER_INFO',
      'properties.security.protocol' = 'SASL_SSL', 'properties.group.id' = 'g',
      'properties.sasl.jaas.config' = 'Login required username="me" password="secret";'"""
    script = (HEAD + INSERT).replace("'format' = 'json'", options)
    file = tmp_path / "job.yaml"
    file.write_text(imported("f.sql", script).text)
    job = load(file, {})
    assert job.registry == {"url": "https://r", "basic.auth.user.info": "u:p"}
    assert job.kafka == {
        "bootstrap.servers": "k:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "me",
        "sasl.password": "secret",
    }


def test_inserts_into_one_table_are_one_sink() -> None:
    """INSERTs into one table become one sink with a UNION ALL, in the columns of the table."""
    text = imported("f.sql", f"{HEAD}{INSERT} INSERT INTO o SELECT id, 1 FROM t;").text
    assert text.count("  o:") == text.count("UNION ALL") == 1
    assert "SELECT id, CAST(n AS BIGINT) AS n FROM (" in text


def test_inserts_of_different_columns_are_not_united() -> None:
    """INSERTs that list different columns are refused, because values would be in the wrong columns."""
    more = "INSERT INTO o (n, id) SELECT 1, id FROM t;"
    with pytest.raises(ScriptError, match="its INSERTs list different columns"):
        imported("f.sql", f"{HEAD}{INSERT} {more}")


def test_the_options_of_a_hint_are_the_tables() -> None:
    """Options in a hint on a table are read like options of the table."""
    insert = INSERT.replace("FROM t", "FROM t /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */")
    text = imported("f.sql", HEAD + insert).text
    assert "start: latest" in text
    assert "OPTIONS" not in text
