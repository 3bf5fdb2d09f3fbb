"""`python -m tests.chaos`: a campaign of faults against running jobs; `make chaos` calls it.

Each episode has its own broker and its own job, which writes three topics over one order book: a retract topic with a
key, one without, and an upsert topic. The episode's seed selects the faults, which follow one another. After each fault
the job must reach the right result by itself. Until then every change of every topic is checked against all earlier
changes: a retracted row must exist, an added row must not (`tests.run.results`). The recovery time is from the end of
the fault until the result is right, which includes changes made meanwhile.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from tests.bench.compare import page
from tests.chaos.brokers import Brokers
from tests.chaos.checks import CHECKS, KEPT
from tests.chaos.clock import Clock
from tests.chaos.faults import FAULTS, drawn
from tests.chaos.outcomes import Outcome, commit, gets_over, table, told
from tests.chaos.scene import Scene
from tests.chaos.stage import Stage, Surroundings

_FAULTS_OF_AN_EPISODE = 20
_FOUND = Path("docs/faults.jsonl")
_PAGE = Path("docs/explanation/tested-faults.md")
_WITH_DISKS = 0.5
_DISKS = {"checkpoint": 64 << 20, "temporary": 256 << 20}
"""In bytes; temporary files are Spark's shuffle files, RocksDB's files and the sockets of workers."""


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Faults against running jobs.")
    parser.add_argument("--faults", type=int, default=30, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the next ones count on")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS), help="kinds of faults")
    parser.add_argument("--found", type=Path, default=_FOUND, help="where outcomes are added, one JSON object a line")
    parser.add_argument("--write", action="store_true", help=f"put the table of all outcomes found so far into {_PAGE}")
    given = parser.parse_args()
    given.found.parent.mkdir(parents=True, exist_ok=True)
    at, outcomes = commit(), list[Outcome]()
    for seed in range(given.seed, given.seed + -(-given.faults // _FAULTS_OF_AN_EPISODE)):
        count = min(_FAULTS_OF_AN_EPISODE, given.faults - len(outcomes))
        for outcome in episode(seed, given.only, count, at):
            outcomes.append(outcome)
            outcome.tell(given.found)
    print(table("By kind", outcomes, "tests.chaos").text())
    if given.write:
        page.write("faults", [table("By kind", told(given.found), "tests.chaos")], _PAGE)
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def episode(seed: int, kinds: Sequence[str], count: int, at: str = "") -> Iterator[Outcome]:
    """Inject so many faults into one job; stop after the first one from which the job does not recover."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowkind-chaos-")))
        brokers = stack.enter_context(Brokers(folder / "kafka", chance.choice((1, 1, 3))))
        disks = stack.enter_context(limited(folder, _DISKS) if chance.random() < _WITH_DISKS else nullcontext({}))
        clock = Clock(folder)
        around = Surroundings(brokers.far_servers, disks, clock.environment)
        stage = Stage(brokers.servers, folder, seed, (*CHECKS, KEPT), around)
        stack.callback(stage.close)
        scene = Scene(stage, brokers, chance, disks, clock)
        scene.start()
        stack.callback(scene.end)
        faults = list(drawn(scene, kinds, count))
        for number, fault in enumerate(["", *faults, "drain"]):
            harm = partial(FAULTS[fault], scene) if fault else None
            outcome = gets_over(stage, harm, lambda: scene.job, Outcome(seed, number, fault, commit=at))
            if outcome.wrong or number in range(1, count + 1):
                yield outcome
            if outcome.wrong:
                return


@contextmanager
def limited(folder: Path, sizes: Mapping[str, int]) -> Iterator[dict[str, Path]]:
    """Yield file systems of these sizes in bytes, by name; none if this user may not mount any."""
    disks: dict[str, Path] = {}
    try:
        for name, size in sizes.items():
            disk = folder / name
            disk.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                disks[name] = disk
        yield disks
    finally:
        for disk in disks.values():
            subprocess.run(["umount", "--lazy", str(disk)], check=False)


if __name__ == "__main__":
    sys.exit(main())
