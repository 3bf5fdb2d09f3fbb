"""A registry that misbehaves while a job starts or runs: the job waits and says so, whatever the registry does."""

from __future__ import annotations

import io
import json
import os
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fastavro import parse_schema, schemaless_writer

from rowkind.avro.registry import identify
from rowkind.avro.schema import Record
from rowkind.service.dev.broker import Broker
from tests.run.process import Rowkind, get, until
from tests.run.shop import COLUMNS, Shop
from tests.strange_registry import StrangeRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RATED = {
    "mode": "upsert",
    "key": "stars",
    "sql": "SELECT stars, COUNT(*) AS ratings FROM ratings WHERE stars IS NOT NULL GROUP BY stars",
}
AT_START = ("hang", "page", "reset", "redirect", "store not ready")
IN_A_BATCH = ("too many requests", "drip of the body", "page", "page not found", "reset", "redirect")
SLOW = 240.0
WORD_SECONDS = 12.0
"""The time within which a wait must be reported: 5 seconds, and an allowance for a busy machine."""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StrangeRegistry]:
    """A registry over the shop's schema folder, which can misbehave."""
    with StrangeRegistry(tmp_path / "schemas") as serving:
        yield serving


@pytest.fixture
def shop(broker: Broker, tmp_path: Path) -> Shop:
    """A shop without any events yet."""
    return Shop(broker.bootstrap_servers, tmp_path, f"registry-{os.getpid()}-{tmp_path.name}", 1)


def rate(shop: Shop, number: int, *, new_schema: bool = False) -> None:
    """Send a rating of three stars, if `new_schema` is set under a schema that the job has not seen."""
    if not new_schema:
        shop.row("ratings", "+I", rating_id=number, stars=3)
    else:
        record = Record.of({**COLUMNS["ratings"], f"more_{number}": "STRING"}, name="ratings")
        shop.registry.register(f"{shop.topic('ratings')}-value", record)
        packed = io.BytesIO()
        packed.write(b"\0" + identify(record)[0].to_bytes(4, "big"))
        schema = parse_schema(json.loads(record.to_json()))
        schemaless_writer(packed, schema, {"rating_id": number, "stars": 3, f"more_{number}": None})
        shop.tell("ratings", None, packed.getvalue(), [("op", b"+I")])
    shop.flush()


def _asked_since(registry: StrangeRegistry, before: int) -> bool:
    return registry.asked > before


def _has_read(port: int, rows: int) -> bool:
    return rows_read(port) == rows


def rows_read(port: int) -> int:
    """Return how many rows the job has read."""
    found = re.findall(r"^rowkind_rows_in_total\{.*\} (.*)$", get(port, "/metrics")[1], re.MULTILINE)
    return sum(int(float(each)) for each in found)


def waits(port: int) -> float:
    """Return for how many seconds the job has waited for the registry, from its metrics."""
    (found,) = re.findall(
        r'^rowkind_waiting_seconds\{.*system="registry".*\} (.*)$', get(port, "/metrics")[1], re.MULTILINE
    )
    return float(found)


def test_a_registry_that_misbehaves_is_waited_for(shop: Shop, registry: StrangeRegistry) -> None:
    """At the start, in a batch and on SIGTERM, the job names the registry, makes no dead letter and loses no row."""
    table = {name: value for name, value in shop.table("ratings").items() if name != "columns"}
    job = shop.job({"rated": RATED}, tables={"ratings": table}, registry={"url": registry.url, "timeout": 4})
    rate(shop, 0)
    registry.begin(AT_START[0])
    with Rowkind(shop.folder / "output", "run", str(job), "--port", "0") as running:
        until(lambda: f"waiting for the registry at {registry.url}" in running.error, "a word", lambda: running.error)
        port = running.port
        for misbehaviour in AT_START:
            registry.begin(misbehaviour)
            until(partial(_asked_since, registry, registry.asked + 1), "a question", lambda: running.error)
            code, said = get(port, "/readyz")
            assert (code, registry.url in said) == (503, True), said
            assert get(port, "/healthz")[0] == 200
            assert waits(port) > 4
        registry.end()
        until(lambda: rows_read(port) == 1, "the first row", lambda: running.error, SLOW)
        until(lambda: get(port, "/readyz")[0] == 200, "a job that is ready", lambda: get(port, "/readyz")[1])
        assert waits(port) == 0
        for number, misbehaviour in enumerate(IN_A_BATCH, 1):
            registry.begin(misbehaviour)
            rate(shop, number, new_schema=True)
            began = time.monotonic()
            until(lambda: get(port, "/readyz")[0] == 503, misbehaviour, lambda: running.error)
            assert time.monotonic() - began < WORD_SECONDS + 5
            assert "registry" in get(port, "/readyz")[1]
            assert get(port, "/healthz")[0] == 200
            assert waits(port) > 0
            registry.end()
            until(partial(_has_read, port, number + 1), "the row", lambda: running.error, SLOW)
            until(lambda: get(port, "/readyz")[0] == 200, "a job that is ready", lambda: running.error)
        registry.begin("hang")
        rate(shop, len(IN_A_BATCH) + 1, new_schema=True)
        until(lambda: get(port, "/readyz")[0] == 503, "a wait", lambda: running.error)
        assert not re.search(r"^rowkind_dead_letters_total\{.*\} [1-9]", get(port, "/metrics")[1], re.MULTILINE)
        running.terminate()
        began = time.monotonic()
        ended = running.ended()
        assert time.monotonic() - began < 5.5, ended.error
    print(ended.error)
    assert ended.code == 0, ended.error
    for never in ("Traceback", "a Spark process was lost", "Python worker", "bug"):
        assert never not in ended.error, ended.error
