"""`rowkind sql`: queries over a job's topics on a broker."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer as KafkaProducer
from pyarrow import parquet

from rowkind.client import Producer
from rowkind.service.cli import main
from rowkind.service.dev.broker import Broker
from rowkind.service.kafka.dead_letter import DeadLetter
from tests.run.process import until
from tests.terminal import Terminal

pytestmark = pytest.mark.kafka

COLUMNS = {"id": "BIGINT", "name": "STRING", "amount": "DECIMAL(10,2)"}
MakeJob = Callable[..., Path]


@pytest.fixture
def job(broker: Broker, new_topic: Callable[..., str], tmp_path: Path) -> Path:
    """Return the file of a job with a table `orders` of ten rows, a sink `large`, and one dead letter."""
    topics = {name: new_topic() for name in ("orders", "large", "letters")}
    document = {
        "job": "asked",
        "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        "registry": {"folder": "schemas"},
        "dead_letters": {"topic": topics["letters"]},
        "tables": {
            "orders": {"topic": topics["orders"], "mode": "upsert", "columns": COLUMNS, "primary_key": "id"},
        },
        "sinks": {"large": {"topic": topics["large"], "mode": "upsert", "key": "id", "sql": "SELECT * FROM orders"}},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    with Producer(tmp_path / "job.yaml", "orders") as orders:
        for number in range(10):
            orders.insert({"id": number, "name": "a|b", "amount": number})
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap_servers})
    letter = DeadLetter("orders", "value", "UndecodableRowError", "it is bad", topics["orders"], 0, 3, 0)
    producer.produce(topics["letters"], b"v", b"k", headers=letter.written_headers("asked", "main"))
    producer.flush()
    return tmp_path / "job.yaml"


def answered(job: Path, *arguments: str, text: str | None = None) -> str:
    """Return what the command prints."""
    done = CliRunner().invoke(main, ["sql", str(job), *arguments], input=text)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(text: str) -> list[dict[str, Any]]:
    """Return the rows of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def test_every_form_has_the_rows(job: Path) -> None:
    """The result is printed as JSON lines by default, and as a table, CSV, Markdown or Parquet if asked for."""
    query = "SELECT id, name, amount FROM orders WHERE id IN (1, 2) ORDER BY id"
    assert rows(answered(job, query)) == [{"id": n, "name": "a|b", "amount": f"{n}.00"} for n in (1, 2)]
    assert answered(job, query, "-o", "table") == "id  name  amount\n 1  a|b     1.00\n 2  a|b     2.00\n"
    assert answered(job, query, "-o", "csv") == "id,name,amount\n1,a|b,1.00\n2,a|b,2.00\n"
    marked = "| id | name | amount |\n|---:|---|---:|\n| 1 | a\\|b | 1.00 |\n| 2 | a\\|b | 2.00 |\n"
    assert answered(job, query, "-o", "markdown") == marked
    done = CliRunner().invoke(main, ["sql", str(job), query, "-o", "parquet"])
    assert parquet.read_table(io.BytesIO(done.stdout_bytes)).column("id").to_pylist() == [1, 2]
    empty = CliRunner().invoke(main, ["sql", str(job), "FROM large", "-o", "parquet"])
    assert parquet.read_table(io.BytesIO(empty.stdout_bytes)).num_rows == 0


def test_queries_from_standard_input_share_a_database(job: Path) -> None:
    """A table that one query creates can be read by the next; a sink without rows is empty."""
    text = (
        "CREATE TABLE mine AS SELECT max(id) AS m FROM orders;\nSELECT m, (SELECT count(*) FROM large) AS n FROM mine"
    )
    assert rows(answered(job, text=text))[-1] == {"m": 9, "n": 0}


def test_dead_letters_are_a_table(job: Path) -> None:
    """A dead letter has its origin, its reason and the original record; a job without a topic for them has no table."""
    query = "SELECT letter, origin_partition, origin_offset, stage, message, decode(value) AS v FROM dead_letters"
    wanted = {"letter": "0:0", "origin_partition": 0, "origin_offset": 3, "stage": "value", "message": "it is bad"}
    assert rows(answered(job, query)) == [wanted | {"v": "v"}]


