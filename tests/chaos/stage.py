"""Where scenarios play: a shop, a job with a sink for every check, and what can be done to it between two phases."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from rowkind.service.dev.demo.data import order_book
from tests.chaos.checks import Check
from tests.run.process import Ended, Rowkind, until
from tests.run.results import Results
from tests.run.shop import COLUMNS, Shop

EVENTS = 1_500
_ENDLESS = 1_000_000_000
ROWS_PER_BATCH = 200
_WHERE = " WHERE "
_CONDITIONS = ("o.amount > 100", "o.amount < 400", "o.status <> 'new'", "o.customer <> 'Ada'")
SLOW = 400.0
"""Seconds for what takes a tenth of it on a machine at rest."""


@dataclass(frozen=True)
class Surroundings:
    """What a job runs in.

    - `far_servers`: by which the job reaches the brokers, where it does so in another way.
    - `disks`: folders of limited size for the checkpoint and for temporary files, instead of ones in `folder`.
    - `environment`: of the job's processes, beside this one's.
    """

    far_servers: str = ""
    disks: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Stage:
    """Initialise with some checks, manipulate in two phases, validate; all checks at once, in one job."""

    def __init__(
        self, servers: str, folder: Path, seed: int, checks: Sequence[Check], around: Surroundings | None = None
    ) -> None:
        print(f"seed {seed}")
        around = around or Surroundings()
        self._disks = around.disks
        self._environment = dict(around.environment)
        if "temporary" in self._disks:
            self._environment["TMPDIR"] = str(self._disks["temporary"])
        self.checks = list(checks)
        self.random = random.Random(seed)
        self.shop = Shop(servers, folder, f"chaos-{os.getpid()}-{seed}")
        self._book = order_book(_ENDLESS, seed)
        self._root = self._disks.get("checkpoint", self.shop.checkpoint)
        self._job = self.shop.job(
            {check.name: check.sink for check in self.checks},
            batch={"max_rows": ROWS_PER_BATCH},
            kafka={"bootstrap.servers": around.far_servers or servers},
            checkpoint=str(self._root),
        )
        self.results = {check.name: Results(self.shop, check.name) for check in self.checks}
        self.checkpoint = self._root / self.shop.name / "main"

    def close(self) -> None:
        """Leave the topics."""
        for results in self.results.values():
            results.close()

    def manipulate(self, share: float) -> None:
        """A share of the events of a scenario happens, at once."""
        self.shop.happens(islice(self._book, round(EVENTS * share)))

    def happens(self, changes: int) -> None:
        """So many changes happen, at once."""
        self.shop.happens(islice(self._book, changes))

    def job(self, *arguments: str, **environment: str) -> Rowkind:
        """The job, to be started with `with`."""
        command = ("run", str(self._job), "--port", "0", *arguments)
        return Rowkind(self.shop.folder / "output", *command, **self._environment | environment)

    def command(self, name: str, *arguments: str) -> Rowkind:
        """What can be done with the job beside running it, to be begun with `with`."""
        return Rowkind(self.shop.folder / "output", name, str(self._job), *arguments)

    def change(self, **changed: Any) -> None:
        """The job file says something else from the next start on."""
        self._job.write_text(json.dumps(json.loads(self._job.read_text()) | changed))

    def tolerate_losses(self, *, tolerate: bool) -> None:
        """The job goes on, or does not, where rows are gone that it has not read, from the next start on."""
        start = {"start": {"on_lost": "earliest"}} if tolerate else {}
        self.change(tables={name: self.shop.table(name, **start) for name in COLUMNS})

    def remake_result(self, name: str) -> str:
        """The topic of a sink is deleted and made anew; its name."""
        topic = self.shop.topic(name)
        # It has to outlive the answer.
        admin = self.admin
        partitions = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
        (check,) = (each for each in self.checks if each.name == name)
        policy = "compact" if check.sink["mode"] == "upsert" else "delete"
        self.shop.delete(topic)
        made = NewTopic(topic, partitions, config={"cleanup.policy": policy, "retention.ms": "-1"})
        admin.create_topics([made])[topic].result()
        self.results[name].close()
        self.results[name] = Results(self.shop, name)
        return topic

    @property
    def admin(self) -> AdminClient:
        """An admin client that knows nothing yet."""
        return AdminClient({"bootstrap.servers": self.shop.servers, "log_level": 0})

    def query(self, name: str, sql: str) -> None:
        """A sink has another query from the next start on."""
        self.checks = [
            Check(check.name, check.sink | {"sql": sql}) if check.name == name else check for check in self.checks
        ]
        job = json.loads(self._job.read_text())
        job["sinks"][name]["sql"] = sql
        self._job.write_text(json.dumps(job))

    def change_query(self) -> str:
        """One of the sinks has another query from the next start on; which one."""
        check = self.random.choice([each for each in self.checks if "GROUP BY" not in each.sink["sql"]])
        sql, _, before = check.sink["sql"].partition(_WHERE)
        self.query(check.name, sql + _WHERE + self.random.choice([each for each in _CONDITIONS if each != before]))
        return check.name

    def filling_topics(self) -> list[str]:
        """The topics of queries that fill their states."""
        topics = self.admin.list_topics(timeout=30).topics
        return [topic for topic in topics if topic.startswith(f"{self.shop.name}.") and ".filling-" in topic]

    def validate(self) -> None:
        """Every check."""
        for check in self.checks:
            check.validate(self.results[check.name], self.shop.events)

    def catch_up(self, job: Rowkind, *, may_end: bool = False) -> None:
        """Wait until every result is right, no batch or transaction under way; if that may be, for the job's end."""
        right = {check.name: check.right(self.shop.events) for check in self.checks}

        def done() -> bool:
            if not job.running:
                assert may_end, f"the job ended: {job.error}"
                return True
            assert not (flaws := [flaw for results in self.results.values() for flaw in results.flaws]), flaws[:10]
            if any(self.results[name].rows() != rows for name, rows in right.items()) or self.unfinished() is not None:
                return False
            return not any(results.open for results in self.results.values())

        until(done, "the right result", lambda: job.error, SLOW)

    def drain(self, job: Rowkind) -> Ended:
        """SIGTERM, once it is listened for, and how the job ends."""
        self.await_words(job, "status, metrics and health")
        job.terminate()
        return job.ended(SLOW)

    def runs(self, *arguments: str) -> str:
        """A whole run of the job, until the result is right and then drained; what it said."""
        with self.job(*arguments) as job:
            self.await_words(job, ": writing to topic")
            self.catch_up(job)
            ended = self.drain(job)
        assert ended.code == 0, ended.error
        return ended.error

    def written(self) -> dict[str, Counter[str]]:
        """The records that each result topic has ever had, by row kind."""
        for results in self.results.values():
            results.rows()
        return {name: Counter(results.kinds) for name, results in self.results.items()}

    def unfinished(self) -> int | None:
        """The batch that the query of all sinks has begun and not ended, by Spark's own logs."""
        begun, ended = (_last(self.checkpoint / log) for log in ("offsets", "commits"))
        return begun if begun > ended else None

    def one(self) -> str:
        """The name of one of the sinks."""
        return self.random.choice(self.checks).name

    def inside_a_batch(self, job: Rowkind) -> None:
        """Wait for a moment, chosen at random, at which a batch is under way; more changes happen if none is."""
        self.await_words(job, ": writing to topic")
        time.sleep(self.random.uniform(0, 1.5))

        def inside() -> bool:
            if self.unfinished() is None:
                # All that had happened may be done already, and without changes there is no batch.
                self.happens(5)
            return self.unfinished() is not None

        self._await(job, inside, "a batch")

    def while_filling(self, job: Rowkind) -> None:
        """Wait for a moment, chosen at random, at which a query fills its state."""
        self.await_words(job, "fills its state")
        time.sleep(self.random.uniform(0, 2))

    def await_words(self, job: Rowkind, words: str, times: int = 1) -> None:
        """Wait until the job has said something, so many times."""
        self._await(job, lambda: job.error.count(words) >= times, words)

    def await_either(self, job: Rowkind, words: str) -> None:
        """Wait until the job has said something, or has ended."""
        until(lambda: words in job.error or not job.running, words, lambda: job.error, SLOW)

    def half_written(self, job: Rowkind, name: str) -> None:
        """Wait until some of a batch of this sink is committed to Kafka, and Spark does not know it yet."""
        results = self.results[name]
        results.rows()

        def seen() -> bool:
            if self.unfinished() is None:
                self.happens(20)
            before = results.kinds.total()
            results.rows()
            return results.kinds.total() > before and self.unfinished() is not None

        self._await(job, seen, f"a half-written batch of {name}")

    def _await(self, job: Rowkind, done: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            assert job.running, f"the job ended: {job.error}"
            return done()

        until(look, what, lambda: job.error, SLOW)


def _last(log: Path) -> int:
    """The number of the last batch in one of Spark's logs; -1 before the first one."""
    return max((int(entry.name) for entry in log.glob("[0-9]*") if entry.name.isdigit()), default=-1)
