"""The procedures of docs/how-to, carried out by the commands that the pages show."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from rowkind.client import table
from rowkind.service.machine.ports import free_port
from tests.run.process import Rowkind, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
SLOW = 200
JOB = """
job: first
kafka: {{bootstrap.servers: "127.0.0.1:{kafka}"}}
registry: {{folder: schemas}}
checkpoint: {folder}/checkpoint
parallelism: {parallelism}
tables:
  orders:
    topic: {source}
    mode: upsert
    primary_key: id
    columns: {{id: BIGINT, customer: STRING NOT NULL, amount: "DECIMAL(10,2)"}}
sinks:
  totals:
    topic: {topic}
    mode: upsert
    key: customer
    partitions: 1
    sql: SELECT customer, COUNT(*) AS orders, SUM(amount) AS amount FROM orders WHERE amount > {above} GROUP BY customer
"""
ROWS = [
    {"id": 1, "customer": "Ada", "amount": "12.50"},
    {"id": 2, "customer": "Ada", "amount": "7.00"},
    {"id": 3, "customer": "Blaise", "amount": "5.00"},
]


@dataclass
class Scene:
    """A job on its own broker, and the current contents of its job file."""

    folder: Path
    kafka: int
    says: dict[str, str] = field(default_factory=dict)

    def say(self, **what: object) -> None:
        """Write the job file with changed values."""
        self.says |= {name: str(value) for name, value in what.items()}
        (self.folder / "job.yaml").write_text(JOB.format(kafka=self.kafka, folder=self.folder, **self.says))

    def produce(self, *rows: Mapping[str, object]) -> None:
        """Send rows to the job's table."""
        lines = "\n".join(str(dict(row)).replace("'", '"') for row in rows)
        command = [sys.executable, "-m", "rowkind", "produce", str(self.folder / "job.yaml"), "orders"]
        subprocess.run(command, input=lines, text=True, check=True, stderr=subprocess.PIPE)

    def totals(self) -> dict[str, tuple[int, Decimal]]:
        """Return the rows of the result topic, by customer."""
        rows = table(self.folder / "job.yaml", "totals").to_pylist()
        return {each["customer"]: (each["orders"], each["amount"]) for each in rows}

    def end(self) -> int:
        """Return the end offset of the result topic, transaction markers included."""
        consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{self.kafka}", "group.id": "nobody"})
        try:
            return consumer.get_watermark_offsets(TopicPartition(self.says["topic"], 0), timeout=30)[1]
        finally:
            consumer.close()

    def command(self, words: list[str]) -> Rowkind:
        """Run a command of the page with this scene's job and folders, on a free port."""
        own = {"job.yaml": str(self.folder / "job.yaml"), "FOLDER": str(self.folder / "saved")}
        port = ["--port", "0"] if words[0] == "run" else []
        return Rowkind(self.folder / "output", *[own.get(word, word) for word in words], *port)

    def done(self, words: list[str]) -> str:
        """Run a command that ends without waiting, and return its output."""
        with self.command(words) as running:
            ended = running.ended(SLOW)
        assert ended.code == 0, ended.error
        return ended.output

    def runs(self, words: list[str], wanted: Mapping[str, tuple[int, str]], then: Callable[[], object] = str) -> None:
        """Run the job until its totals are `wanted`, call `then`, and stop the job."""
        whole = {name: (orders, Decimal(amount)) for name, (orders, amount) in wanted.items()}
        with self.command(words) as running:
            until(lambda: running.error.count("writing to topic") > 0, "a running query", lambda: running.error, SLOW)
            until(lambda: self.totals() == whole, f"{wanted}", lambda: f"{self.totals()}\n{running.error}", SLOW)
            then()
            running.terminate()
            assert running.ended(SLOW).code == 0, running.error


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A broker with the topics of the job, and three orders."""
    port = free_port()
    dev = ["dev", "--port", str(port), "--registry-port", "0", "--data", str(tmp_path / "data")]
    with Rowkind(tmp_path / "output", *dev) as broker:
        until(lambda: "Ctrl-C stops them" in broker.output, "a broker", lambda: broker.error)
        found = Scene(tmp_path, port)
        found.say(parallelism=2, source="orders", topic="totals", above=0)
        found.done(["topics", "create", "job.yaml"])
        found.produce(*ROWS)
        yield found


def shown(page: str) -> list[list[str]]:
    """The commands that a page shows before its example, without `rowkind`."""
    steps = (PAGES / f"{page}.md").read_text().partition("\n## ")[0]
    found = [line.partition("   ")[0].split()[1:] for line in re.findall(r"^    (rowkind .*)$", steps, re.MULTILINE)]
    assert found, f"{page}.md shows no commands"
    return found


def test_the_procedures_of_the_page(scene: Scene) -> None:
    """The page's commands change a query, upgrade Rowkind, rescale, save and restore state, and move both topics."""
    scene.runs(["run", "job.yaml"], {"Ada": (2, "19.50"), "Blaise": (1, "5.00")})

    scene.say(above=6)
    diff, upgrade = shown("change-a-query")
    assert "sink totals is rebuilt" in scene.done(diff)
    scene.runs(upgrade, {"Ada": (2, "19.50")})

    diff, run = shown("upgrade")
    assert "rebuilt" not in scene.done(diff)
    scene.runs(run, {"Ada": (2, "19.50")})

    (rescale,) = shown("rescale")
    assert re.search(rf"set `parallelism: {rescale[-1]}` in .*job.yaml: until then", scene.done(rescale))
    scene.say(parallelism=rescale[-1])
    savepoint, restore = shown("back-up-and-restore")
    scene.runs(run, {"Ada": (2, "19.50")}, lambda: scene.done(savepoint))

    scene.produce({"id": 4, "customer": "Blaise", "amount": "8.00"})
    scene.runs(run, {"Ada": (2, "19.50"), "Blaise": (1, "8.00")})
    before = scene.end()
    shutil.rmtree(scene.folder / "checkpoint")
    scene.runs(restore, {"Ada": (2, "19.50"), "Blaise": (1, "8.00")})
    assert scene.end() == before, "what was written after the savepoint is not written again"

    create, upgrade = shown("move-a-topic")
    scene.say(topic="totals-2")
    scene.done(create)
    scene.runs(upgrade, {"Ada": (2, "19.50"), "Blaise": (1, "8.00")})
    scene.say(source="orders-2")
    scene.done(create)
    scene.produce(*ROWS[:2], {"id": 4, "customer": "Blaise", "amount": "9.00"})
    scene.runs(upgrade, {"Ada": (2, "19.50"), "Blaise": (1, "9.00")})
