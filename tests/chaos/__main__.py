"""`python -m tests.chaos`: a campaign of faults against running jobs; `make chaos` calls it.

Each episode has a broker and a job of its own, which writes three topics of one order book: a retract topic with a key,
one without, and an upsert topic. Faults are drawn by the episode's seed, one after the other. After each of them the
job has to come to the right result by itself; until then every change of every topic is held against all that came
before it: what it takes back must be there, what it adds must not (`tests.run.results`). The time from the end of the
harm to the right result, of what happened meanwhile too, is how long the recovery took.
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
"""Bytes; temporary files are Spark's shuffles, RocksDB's and the sockets of workers."""


def main() -> int:
    """The exit code."""
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
    """So many faults against one job; it ends with the first one that the job does not get over."""
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
    """File systems of their own, of so many bytes each, by their names; none where this user may not mount any."""
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
