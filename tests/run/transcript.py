"""`python -m tests.run.transcript` writes the docs' example of a dead letter, from the alert to the replay."""

from __future__ import annotations

import re
import struct
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port
from tests.bench.compare import page
from tests.kafka.tables import packed
from tests.run.process import ROOT, Rowkind, get, until
from tests.run.results import Results
from tests.run.shop import COLUMNS, Shop

_PAGE = ROOT / "docs" / "how-to" / "replay-dead-letters.md"
_PATIENCE = 120.0
_SINKS = {"customers": {"mode": "upsert", "key": "order_id", "sql": "SELECT order_id, customer, amount FROM orders"}}
_ORDER = {"order_id": 7, "customer": "Ada", "amount": None, "status": "new", "placed": None, "discount": 5}
_WIDER = Record.of({**COLUMNS["orders"], "discount": "INT"}, name="orders")


def main() -> int:
    """Write the transcript into the page, print it, and return the exit code."""
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        text = transcript(Shop(broker.bootstrap_servers, Path(folder), "shop"))
    page.put("poison", f"```\n{text}\n```", _PAGE)
    print(text)
    return 0


def transcript(shop: Shop) -> str:
    """Run the commands and return their transcript."""
    job, port, said = str(shop.job(_SINKS)), free_port(), list[str]()

    def command(*words: str) -> None:
        with Rowkind(shop.folder / "output", *words) as running:
            ended = running.ended(60)
        assert ended.code == 0, ended.error
        shown = " ".join("job.yaml" if word == job else word for word in words)
        said.append("\n".join([f"$ rowkind {shown}", ended.output.rstrip(), ""]))

    with Rowkind(shop.folder / "output", "run", job, "--port", str(port)) as running:
        # The producer has registered its new schema in another registry, so the job cannot read what it writes.
        elsewhere = FolderRegistry(shop.folder / "elsewhere").register(f"{shop.topic('orders')}-value", _WIDER)
        value = struct.pack(">bI", 0, elsewhere) + packed(_WIDER, [_ORDER])[0]
        shop.tell("orders", b"7", value, [("op", b"+I")])
        shop.flush()
        until(lambda: "rowkind_dead_letters_total{" in get(port, "/metrics")[1], "a letter", lambda: running.error, 200)
        (sample,) = re.findall(r"^rowkind_dead_letters_total\{.*", get(port, "/metrics")[1], re.MULTILINE)
        rules = YAML(typ="safe").load(ROOT / "deploy" / "prometheus" / "rules.yaml")["groups"][0]["rules"]
        alert = next(rule for rule in rules if rule["alert"] == "RowkindDeadLetters")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', sample))
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: labels[match[1]], alert["annotations"]["summary"])
        said.append(f"{sample}\nRowkindDeadLetters: {summary}\n")
        command("dead-letters", "list", job)
        command("dead-letters", "show", job, "0:0")
        said.append("(its producer's schema is registered here, too)\n")
        shop.registry.register(f"{shop.topic('orders')}-value", _WIDER)
        command("dead-letters", "replay", job, "0:0")
        with_row = Results(shop, "customers")
        until(lambda: bool(with_row.rows()), "the row", lambda: running.error, _PATIENCE)
        with_row.close()
        command("consume", job, "customers")
        command("dead-letters", "replay", job, "0:0")
        command("dead-letters", "list", job)
    return "\n".join(said).replace(str(shop.folder), "…").rstrip()


if __name__ == "__main__":
    sys.exit(main())
