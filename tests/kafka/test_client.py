"""Rows that Python and the command line produce to a job's tables and read from its topics."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.client import Producer, changes, table
from rowkind.service.cli import main
from rowkind.service.client.external_table import OutsideError
from rowkind.service.dev.broker import Broker
from tests.examples.jobs import EXAMPLES
from tests.run.process import until
from tests.terminal import Terminal

pytestmark = pytest.mark.kafka

COLUMNS = {"id": "BIGINT", "name": "STRING", "amount": "DECIMAL(10,2)", "placed": "TIMESTAMP"}
PLACED = datetime(2026, 1, 5, 12, tzinfo=UTC)
A: dict[str, Any] = {"id": 1, "name": "a", "amount": Decimal("1.50"), "placed": PLACED}
B = A | {"name": "b", "amount": None}
MakeJob = Callable[..., Path]


@pytest.fixture
def make_job(broker: Broker, new_topic: Callable[..., str], tmp_path: Path) -> MakeJob:
    """Return a function that writes the file of a job with a table `orders`, over a new topic of two partitions."""

    def make(mode: str, form: str = "avro") -> Path:
        job = {
            "job": "client",
            "kafka": {"bootstrap.servers": broker.bootstrap_servers},
            "registry": {"folder": "schemas"},
            "tables": {
                "orders": {"topic": new_topic(2), "format": form, "mode": mode, "columns": COLUMNS, "primary_key": "id"}
            },
            "sinks": {"all": {"topic": new_topic(), "mode": "upsert", "key": "id", "sql": "SELECT * FROM orders"}},
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        return tmp_path / "job.yaml"

    return make


@pytest.mark.parametrize("form", ["avro", "plain_avro", "json"])
def test_changes_come_out_as_they_went_in(form: str, make_job: MakeJob) -> None:
    """Changes of a row keep their order, and values are Python's."""
    job = make_job("retract", form)
    with Producer(job, "orders") as orders:
        orders.insert(A)
        orders.update(A, B)
        orders.insert({"id": 2, "amount": "7.00", "placed": "2026-01-05T13:00:00+01:00"})
        orders.delete({"id": 2, "amount": 7, "placed": 1767614400000})
        orders.insert({"id": 3})
    found = list(changes(job, "orders"))
    assert [(each.kind, each.row) for each in found if each.row["id"] == 1] == [("+I", A), ("-U", A), ("+U", B)]
    second = {"id": 2, "name": None, "amount": Decimal("7.00"), "placed": PLACED}
    assert [(each.kind, each.row) for each in found if each.row["id"] == 2] == [("+I", second), ("-D", second)]
    rows = table(job, "orders")
    assert sorted(rows.to_pylist(), key=lambda row: row["id"]) == [B, dict.fromkeys(COLUMNS) | {"id": 3}]
    assert rows.schema.names == list(COLUMNS)


@pytest.mark.parametrize("form", ["avro", "plain_avro", "json"])
def test_of_an_upsert_table_the_last_row_of_a_key_stands(form: str, make_job: MakeJob) -> None:
    """A delete is a null value under the key, and only the key's columns of the deleted row are known."""
    job = make_job("upsert", form)
    with Producer(job, "orders") as orders:
        orders.insert(A)
        orders.update(A, B)
        orders.insert(A | {"id": 2})
        orders.delete({"id": 2})
    assert table(job, "orders").to_pylist() == [B]
    (gone,) = (each for each in changes(job, "orders") if each.kind == "-D")
    assert gone.row == dict.fromkeys(COLUMNS) | {"id": 2}


@pytest.mark.parametrize("key", [{"id": "BIGINT NOT NULL"}, {"id": "BIGINT"}], ids=["another name", "may be NULL"])
def test_a_key_has_the_bytes_that_the_topic_has(
    key: dict[str, str], make_job: MakeJob, tmp_path: Path, broker: Broker
) -> None:
    """If only the name or NOT NULL differs from the registered schema of the key, a key stays in its partition."""
    job = make_job("upsert")
    topic = json.loads(job.read_text())["tables"]["orders"]["topic"]
    number = FolderRegistry(tmp_path / "schemas").register(f"{topic}-key", Record.of(key, name="another"))
    with Producer(job, "orders") as orders:
        orders.insert(A)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "x"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    with closing(consumer):
        message = consumer.poll(20)
        assert message is not None
        packed = b"\2" if "NOT NULL" in key["id"] else b"\2\2"
        assert message.key() == b"\0" + number.to_bytes(4, "big") + packed
    assert table(job, "orders").to_pylist() == [A]


def test_a_follower_sees_what_comes_later(make_job: MakeJob) -> None:
    """A follower reads the existing changes first, and then new ones."""
    job = make_job("append")
    with Producer(job, "orders") as orders:
        orders.insert(A)
        orders.flush()
        following = iter(changes(job, "orders", follow=True))
        assert next(following).row == A
        orders.insert(B)
    assert [each.row for each in islice(following, 1)] == [B]


