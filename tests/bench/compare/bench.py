"""One run of one query on one system, for the sections of the comparison."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rowkind.avro.registry import FolderRegistry
from rowkind.avro.schema import Record
from tests.bench.compare import nexmark
from tests.bench.compare.engine import Engine, Running, Setting
from tests.bench.compare.measure import Span, span, watch
from tests.bench.compare.queries import Query
from tests.bench.compare.result import difference, expect, fold
from tests.bench.compare.tables import Changes
from tests.bench.compare.workload import Variant, create_topic, fill, generate

Tables = tuple[str, ...]
_TABLES: Tables = ("orders", "payments")


@dataclass(frozen=True)
class Measured:
    """A measured span, the difference from the expected result, and the load average at the start."""

    span: Span
    wrong: str
    load: float


@dataclass
class Bench:
    """A broker, the topics that have been filled on it, and a counter for names."""

    servers: str
    folder: Path
    options: dict[str, str]
    _filled: dict[tuple[Variant, int, Tables], tuple[dict[str, str], tuple[Changes, ...]]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def registry(self) -> FolderRegistry:
        """Return the registry with the schemas of all topics."""
        return FolderRegistry(self.folder / "schemas")

    def filled(
        self, variant: Variant, rows: int, tables: Tables = _TABLES
    ) -> tuple[dict[str, str], tuple[Changes, ...]]:
        """Return topics with `rows` changes per table (Nexmark: in total), and the changes; topics are filled once."""
        of = variant, rows, tables if variant == "nexmark" else _TABLES
        if of not in self._filled:
            changes = nexmark.generate(tables, rows) if variant == "nexmark" else generate(variant, rows, rows)
            topics = self.topics(variant, of[2])
            fill(self.servers, self.registry, topics, variant, *changes)
            self._filled[of] = (topics, changes)
        return self._filled[of]

    def topics(self, label: str, tables: Tables = _TABLES) -> dict[str, str]:
        """Create new topics, one per table, with names that start with `label`."""
        number = next(self._numbers)
        names = {table: f"{label}-{number}-{table}" for table in tables}
        for topic in names.values():
            create_topic(self.servers, topic)
        return names

    @contextmanager
    def running(
        self,
        engine: Engine,
        query: Query,
        variant: Variant,
        topics: dict[str, str],
        *,
        parallelism: int = 2,
        quick: bool = False,
    ) -> Iterator[tuple[Setting, Running]]:
        """Run the query with its own result topic and folder."""
        words = f"{query.name} {engine.name}".lower().replace(",", "").replace(" ", "-")
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.folder) as name:
            setting = Setting(
                self.servers,
                self.folder / "schemas",
                Path(name),
                query,
                variant,
                topics,
                f"{words}-{next(self._numbers)}",
                parallelism,
                quick,
                self.options,
            )
            with engine.run(setting) as running:
                yield setting, running

    def throughput(
        self, engine: Engine, query: Query, variant: Variant, rows: int, *, parallelism: int = 2
    ) -> Measured:
        """Process the topics from their start; the first third of the rows is warm-up. Check the result."""
        topics, changes = self.filled(variant, rows, query.tables)
        load = os.getloadavg()[0]
        total = sum(len(each) for each in changes if each.table in query.tables)
        with self.running(engine, query, variant, topics, parallelism=parallelism) as (setting, running):
            samples = watch(self.servers, setting.sink, running, total)
            measured = span(samples, total // 3, running.state_bytes())
        return Measured(measured, self.wrong(engine, setting, changes), load)

    def wrong(self, engine: Engine, setting: Setting, changes: Sequence[Changes]) -> str:
        """Return how a result is wrong; empty if it is right."""
        record = Record.of(setting.query.columns)
        if engine.framed:
            record = self.registry.latest(f"{setting.sink}-value")
        got = fold(self.servers, setting.sink, record, framed=engine.framed)
        return difference(setting.query, expect(engine.sql(setting.query), changes, setting.query.oracle), got)

    def over_state(self, engine: Engine, query: Query, keys: int, rows: int, warm_up: int = 300_000) -> Measured:
        """Measure the cost of changes with so many orders in state.

        Orders and some payments are processed first. Then the other payments become visible at once.
        """
        orders, payments = generate("append", keys, warm_up + rows)
        topics = self.topics("state")
        load = os.getloadavg()[0]
        with self.running(engine, query, "append", topics) as (setting, running):
            first = payments.slice(0, warm_up)
            fill(self.servers, self.registry, topics, "append", orders, first)
            before = keys + warm_up
            samples = watch(self.servers, setting.sink, running, before)
            fill(self.servers, self.registry, topics, "append", payments.slice(warm_up, warm_up + rows))
            # The clock starts here: the second part has just become visible, all at once.
            samples = watch(self.servers, setting.sink, running, before + rows)
            measured = span(samples, 0, running.state_bytes())
        return Measured(measured, self.wrong(engine, setting, (orders, payments)), load)
