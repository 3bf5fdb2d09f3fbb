"""Jobs that once gave a wrong answer, or none: each file is one, with its changes and what is left in the end.

`tables` and `sink` are those of a job file, where a topic is called like its table; `ttl` and `on_expire` are the
job's. `changes` are taken in batches of `batch_rows`, at the times of `clock`, in ms, one a batch, or else now.
`expected` are the rows of the result as `rowkind try --fold` prints them, in any order; `expected_exit` is its exit
code where it refuses the job.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rowkind.operators.columns.changes import Changes
from rowkind.service.job.errors import JobError
from rowkind.service.job.model import Job
from rowkind.service.physical import PhysicalSink
from rowkind.service.plan.errors import PlanError
from rowkind.service.run.memory import MemoryEngine
from rowkind.service.run.trial import TrialBatch
from tests.trying import folded

FILES = sorted(Path(__file__).parent.glob("*.json"))
REFUSED = 2


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_job_gives_what_its_file_says(file: Path, tmp_path: Path) -> None:
    """The folded result is the expected one, or the job is refused."""
    case = json.loads(file.read_text())
    run = partial(
        folded,
        tmp_path,
        case["sql"],
        case["tables"],
        case["changes"],
        sink=case["sink"],
        batch_rows=case.get("batch_rows", 1),
        engine=partial(_clocked, case["clock"]) if "clock" in case else None,
        **{name: case[name] for name in ("ttl", "on_expire") if name in case},
    )

    if "expected_exit" in case:
        assert case["expected_exit"] == REFUSED, "a case has a result or is refused"
        with pytest.raises((PlanError, JobError)):
            run()
    else:
        assert _bag(run()) == _bag(case["expected"])


def _clocked(clock: Sequence[int], _: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
    """The in-memory engine at given times."""
    engine = MemoryEngine(sink)
    for batch, now in zip(batches, clock, strict=True):
        yield engine.batch(batch, now)[sink.name]


def _bag(rows: Sequence[Any]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