def test_a_task_follows_a_topic_and_can_be_cancelled(make_job: MakeJob) -> None:
    """`async for` leaves the event loop free for other tasks, and a cancelled task ends while it waits for changes."""
    job, found, seen = make_job("append"), list[dict[str, Any]](), asyncio.Event()

    async def follow() -> None:
        async for change in changes(job, "orders", follow=True):
            found.append(change.row)
            seen.set()

    async def work() -> None:
        following = asyncio.create_task(follow())
        with Producer(job, "orders") as orders:
            for row in (A, B):
                orders.insert(row)
                orders.flush()
                async with asyncio.timeout(30):
                    await seen.wait()
                seen.clear()
        following.cancel()
        async with asyncio.timeout(1):
            with suppress(asyncio.CancelledError):
                await following

    asyncio.run(work())
    assert found == [A, B]
    before = {thread for thread in threading.enumerate() if thread.name.startswith("rowkind-changes")}
    until(lambda: not any(thread.is_alive() for thread in before), "the end of the thread that read the topic")


@pytest.mark.parametrize(
    ("mode", "kind", "row", "text"),
    [
        ("append", "-D", A, "'-D' cannot be written to table orders of mode append: use \\+I"),
        ("upsert", "-U", A, "'-U' cannot be written to table orders of mode upsert: use \\+I or \\+U or -D"),
        ("append", "+I", {"id": "x"}, 'table orders: id: "x" is not BIGINT'),
        ("append", "+I", {"id": 1, "nam": "a"}, "table orders: there is no column 'nam'"),
    ],
)
def test_what_is_no_change_of_the_table_is_refused(
    mode: str, kind: str, row: dict[str, Any], text: str, make_job: MakeJob
) -> None:
    """The change is refused with the reason, and no record is sent."""
    job = make_job(mode)
    with Producer(job, "orders") as orders, pytest.raises(OutsideError, match=text):
        orders.send(kind, row)
    assert not list(changes(job, "orders"))


def test_the_command_line_does_the_same(make_job: MakeJob) -> None:
    """`produce` accepts the output of `consume`, and names an invalid line after sending the rows before it."""
    job, run = make_job("retract"), CliRunner()
    lines = (
        '{"id": 1, "amount": "1.50"}\n\n{"op": "-U", "row": {"id": 1, "amount": 1.5}}\n{"op": "+U", "row": {"id": 1}}\n'
    )
    made = run.invoke(main, ["produce", str(job), "orders"], lines)
    assert (made.exit_code, made.stderr) == (0, "3 rows sent\n")
    seen = run.invoke(main, ["consume", str(job), "orders"])
    row = {"id": 1, "name": None, "amount": "1.50", "placed": None}
    assert [json.loads(line) for line in seen.stdout.splitlines()] == [
        {"op": "+I", "row": row},
        {"op": "-U", "row": row},
        {"op": "+U", "row": row | {"amount": None}},
    ]
    assert run.invoke(main, ["produce", str(job), "orders"], seen.stdout).exit_code == 0
    folded = run.invoke(main, ["consume", str(job), "orders", "--fold"])
    assert [json.loads(line) for line in folded.stdout.splitlines()] == 2 * [row | {"amount": None}]
    for line, text in (
        ("{", "the line is not JSON"),
        ("[]", "expected a row"),
        ('{"id": null}', "table orders: id is"),
    ):
        bad = run.invoke(main, ["produce", str(job), "orders"], f'{{"id": 9}}\n{line}\n')
        assert bad.exit_code == 2
        assert bad.stderr.startswith(f"rowkind: <stdin>:2: {text}")
        assert bad.stderr.endswith(". Rows sent before it: 1\n")
    assert run.invoke(main, ["consume", str(job), "orders", "--fold"]).stdout.count('"id": 9') == 3


def test_names_and_topics_that_are_not_there_are_told(make_job: MakeJob) -> None:
    """A wrong name or topic is reported in one line, with a suggestion."""
    job, run = make_job("append"), CliRunner()
    for command, text in (
        (["produce", str(job), "order"], "there is no table 'order'; did you mean orders?"),
        (["consume", str(job), "al"], "there is no sink or table 'al'; did you mean all?"),
        (["consume", str(job), "all", "--fold", "--follow"], "--fold and --follow cannot be combined"),
    ):
        told = run.invoke(main, command)
        assert told.exit_code == 2
        assert text in told.stderr
    text = job.read_text()
    job.write_text(text.replace(json.loads(text)["tables"]["orders"]["topic"], "nowhere"))
    told = run.invoke(main, ["produce", str(job), "orders"], '{"id": 1}')
    assert told.exit_code == 2
    assert "Topic nowhere does not exist" in told.stderr


