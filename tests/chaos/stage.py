"""Where scenarios play: a shop, a job with a sink for every check, and what can be done to it between two phases."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rowkind.service.dev.demo.data import order_book
from tests.chaos.checks import Check
from tests.run.process import Ended, Rowkind, until
from tests.run.results import Results
from tests.run.shop import Shop

EVENTS = 1_500
ROWS_PER_BATCH = 200
SLOW = 400.0
"""Seconds for what takes a tenth of it on a machine at rest."""


class Stage:
    """Initialise with some checks, manipulate in two phases, validate; all checks at once, in one job."""

    def __init__(self, servers: str, folder: Path, seed: int, checks: Sequence[Check]) -> None:
        print(f"seed {seed}")
        self.checks = checks
        self.random = random.Random(seed)
        self.shop = Shop(servers, folder, f"chaos-{os.getpid()}-{seed}")
        self._book = order_book(EVENTS, seed)
        self._job = self.shop.job({check.name: check.sink for check in self.checks}, batch={"max_rows": ROWS_PER_BATCH})
        self.results = {check.name: Results(self.shop, check.name) for check in self.checks}
        self._query = self.shop.checkpoint / self.shop.name / "main"

    def close(self) -> None:
        """Leave the topics."""
        for results in self.results.values():
            results.close()

    def manipulate(self, share: float) -> None:
        """A share of all that is to happen happens, at once."""
        self.shop.happens(islice(self._book, round(EVENTS * share)))

    def job(self, *arguments: str) -> Rowkind:
        """The job, to be started with `with`."""
        return Rowkind(self.shop.folder / "output", "run", str(self._job), "--port", "0", *arguments)

    def change(self, **changed: Any) -> None:
        """The job file says something else from the next start on."""
        self._job.write_text(json.dumps(json.loads(self._job.read_text()) | changed))

    def validate(self) -> None:
        """Every check."""
        for check in self.checks:
            check.validate(self.results[check.name], self.shop.events)

    def catch_up(self, job: Rowkind, *, may_end: bool = False) -> None:
        """Wait until every result is right and no batch is under way, or, if that may be, until the job has ended."""
        right = {check.name: check.right(self.shop.events) for check in self.checks}

        def done() -> bool:
            if not job.running:
                assert may_end, f"the job ended: {job.error}"
                return True
            assert not (flaws := [flaw for results in self.results.values() for flaw in results.flaws]), flaws[:10]
            return all(self.results[name].rows() == rows for name, rows in right.items()) and self.unfinished() is None

        until(done, "the right result", lambda: job.error, SLOW)

    def drain(self, job: Rowkind) -> Ended:
        """SIGTERM, and how the job ends."""
        job.terminate()
        return job.ended(SLOW)

    def unfinished(self) -> int | None:
        """The batch that the query of all sinks has begun and not ended, by Spark's own logs."""
        begun, ended = (_last(self._query / log) for log in ("offsets", "commits"))
        return begun if begun > ended else None

    def one(self) -> str:
        """The name of one of the sinks."""
        return self.random.choice(self.checks).name

    def inside_a_batch(self, job: Rowkind) -> None:
        """Wait for a moment, chosen at random, inside a batch: the first after a start, or the second."""
        batch = _last(self._query / "commits") + self.random.choice((1, 2))
        self._await(job, lambda: ": writing to topic" in job.error, "the start of the query")
        self._await(job, lambda: self.unfinished() == batch, f"batch {batch}")
        time.sleep(self.random.uniform(0, 1.5))

    def half_written(self, job: Rowkind, name: str) -> None:
        """Wait until some of a batch of this sink is committed to Kafka, and Spark does not know it yet."""
        results = self.results[name]
        results.rows()

        def seen() -> bool:
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
