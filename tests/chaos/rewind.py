"""`python -m tests.chaos.rewind`: starts of a job from random savepoints and older checkpoints.

The job has queries whose results depend on how rows are split into batches, and when (`tests.run.rewound`). Each start
begins with a checkpoint or savepoint from up to 50 batches ago, or with the latest one. Meanwhile changes are sent, and
the run ends after its batch or in the middle of it. After each start every result topic must fold to what the recorded
batches give in memory, and no change may retract a row that is not there.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from rowkind.service.dev.broker import Broker
from rowkind.service.library.running_job import StartedJob
from rowkind.service.query.errors import SavepointError
from rowkind.service.spark.session import session
from tests.run.rewound import Rewound

STARTS = 25
"""How many starts an episode has; the next episode begins with new topics."""

FURTHEST = 50
_COPIES = 12
_LATE = 0.2
_SUDDEN = 0.3


@dataclass(frozen=True)
class Rewind:
    """A start: the age of its checkpoint in batches, whether it is a savepoint, the duration, and any error."""

    seed: int
    number: int
    batches: int
    savepoint: bool
    seconds: float
    wrong: str = ""


@dataclass
class Episode:
    """Starts of one job, selected by a seed."""

    job: Rewound
    seed: int
    copies: dict[str, int] = field(default_factory=dict)
    """The number of recorded batches when a copy was made, by its name; names of savepoints begin with s."""

    def __post_init__(self) -> None:
        """Initialise the random choices."""
        self.random = random.Random(self.seed)
        self.second = 0.0
        self.rows: dict[int, int] = {}

    def starts(self, count: int) -> Iterator[Rewind]:
        """Yield so many starts after the job's first one; stop after the first start that is wrong."""
        for number in range(count + 1):
            began = time.monotonic()
            name, batches = self._set_back()
            wrong = ""
            try:
                self._run(number)
            except Exception as error:  # noqa: BLE001 - every error makes the start wrong
                wrong = f"{type(error).__name__}: {error}"
            if number or wrong:
                savepoint = name.startswith("s")
                yield Rewind(self.seed, number, batches, savepoint, time.monotonic() - began, wrong)
            if wrong:
                return

    def _set_back(self) -> tuple[str, int]:
        """Restore one of the copies, or none; return its name, and how many batches ago it was made."""
        now = len(self.job.records()) if self.copies else 0
        near = [name for name, then in self.copies.items() if now - then <= FURTHEST]
        name = self.random.choice([*near, *near, ""]) if near else ""
        if name.startswith("s"):
            self.job.set_back(name)
        elif name:
            self.job.put_back(name)
        return name, now - self.copies[name] if name else 0

    def _run(self, number: int) -> None:
        with self.job.running() as running:
            for _ in range(self.random.randrange(1, 4)):
                self._change(self.random.randrange(1, 16))
                if self.random.random() < 0.5:
                    self.job.batch(running)
                if self.random.random() < 0.3:
                    self._copy(f"s{number}-{len(self.copies)}", running)
            if self.random.random() < _SUDDEN:
                self.job.producer.flush(30)
                time.sleep(self.random.uniform(0, 2))
                self.job.end_suddenly(running)
                self._copy(f"c{number}")
                return
            self.job.batch(running)
        self.job.check()
        self._copy(f"c{number}")

    def _copy(self, name: str, running: StartedJob | None = None) -> None:
        """Copy the checkpoint, if there is one; of a running job, as a savepoint."""
        if not self.job.records():
            return
        if running is None:
            self.job.copy(name)
        else:
            self.job.batch(running)
            try:
                self.job.save(name)
            except SavepointError:
                # On a busy machine Spark may delete files faster than they are copied.
                return
        self.copies[name] = len(self.job.records())
        for old in list(self.copies)[:-_COPIES]:
            shutil.rmtree(self.job.folder / old)
            del self.copies[old]

    def _change(self, count: int) -> None:
        """Send so many changes of all tables, some of them late."""
        draw = self.random
        for _ in range(count):
            match draw.choice(("events", "o", "r", "clicks", "notes")):
                case "events":
                    late = draw.random() < _LATE
                    self.second += 0 if late else draw.choice((0, 5, 40))
                    self.job.event(self.second - late * draw.randrange(300))
                case "o":
                    if self.rows and draw.random() < 0.4:
                        id_ = draw.choice(list(self.rows))
                        self.job.send("o", "-D", id=id_, k=self.rows.pop(id_))
                    else:
                        id_, k = len(self.job.sent["o"]), draw.randrange(4)
                        self.rows[id_] = k
                        self.job.send("o", "+I", id=id_, k=k)
                case "r":
                    self.job.send("r", draw.choice(("+U", "+U", "-D")), k=draw.randrange(4), v=str(draw.random()))
                case "clicks":
                    self.job.send("clicks", "+I", id=draw.randrange(100))
                case "notes":
                    op, note = draw.choice(("+U", "+U", "+U", "-D")), str(draw.random())
                    self.job.send("notes", op, id=draw.randrange(8), k=draw.randrange(3), note=note)


def episode(spark: SparkSession, servers: str, folder: Path, seed: int) -> Episode:
    """Return an episode with its own job."""
    job = Rewound(
        spark, servers, folder, f"rewind-{os.getpid()}-{seed}", rows_per_batch=random.Random(seed).choice((2, 4, 16))
    )
    return Episode(job, seed)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.rewind", description="Starts from older checkpoints.")
    parser.add_argument("--starts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the next ones count on")
    given = parser.parse_args()
    os.environ.update(ROWKIND_PYTHON=sys.executable, ROWKIND_STAND_IN="nobody answers here")
    done: list[Rewind] = []
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="rowkind-rewind-") as folder:
        spark = session("rewind", master="local[2,2]", parallelism=2, checkpoint=folder)
        for seed in range(given.seed, given.seed + -(-given.starts // STARTS)):
            own = Path(folder, str(seed))
            own.mkdir()
            for each in episode(spark, broker.bootstrap_servers, own, seed).starts(
                min(STARTS, given.starts - len(done))
            ):
                done.append(each)
                print(each, flush=True)
        spark.stop()
    wrong = [each for each in done if each.wrong]
    saved, replayed = sum(each.savepoint for each in done), sum(each.batches for each in done)
    print(f"{len(done)} starts, {saved} from savepoints, {replayed} batches replayed, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
