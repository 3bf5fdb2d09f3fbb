"""The commands of docs/tutorials/postgres.md, run on a pipeline whose parts are processes instead of containers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ruamel.yaml import YAML

from tests.cdc.pipeline import SECONDS, Pipeline
from tests.run.process import ROOT, until

PAGE = ROOT / "docs" / "tutorials" / "postgres.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMANDS = ("cd ", "docker ", "curl ")
_SQL = re.compile(r'docker compose exec postgres psql -U postgres -c "(.*)"')
_CURL = re.compile(
    r"curl --fail --silent --show-error (?:--retry \d+ --retry-delay \d+ --retry-all-errors )?-X (PUT|DELETE) "
    r'(?:-H "Content-Type: application/json" --data @(\S+) )?http://localhost:8083/connectors/(.*)'
)
_OF_CONTAINERS = (
    "cd examples/postgres-debezium",
    "docker compose up --detach --build connect",
    "docker compose down --volumes",
)
"""The commands that start or stop containers, which the pipeline does by itself."""
_CONSUMER = "docker compose exec kafka /opt/kafka/bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 "


@dataclass(frozen=True)
class Step:
    """A command, and the output that the page shows after it, if any."""

    command: str
    shown: str


def steps() -> Iterator[Step]:
    """Return the commands of the page in their order. Blocks in a language are not commands."""
    blocks = [block for language, block in _BLOCK.findall(PAGE.read_text()) if not language]
    for block, following in zip(blocks, [*blocks[1:], "cd "], strict=True):
        if not block.startswith(_COMMANDS):
            continue
        commands = block.replace("\\\n  ", "").splitlines()
        yield from (Step(each, "") for each in commands[:-1])
        yield Step(commands[-1], "" if following.startswith(_COMMANDS) else following.rstrip())


def follow(shop: Pipeline) -> None:
    """Run all commands. Wait after each until it shows what the page shows."""
    for step in steps():
        if (sql := _SQL.fullmatch(step.command)) and step.shown:
            until(lambda step=step, sql=sql: shop.postgres.table(sql[1]) == step.shown, step.shown, shop.said, SECONDS)  # type: ignore[misc]
        elif sql:
            shop.postgres.run(sql[1])
        elif curl := _CURL.fullmatch(step.command):
            shop.connector(*curl.groups())
        elif step.command == "docker compose up --detach rowkind":
            shop.start()
        elif step.command == "docker compose restart rowkind":
            shop.stop()
            _edit_job(shop)
            shop.start()
        else:
            assert step.command in _OF_CONTAINERS or step.command.startswith(_CONSUMER), step.command


def _edit_job(shop: Pipeline) -> None:
    """Make the two changes in `job.yaml` that the page asks for."""
    yaml = YAML(typ="safe")
    job = yaml.load(shop.job)
    job["tables"]["orders"]["columns"]["channel"] = "STRING"
    sink = job["sinks"]["order_details"]
    sink["sql"] = sink["sql"].replace("o.note", "o.note, o.channel")
    shop.job = shop.folder / "job.yaml"
    yaml.dump(job, shop.job)
    shop.show()
