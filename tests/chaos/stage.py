"""The stage of scenarios: a shop, a job with a sink per check, and the operations on it between two phases."""

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
from tests.chaos.asked import ask_why
from tests.chaos.audited import audited
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
"""Timeout in seconds; on an idle machine a tenth of it is enough."""


@dataclass(frozen=True)
class Surroundings:
    """The environment of a job.

    - `far_servers`: the broker addresses for the job, if they differ.
    - `disks`: folders of limited size for the checkpoint and for temporary files, instead of folders in `folder`.
    - `environment`: environment variables of the job's processes, in addition to this process's.
    """

    far_servers: str = ""
    disks: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Stage:
    """Initialise with some checks, change data in two phases, and validate: all checks at once, in one job."""

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
        """Close the consumers of the result topics."""
        for results in self.results.values():
            results.close()

    def manipulate(self, share: float) -> None:
        """Send a share of a scenario's events at once."""
        self.shop.happens(islice(self._book, round(EVENTS * share)))

    def happens(self, changes: int) -> None:
        """Send so many changes at once."""
        self.shop.happens(islice(self._book, changes))

    def job(self, *arguments: str, **environment: str) -> Rowkind:
        """Return the job, to be started with `with`."""
        command = ("run", str(self._job), "--port", "0", *arguments)
        return Rowkind(self.shop.folder / "output", *command, **self._environment | environment)

    def command(self, name: str, *arguments: str) -> Rowkind:
        """Return another command for the job, to be started with `with`."""
        return Rowkind(self.shop.folder / "output", name, str(self._job), *arguments)

    def change(self, **changed: Any) -> None:
        """Change settings of the job file; they apply from the next start."""
        self._job.write_text(json.dumps(json.loads(self._job.read_text()) | changed))

    def tolerate_losses(self, *, tolerate: bool) -> None:
        """Set whether the job continues if unread rows are lost; it applies from the next start."""
        start = {"start": {"on_lost": "earliest"}} if tolerate else {}
        self.change(tables={name: self.shop.table(name, **start) for name in COLUMNS})

    def remake_result(self, name: str) -> str:
        """Delete the topic of a sink and create it again; return its name."""
        topic = self.shop.topic(name)
        # The admin client must outlive its answer.
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
        """Return a new admin client, without cached metadata."""
        return AdminClient({"bootstrap.servers": self.shop.servers, "log_level": 0})

    def query(self, name: str, sql: str) -> None:
        """Change a sink's query; it applies from the next start."""
        self.checks = [
            Check(check.name, check.sink | {"sql": sql}) if check.name == name else check for check in self.checks
        ]
        job = json.loads(self._job.read_text())
        job["sinks"][name]["sql"] = sql
        self._job.write_text(json.dumps(job))

    def change_query(self) -> str:
        """Change the query of one of the sinks, from the next start; return the sink's name."""
        check = self.random.choice([each for each in self.checks if "GROUP BY" not in each.sink["sql"]])
        sql, _, before = check.sink["sql"].partition(_WHERE)
        self.query(check.name, sql + _WHERE + self.random.choice([each for each in _CONDITIONS if each != before]))
        return check.name

    def filling_topics(self) -> list[str]:
        """Return the topics of queries that are filling their state."""
        topics = self.admin.list_topics(timeout=30).topics
        return [topic for topic in topics if topic.startswith(f"{self.shop.name}.") and ".filling-" in topic]

    def validate(self) -> None:
        """Validate every check."""
        for check in self.checks:
            check.validate(self.results[check.name], self.shop.events)
        self.ask_why()
        self.audit()

    def audit(self) -> int:
        """Audit every result as `rowkind verify` does, and return how many rows are right. Fails if one differs.

        If a topic has lost records, its results cannot be compared any more.
        """
        return 0 if self.shop.has_lost_records else audited(self._job, self.shop.servers)

    def ask_why(self) -> int:
        """Explain some rows of every result by the records of the topics; return how many. Fails if one is wrong.

        If a topic has lost records, its rows cannot be explained any more.
        """
        if self.shop.has_lost_records:
            return 0
        return ask_why(self._job, self.results, self.shop.servers, self.random)

    def catch_up(self, job: Rowkind, *, may_end: bool = False) -> None:
        """Wait until every result is right and no batch or transaction is open, or, if it `may_end`, the job ends."""
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
        """Send SIGTERM once the job handles it; return how the job ends."""
        self.await_words(job, "status, metrics and health")
        job.terminate()
        return job.ended(SLOW)

    def runs(self, *arguments: str) -> str:
        """Run the job until the result is right, drain it, and return its log."""
        with self.job(*arguments) as job:
            self.await_words(job, ": writing to topic")
            self.catch_up(job)
            ended = self.drain(job)
        assert ended.code == 0, ended.error
        return ended.error

    def written(self) -> dict[str, Counter[str]]:
        """Return the records that each result topic has ever had, by row kind."""
        for results in self.results.values():
            results.rows()
        return {name: Counter(results.kinds) for name, results in self.results.items()}

    def unfinished(self) -> int | None:
        """Return the batch that Spark's logs have as begun and not ended, or None."""
        begun, ended = (_last(self.checkpoint / log) for log in ("offsets", "commits"))
        return begun if begun > ended else None

    def one(self) -> str:
        """Return the name of a random sink."""
        return self.random.choice(self.checks).name

    def inside_a_batch(self, job: Rowkind) -> None:
        """Wait for a random moment inside a batch; send more changes if no batch is running."""
        self.await_words(job, ": writing to topic")
        time.sleep(self.random.uniform(0, 1.5))

        def inside() -> bool:
            if self.unfinished() is None:
                # All changes may have been processed, and without changes there is no batch.
                self.happens(5)
            return self.unfinished() is not None

        self._await(job, inside, "a batch")

    def while_filling(self, job: Rowkind) -> None:
        """Wait for a random moment while a query fills its state."""
        self.await_words(job, "fills its state")
        time.sleep(self.random.uniform(0, 2))

    def await_words(self, job: Rowkind, words: str, times: int = 1) -> None:
        """Wait until the job has logged these words so many times."""
        self._await(job, lambda: job.error.count(words) >= times, words)

    def await_either(self, job: Rowkind, words: str) -> None:
        """Wait until the job has logged these words or has ended."""
        until(lambda: words in job.error or not job.running, words, lambda: job.error, SLOW)

    def half_written(self, job: Rowkind, name: str) -> None:
        """Wait until a part of a batch of this sink is committed to Kafka but not yet in Spark's commit log."""
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
    """Return the number of the last batch in one of Spark's logs; -1 if there is none."""
    return max((int(entry.name) for entry in log.glob("[0-9]*") if entry.name.isdigit()), default=-1)
