"""`python -m tests.chaos`: a campaign of faults against running jobs; `make chaos` calls it.

Each episode has a broker and a job of its own, which writes three topics of one order book: a retract topic with a key,
one without, and an upsert topic. Faults are drawn by the episode's seed, one after the other. After each of them the
job has to come to the right result by itself; until then every change of every topic is held against all that came
before it: what it takes back must be there, what it adds must not (`tests.run.results`). The time from the end of the
harm to the right result, of what happened meanwhile too, is how long the recovery took.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.bench.compare import page
from tests.bench.compare.page import Table
from tests.chaos.brokers import Brokers
from tests.chaos.checks import CHECKS
from tests.chaos.faults import FAULTS, drawn
from tests.chaos.scene import Scene
from tests.chaos.stage import Stage

_FAULTS_OF_AN_EPISODE = 10
_FOUND = Path(".rowkind/chaos.jsonl")
_PAGE = Path("docs/reliability.md")
_WITH_DISKS = 0.5
_DISKS = {"checkpoint": 64 << 20, "temporary": 256 << 20}
"""Bytes; temporary files are Spark's shuffles, RocksDB's and the sockets of workers."""


@dataclass(frozen=True)
class Outcome:
    """What became of a fault.

    - `seconds`: until the result was right again; `changes`: how many had been checked by then.
    - `wrong`: what was wrong, nothing if all was well. `commit`: of the code, by which a seed means the same again.
    """

    seed: int
    number: int
    fault: str
    seconds: float
    changes: int
    wrong: str = ""
    commit: str = ""


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
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    outcomes: list[Outcome] = []
    for seed in range(given.seed, given.seed + -(-given.faults // _FAULTS_OF_AN_EPISODE)):
        count = min(_FAULTS_OF_AN_EPISODE, given.faults - len(outcomes))
        for found in episode(seed, given.only, count):
            outcome = replace(found, commit=commit.stdout.strip())
            outcomes.append(outcome)
            with given.found.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            print(
                f"seed {seed}, fault {outcome.number}: {outcome.fault}: {outcome.wrong or f'{outcome.seconds:.1f} s'}",
                file=sys.stderr,
                flush=True,
            )
    print(table(outcomes).text())
    if given.write:
        so_far = [Outcome(**json.loads(line)) for line in given.found.read_text().splitlines()]
        page.write("faults", [table(so_far)], _PAGE)
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def episode(seed: int, kinds: Sequence[str], count: int) -> Iterator[Outcome]:
    """So many faults against one job; it ends with the first one that the job does not get over."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowkind-chaos-")))
        brokers = stack.enter_context(Brokers(folder / "kafka", chance.choice((1, 1, 3))))
        disks = stack.enter_context(limited(folder, _DISKS) if chance.random() < _WITH_DISKS else nullcontext({}))
        stage = Stage(brokers.servers, folder, seed, CHECKS, far_servers=brokers.far_servers, disks=disks)
        stack.callback(stage.close)
        scene = Scene(stage, brokers, chance, disks)
        scene.start()
        stack.callback(scene.end)
        faults = list(drawn(scene, kinds, count))
        for number, fault in enumerate(["", *faults, "drain"]):
            outcome = _one(scene, seed, number, fault)
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


def _one(scene: Scene, seed: int, number: int, fault: str) -> Outcome:
    """One fault and how the job got over it; nothing, in the beginning, is a fault too."""
    stage = scene.stage
    began = time.monotonic()
    wrong = ""
    try:
        if fault:
            FAULTS[fault](scene)
        began = time.monotonic()
        stage.happens(scene.random.randrange(1, 300))
        stage.catch_up(scene.job)
    except Exception:  # noqa: BLE001 - whatever it is, it is to be told and the campaign to go on
        wrong = traceback.format_exc()
    changes = sum(results.kinds.total() for results in stage.results.values())
    return Outcome(seed, number, fault, time.monotonic() - began, changes, wrong)


def table(outcomes: Sequence[Outcome]) -> Table:
    """Recoveries by kind of fault; of a fault of a seed that was tried several times the last one counts."""
    last = list({(outcome.commit, outcome.seed, outcome.number): outcome for outcome in outcomes}.values())
    by_fault: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in last:
        by_fault[outcome.fault].append(outcome)
    rows = []
    for fault, found in sorted(by_fault.items()):
        worst = max(found, key=lambda outcome: outcome.seconds)
        wrong = sum(bool(outcome.wrong) for outcome in found)
        median = statistics.median(outcome.seconds for outcome in found)
        seconds = (f"{median:.1f}", f"{worst.seconds:.1f}")
        rows.append((fault, str(len(found)), str(wrong), *seconds, f"{worst.seed}:{worst.number}"))
    checked = {(outcome.commit, outcome.seed): outcome.changes for outcome in last}
    commits = ", ".join(f"{commit} ({count})" for commit, count in Counter(each.commit for each in last).items())
    note = (
        f"{len(last):,} faults in {len(checked)} jobs, {sum(checked.values()):,} changes of topics checked; after "
        f"{sum(bool(outcome.wrong) for outcome in last)} of the faults a result was wrong or did not come. Seconds are "
        f"from the end of the harm to the right result. `python -m tests.chaos --seed S` repeats an episode of ten, at "
        f"the same commit: {commits}. {page.machine()}."
    )
    return Table("By kind", ("fault", "times", "wrong", "median s", "worst s", "its seed"), rows, note)


if __name__ == "__main__":
    sys.exit(main())