def test_rows_are_shown_as_they_were(job: Path) -> None:
    """A time, a length of time and a record name a moment; a later update and a later insertion are not seen."""
    second = math.ceil(time.time())
    until(lambda: time.time() > second + 0.1, "the next second")
    with Producer(job, "orders") as orders:
        orders.update({"id": 1}, {"id": 1, "name": "new"})
        orders.insert({"id": 10})
    query = "SELECT count(*) AS n, max(name) AS name FROM orders"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
    assert rows(answered(job, query)) == [{"n": 11, "name": "new"}]
    for moment, count in ((f"{stamp}", 10), ("orders:0:4", 5), ("orders:0:10", 10), ("-1d", 0)):
        assert rows(answered(job, query, "--at", moment))[0]["n"] == count, moment
    assert rows(answered(job, query, "--at", "orders:0:10"))[0]["name"] == "new"


def test_mistakes_are_reported_without_a_stack_trace(job: Path) -> None:
    """A bad query, a bad moment and options that exclude each other end the command with exit code 2."""
    for arguments, text in (
        (["SELECT nam FROM orders"], 'Referenced column "nam"'),
        (["FROM order_s"], "there is no table 'order_s'; did you mean orders?"),
        (["SELECT error('no')"], "no"),
        (["FROM orders", "--at", "yesterday"], "'yesterday' is not a moment"),
        (["FROM orders", "--at", "orders:0:99"], "there is no record at offset 99"),
        (["FROM orders", "--follow", "--at", "-1h"], "--at and --follow cannot be combined"),
        (["FROM orders", "--follow", "-o", "csv"], "--follow cannot print csv"),
        ([""], "there is no query"),
    ):
        done = CliRunner().invoke(main, ["sql", str(job), *arguments])
        assert done.exit_code == 2, done.output
        assert text in done.stderr
        assert "Traceback" not in done.output


def test_a_pipe_gets_the_changes_of_the_result(job: Path) -> None:
    """First the rows of the result, then what it loses and gains when the topic grows."""
    command = [sys.executable, "-m", "rowkind", "sql", str(job), "SELECT count(*) AS n, max(id) AS m FROM orders", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline()) == {"op": "+I", "row": {"n": 10, "m": 9}}
            with Producer(job, "orders") as orders:
                orders.insert({"id": 20})
            assert json.loads(process.stdout.readline()) == {"op": "-D", "row": {"n": 10, "m": 9}}
            assert json.loads(process.stdout.readline()) == {"op": "+I", "row": {"n": 11, "m": 20}}
        finally:
            process.terminate()


def test_a_terminal_shows_the_result_again(job: Path) -> None:
    """The result is drawn again when the topic grows, and Ctrl-C ends the command."""
    query = "SELECT count(*) AS n, max(id) AS m FROM orders"
    with Terminal(sys.executable, "-m", "rowkind", "sql", job, query, "--follow") as terminal:
        terminal.until(r"10\s+9")
        with Producer(job, "orders") as orders:
            orders.insert({"id": 20})
        terminal.until(r"11\s+20")
        terminal.press_ctrl_c()
        assert terminal.ended() == 0


def test_a_query_in_the_shell_can_be_cancelled(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C cancels the query, the shell goes on and sees new rows, and Ctrl-D ends it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Terminal(sys.executable, "-m", "rowkind", "sql", job) as terminal:
        terminal.until("sql>")
        terminal.type("SELECT count(*) FROM orders;", end="\r")
        terminal.until("count_star")
        terminal.type("SELECT count(*) AS endless FROM range(1000000000000);", end="\r")
        terminal.until("endless FROM")
        until(lambda: terminal.press_ctrl_c() or "cancelled" in terminal.said, "cancelled", lambda: terminal.said)
        with Producer(job, "orders") as orders:
            orders.insert({"id": 20})
        terminal.type("SELECT 'rows: ' || count(*) AS n FROM orders;", end="\r")
        terminal.until("rows: 11")
        terminal.type("\x04", end="")
        assert terminal.ended() == 0
