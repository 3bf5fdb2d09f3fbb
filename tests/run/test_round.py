"""The example of docs/tutorials/first-hour.md: its job, commands and rows, and the output that the page shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from rowkind.client import table
from rowkind.service.machine.ports import free_port
from tests.run.process import Rowkind, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "first-hour.md").read_text()
SLOW = 200


def test_the_round_of_the_first_hour(tmp_path: Path) -> None:
    """The page's commands start a broker, create topics, run the job, produce rows and show the changes."""
    section = PAGE[PAGE.index("## Run one of your own") : PAGE.index("## Try a query without Kafka")]
    job, commands, rows, shown = re.findall(r"```\w*\n(.*?)```", section, re.DOTALL)
    kafka, registry = free_port(), free_port()
    file = tmp_path / "first.yaml"
    replaced = {"9092": str(kafka), "8081": str(registry), "first-checkpoint": str(tmp_path / "checkpoint")}
    file.write_text(re.sub("|".join(replaced), lambda found: replaced[found[0]], job))
    dev, create, run, produce, consume = (
        [str(file) if word == "first.yaml" else word for word in line.partition("#")[0].split()[1:]]
        for line in commands.splitlines()
    )
    dev += ["--port", str(kafka), "--registry-port", str(registry), "--data", str(tmp_path / "data")]
    lines, output = rows.splitlines(), tmp_path / "output"

    def put(*some: str) -> None:
        command = [sys.executable, "-m", "rowkind", *produce]
        subprocess.run(command, input="\n".join(some), text=True, check=True, stderr=subprocess.PIPE)

    with Rowkind(output, *dev) as broker:
        until(lambda: "Ctrl-C stops them" in broker.output, "a broker", lambda: broker.error)
        with Rowkind(output, *create) as made:
            assert made.ended(60).code == 0, made.error
        for topic in ("orders", "totals"):
            assert _settings(kafka, topic)["cleanup.policy"].value == "compact"
        put(*lines[:2])
        with Rowkind(output, *run, "--port", "0") as running, Rowkind(output, *consume) as seen:
            # If the second row is the first of its partition, it may be in a separate batch.
            until(lambda: '"19.50"' in seen.output, "the first total", lambda: running.error + seen.error, SLOW)
            begun = seen.output.count("\n") - 1
            put(lines[2])
            until(lambda: seen.output.count("\n") == begun + 3, "the others", lambda: running.error + seen.error, SLOW)
        assert table(file, "totals").sort_by("customer").to_pylist() == [
            {"customer": "Ada", "orders": 1, "amount": Decimal("12.50")},
            {"customer": "Blaise", "orders": 1, "amount": Decimal("7.00")},
        ]
    found = [json.loads(line) for line in seen.output.splitlines()[begun:]]
    assert sorted(map(_flat, found)) == sorted(_listed(shown))


def _flat(change: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a change's columns and values, as `consume` prints them in a table."""
    return [("op", change["op"]), *((name, str(value)) for name, value in change["row"].items())]


def _listed(table: str) -> list[list[tuple[str, str]]]:
    """Return the columns and values of each row of a table."""
    names, *rows = (line.split() for line in table.splitlines())
    return [list(zip(names, row, strict=True)) for row in rows]


def _settings(kafka: int, topic: str) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{kafka}"})
    (told,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return dict(told.result())