def test_the_example_runs(broker: Broker, tmp_path: Path) -> None:
    """The example program runs with its job file."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    name = f"orders-{tmp_path.name}"
    admin.create_topics([NewTopic(name, 1)])[name].result()
    job = (EXAMPLES / "orders-payments" / "job.yaml").read_text().replace("topic: orders\n", f"topic: {name}\n")
    (tmp_path / "job.yaml").write_text(job)
    settings = {"KAFKA": broker.bootstrap_servers, "SCHEMAS": str(tmp_path / "schemas")}
    command = [sys.executable, str(EXAMPLES / "from_python.py"), str(tmp_path / "job.yaml")]
    told = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    kinds = [line.partition(" ")[0] for line in told.stdout.splitlines()]
    assert kinds[:3] == ["+I", "-U", "+U"]
    assert told.stdout.splitlines()[-1].split()[:5] == ["0", "1", "Ada", "12.50", "shipped"]


def test_on_a_terminal_kinds_have_colours(make_job: MakeJob) -> None:
    """The changes are a table. Inserts are green, deletes are red, and old rows are yellow."""
    job = make_job("retract")
    with Producer(job, "orders") as orders:
        orders.insert({"id": 1})
        orders.update({"id": 1}, {"id": 1, "name": "b"})
        orders.delete({"id": 1, "name": "b"})
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "rowkind", "consume", str(job), "orders"]
    subprocess.run(command, stdout=end, check=True, timeout=60)
    os.close(end)
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    kinds = [line.split()[0].removesuffix("\x1b[0m") for line in shown.splitlines()]
    assert kinds == ["\x1b[1mop", "\x1b[32m+I", "\x1b[33m-U", "\x1b[32m+U", "\x1b[31m-D"]


@pytest.mark.parametrize("mode", ["append", "retract", "upsert"])
def test_generated_rows_are_read_by_the_job(make_job: MakeJob, mode: str) -> None:
    """`generate` writes changes that the table accepts, and stops after the requested number."""
    job, run = make_job(mode), CliRunner()
    arguments = ["generate", str(job), "--table", "orders", "--rows", "300", "--rate", "100000", "--keys", "50"]
    made = run.invoke(main, arguments, catch_exceptions=False)
    assert (made.exit_code, made.stderr) == (0, "300 changes sent\n")
    kinds = [change.kind for change in changes(job, "orders")]
    assert len(kinds) == 300
    inserted = kinds.count("+I") if mode != "upsert" else len({change.row["id"] for change in changes(job, "orders")})
    assert len(table(job, "orders")) == inserted - kinds.count("-D")


def test_a_job_file_is_made_for_a_topic(make_job: MakeJob, broker: Broker, tmp_path: Path) -> None:
    """`init` writes a job that can run; without a key it says which option gives it, and a terminal is asked."""
    job, output = make_job("upsert", "json"), tmp_path / "drafted.yaml"
    topic = json.loads(job.read_text())["tables"]["orders"]["topic"]
    with Producer(job, "orders") as orders:
        orders.insert(A)
        orders.delete({"id": 1})
    init = ["init", topic, "--kafka", broker.bootstrap_servers]
    refused = CliRunner().invoke(main, init)
    assert refused.exit_code == 2
    assert f"add --key {topic}=COLUMN,… with some of id, name, amount, placed" in refused.stderr
    with Terminal(sys.executable, "-m", "rowkind", *init, "-o", output) as asked:
        asked.until(f"Which columns identify a row of {topic}")
        asked.type("id")
        assert asked.ended() == 0, asked.said
    checked = CliRunner().invoke(main, ["check", str(output)])
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert "mode: upsert    # it has records without a value" in output.read_text()
    assert CliRunner().invoke(main, [*init, "-o", str(output)]).exit_code == 2


def test_typed_rows_are_sent_one_by_one(make_job: MakeJob) -> None:
    """Each line is in the topic before the next one is typed, and an invalid line does not end the command."""
    job = make_job("retract")
    with Terminal(sys.executable, "-m", "rowkind", "produce", job, "orders") as typed:
        typed.until("Type rows of orders, .* until Ctrl-D: id BIGINT, name STRING")
        for number, line in enumerate(('{"id": 1}', '{"id": 2}'), 1):
            typed.type(line)
            typed.until(rf"(?s)(sent \+I.*){{{number}}}")
            assert len(table(job, "orders")) == number
        typed.type('{"id": true}')
        typed.until("rowkind: table orders: id")
        typed.type('{"op": "-D", "row": {"id": 1}}')
        typed.until("sent -D")
        typed.type("\x04", end="")
        typed.until("3 rows sent")
        assert typed.ended() == 0
    assert [row["id"] for row in table(job, "orders").to_pylist()] == [2]
