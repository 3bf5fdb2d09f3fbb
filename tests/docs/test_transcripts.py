"""The transcripts of `rowkind sql` and `rowkind why` in the how-to pages: the commands print what the pages show.

A code block with a title is a file. Files of JSON lines are records: their topic, partition, time, key and value. They
are written to topics of a broker, also those of results and of the job's progress, so that offsets and times are those
of the page. A line with only an ellipsis stands for any lines.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from rowkind.service.cli import main
from rowkind.service.cli.sql_shell import Shell
from rowkind.service.client.job_tables import JobTables
from rowkind.service.dev.broker import Broker
from rowkind.service.job.load import load
from rowkind.service.kafka.offsets import Offset
from rowkind.service.kafka.progress import Progress
from rowkind.service.run.dead_letters import tables_of_letters

pytestmark = pytest.mark.kafka

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```console\n\$ rowkind ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TYPED = re.compile(r"^(?:sql>|  ->) ")


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a broker without topics. The test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Broker() as broker:
        yield broker.bootstrap_servers


def transcripts(page: str, servers: str) -> list[tuple[list[str], str]]:
    """Write the files of a page, and the records to topics. Return each command's arguments and its output."""
    text = (PAGES / f"{page}.md").read_text()
    for name, content in FILE.findall(text):
        Path(name).write_text(content.replace("127.0.0.1:9092", servers))
    return [(shlex.split(command), output) for command, output in COMMAND.findall(text)]


def send(servers: str, *records: str) -> None:
    """Write records. Each is a line `TOPIC PARTITION TIME KEY VALUE`; key and value are JSON without blanks."""
    admin, kafka = AdminClient({"bootstrap.servers": servers}), {"bootstrap.servers": servers}
    split = [each.split(" ", 4) for each in records]
    there = admin.list_topics(timeout=10).topics
    partitions = {topic: 1 + max(int(each[1]) for each in split if each[0] == topic) for topic, *_ in split}
    kept = {"retention.ms": "-1"}
    new = [NewTopic(topic, count, 1, config=kept) for topic, count in partitions.items() if topic not in there]
    for made in admin.create_topics(new).values() if new else ():
        made.result()
    producer = KafkaProducer(kafka)
    for topic, partition, time, key, value in split:
        noon = 1_767_614_400_000
        producer.produce(topic, value, key, int(partition), timestamp=noon + round(float(time) * 1000))
    producer.flush()


def check(output: str, shown: str) -> None:
    """Compare an output with what the page shows."""
    parts = [re.escape(each) for each in re.split(r"^ *…\n", shown, flags=re.MULTILINE)]
    assert re.fullmatch("(?s:.*)".join(parts), output), output


SHOP = (
    'orders 0 0 {"order_id":1} {"order_id":1,"customer":"Ada","amount":"12.50"}',
    'orders 0 1 {"order_id":2} {"order_id":2,"customer":"Bob","amount":"7.00"}',
    'orders 0 2 {"order_id":3} {"order_id":3,"customer":"Ada","amount":"4.00"}',
    'totals 0 3 {"customer":"Ada"} {"customer":"Ada","total":"12.50","orders":1}',
    'totals 0 4 {"customer":"Bob"} {"customer":"Bob","total":"7.00","orders":1}',
    'totals 0 5 {"customer":"Ada"} {"customer":"Ada","total":"16.50","orders":2}',
)
PAID = (
    'orders 1 0 {"order_id":101} {"order_id":101,"customer":"Ada","amount":"40.00","status":"open"}',
    'orders 0 1 {"order_id":102} {"order_id":102,"customer":"Bob","amount":"15.00","status":"open"}',
    'orders 0 2 {"order_id":103} {"order_id":103,"customer":"Carl","amount":"70.00","status":"cancelled"}',
    'payments 1 20 {"payment_id":1} {"payment_id":1,"order_id":101,"paid":"10.00"}',
    'payments 0 25 {"payment_id":2} {"payment_id":2,"order_id":102,"paid":"15.00"}',
    'payments 1 26 {"payment_id":4} {"payment_id":4,"order_id":103,"paid":"5.00"}',
    'open-orders 0 30 {"order_id":101} {"order_id":101,"customer":"Ada","due":"30.00"}',
    'payments 0 60 {"payment_id":3} {"payment_id":3,"order_id":101,"paid":"12.50"}',
    'open-orders 0 62 {"order_id":101} {"order_id":101,"customer":"Ada","due":"17.50"}',
)


def test_asking_in_sql(servers: str) -> None:
    """The shell and the followed query print what the page shows."""
    (shell, said), (follow, changes) = transcripts("ask-in-sql", servers)
    send(servers, *SHOP)
    job, out = load(Path(shell[1])), StringIO()
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("shop-letters", 1, 1)])["shop-letters"].result()
    lines = said.splitlines(keepends=True)
    with (
        create_pipe_input() as typed,
        create_app_session(input=typed, output=DummyOutput()),
        closing(JobTables(job, lambda: tables_of_letters(job))) as tables,
        redirect_stdout(out),
        redirect_stderr(out),
    ):
        typed.send_text("".join(_TYPED.sub("", line).strip("\n") + "\r" for line in lines if _TYPED.match(line)))
        typed.send_text("\x04")
        Shell(tables, "table").run()
    check(out.getvalue(), "".join(line for line in lines if not _TYPED.match(line)))
    shown = changes.splitlines()
    with subprocess.Popen([sys.executable, "-m", "rowkind", *follow], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            # The rows at the start have no order.
            assert sorted(process.stdout.readline().strip() for _ in range(2)) == shown[:2]
            send(servers, 'totals 0 9 {"customer":"Bob"} {"customer":"Bob","total":"9.00","orders":1}')
            assert [process.stdout.readline().strip() for _ in range(2)] == shown[2:]
        finally:
            process.terminate()


def test_explaining_a_row(servers: str) -> None:
    """A row that is there, one that is not, and the history of a row are explained as the page shows."""
    commands = transcripts("explain-a-row", servers)
    ends = {("orders", 0): 2, ("orders", 1): 1, ("payments", 0): 2, ("payments", 1): 2}
    end = Offset(ends, {"orders": "a", "payments": "b"}, number=2, now=1_767_614_461_000)
    batch = Progress("paid", "main", 0, "c", 2, "00000001-a", end.now, json.dumps(end.to_json()), 1, ["open_orders"])
    send(servers, *PAID, f"paid.main.progress 0 63 {batch.key.decode()} {batch.to_bytes().decode()}")
    assert len(commands) == 3
    for command, shown in commands:
        done = CliRunner().invoke(main, [*command, "-o", "text"], prog_name="rowkind", catch_exceptions=False)
        check(done.stdout, shown)
