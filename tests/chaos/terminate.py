"""`python -m tests.chaos.terminate`: SIGTERM or SIGINT at random moments of a job's life, including its start.

Each time a job is started and gets a signal after a random time: while it plans, connects, waits for a registry that
hangs, starts Spark, begins its query, processes a batch, or waits for input. In half of the cases many rows are
waiting, so that a batch takes longer than the time limit. The process must end within five seconds of the signal, and
not with an error. At the end, one more start must reach the right result.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rowkind.service.dev.broker import Broker
from tests.run.process import Rowkind, until
from tests.run.results import Results
from tests.run.shop import Shop
from tests.strange_registry import StrangeRegistry

MOST_SECONDS = 5.0
_LATEST = 15.0
_ROWS = 20_000
_PATIENCE = 300.0

_RATED = {
    "mode": "upsert",
    "key": "stars",
    "sql": "SELECT stars, COUNT(*) AS ratings FROM ratings WHERE stars IS NOT NULL GROUP BY stars",
}
_STOPPED = {0, -signal.SIGTERM, -signal.SIGINT}
"""Before Python has loaded the program, the signal itself ends the process."""


@dataclass(frozen=True)
class Termination:
    """A signal so many seconds after the start, the job's activity then, and how long the process took to end."""

    signal: str
    after: float
    doing: str
    seconds: float
    code: int
    wrong: str = ""


@dataclass
class Terminations:
    """Starts of one job, selected by a seed."""

    servers: str
    folder: Path
    seed: int
    sent: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Initialise the random choices."""
        self.random = random.Random(self.seed)
        self.shop = Shop(self.servers, self.folder, f"terminate-{self.seed}-{self.folder.name}")
        self.number = 0

    def ends(self, count: int) -> Iterator[Termination]:
        """Yield so many terminations, then check that one more start reaches the right result."""
        with StrangeRegistry(self.folder / "schemas") as registry:
            table = {name: value for name, value in self.shop.table("ratings").items() if name != "columns"}
            job = self.shop.job(
                {"rated": _RATED}, tables={"ratings": table}, registry={"url": registry.url}, parallelism=1
            )
            for _ in range(count):
                hangs = self.random.random() < 0.2
                self._rate(self.random.choice((1, _ROWS)))
                if hangs:
                    registry.begin("hang")
                yield self._end(job, registry)
                registry.end()
            with self._running(job) as running, closing(Results(self.shop, "rated")) as results:
                wanted = Counter(self.sent.items())
                until(lambda: results.rows() == wanted, "the right result", lambda: running.error, _PATIENCE)
            assert not results.flaws, results.flaws

    def _end(self, job: Path, registry: StrangeRegistry) -> Termination:
        # Some signals are sent once the job runs, the others during the start.
        runs = self.random.random() < 0.4 and not registry.misbehaves
        after = self.random.uniform(0, 5 if runs else _LATEST)
        number = self.random.choice((signal.SIGTERM, signal.SIGINT))
        with self._running(job) as running:
            if runs:
                until(lambda: "writing to topic" in running.error, "a job that runs", lambda: running.error, _PATIENCE)
            began = time.monotonic()
            while time.monotonic() - began < after and running.running:
                time.sleep(min(0.05, after))
            doing = _doing(running.error, registry)
            asked = time.monotonic()
            running.signal(number)
            wrong = ""
            try:
                ended = running.ended(60)
            except AssertionError as error:
                return Termination(number.name, round(after, 1), doing, 60, 0, str(error))
            seconds = time.monotonic() - asked
        if seconds > MOST_SECONDS:
            wrong = f"it took {seconds:.1f} s:\n{ended.error}"
        elif ended.code not in _STOPPED or (ended.code == 0 and "Traceback" in ended.error):
            wrong = f"exit code {ended.code}:\n{ended.error}"
        return Termination(number.name, round(after, 1), doing, round(seconds, 2), ended.code, wrong)

    def _running(self, job: Path) -> Rowkind:
        return Rowkind(self.folder / "output", "run", str(job), "--port", "0")

    def _rate(self, rows: int) -> None:
        for _ in range(rows):
            stars = self.random.randrange(1, 6)
            self.shop.row("ratings", "+I", rating_id=self.number, stars=stars)
            self.sent[stars] = self.sent.get(stars, 0) + 1
            self.number += 1
        self.shop.flush()


def _doing(log: str, registry: StrangeRegistry) -> str:
    """Return the approximate activity of a job with this log."""
    if registry.misbehaves and "writing to topic" not in log:
        return "waits for the registry"
    if "batch query" in log:
        return "has done a batch"
    if "writing to topic" in log:
        return "does its first batch"
    return "starts"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.terminate", description="Signals at random moments.")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # If this runs in the background, SIGINT may be ignored here and in the jobs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    done: list[Termination] = []
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="rowkind-terminate-") as folder:
        for each in Terminations(broker.bootstrap_servers, Path(folder), given.seed).ends(given.times):
            done.append(each)
            print(each, flush=True)
    wrong = sum(bool(each.wrong) for each in done)
    seconds = [each.seconds for each in done]
    print(f"{len(done)} times: median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
