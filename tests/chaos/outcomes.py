"""Outcomes of faults: how a job recovered from each, stored in a file, and a table of all of them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.bench.compare import page
from tests.bench.compare.page import Table
from tests.chaos.stage import SLOW, Stage
from tests.run.process import Rowkind


@dataclass(frozen=True)
class Outcome:
    """The outcome of a fault.

    - `seconds`: until the result was right again; `changes`: how many had been checked by then.
    - `wrong`: the error, empty if there was none. `commit`: of the code, at which a seed gives the same faults.
    """

    seed: int
    number: int
    fault: str
    seconds: float = 0.0
    changes: int = 0
    wrong: str = ""
    commit: str = ""

    def tell(self, file: Path) -> None:
        """Append the outcome to a file with one JSON object per line, and print it."""
        with file.open("a") as lines:
            lines.write(json.dumps(asdict(self)) + "\n")
        what = self.wrong or f"{self.seconds:.1f} s"
        print(f"seed {self.seed}, {self.number}: {self.fault}: {what}", file=sys.stderr, flush=True)


def told(file: Path) -> list[Outcome]:
    """Return all outcomes in a file."""
    return [Outcome(**json.loads(line)) for line in file.read_text().splitlines()]


def commit() -> str:
    """Return the running code's commit; changes under docs are ignored, because outcomes are stored there."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!docs")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def gets_over(stage: Stage, harm: Callable[[], None] | None, job: Callable[[], Rowkind], about: Outcome) -> Outcome:
    """Return the outcome of one fault; the start of an episode, without a fault, counts as one too."""
    began = time.monotonic()
    wrong, seconds = "", 0.0
    try:
        if harm is not None:
            harm()
        began = time.monotonic()
        stage.happens(stage.random.randrange(1, 300))
        stage.catch_up(job())
        seconds = time.monotonic() - began
        stage.ask_why()
        stage.audit()
    except Exception:  # noqa: BLE001 - every error is recorded, and the campaign continues
        wrong, seconds = traceback.format_exc(), time.monotonic() - began
    changes = sum(results.kinds.total() for results in stage.results.values())
    return replace(about, seconds=seconds, changes=changes, wrong=wrong)


def injected(faults: int, jobs: int, changes: int) -> str:
    """Return a sentence with the size of a campaign."""
    parts = [f"{count:,} {noun if count == 1 else noun + 's'}" for count, noun in ((faults, "fault"), (jobs, "job"))]
    were = "was" if faults == 1 else "were"
    return f"{parts[0]} {were} injected into {parts[1]}, and {changes:,} topic changes were checked."


def wrong_after(faults: int) -> str:
    """Return a sentence with the number of faults after which a check failed."""
    if not faults:
        return "No check failed after any of them."
    return (
        f"After {faults:,} of {'them' if faults > 1 else 'these faults'}, a check failed: the right result did not "
        f"come within {SLOW:.0f} s, or the job ended with an unexpected exit code."
    )


def table(title: str, outcomes: Sequence[Outcome], module: str) -> Table:
    """Return recoveries by kind of fault; of a seed's fault that was tried several times the last try counts."""
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
        f"{injected(len(last), len(checked), sum(checked.values()))} "
        f"{wrong_after(sum(bool(outcome.wrong) for outcome in last))} Seconds are measured from the end of the fault "
        f"until the result is right. `python -m {module} --seed S` repeats an episode at the same commit: {commits}. "
        f"{page.machine()}."
    )
    return Table(title, ("fault", "times", "wrong", "median s", "worst s", "seed"), rows, note)
