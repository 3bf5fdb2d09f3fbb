"""Jobs that once gave a wrong result, or none. Each file is one job, with its changes and the expected result.

`tables` and `sink` are those of a job file, where the topic has the table's name. `ttl` and `on_expire` are the job's,
`job` has its other settings, and `code` has the Python files next to it, by name. A case runs in batches of 1 change,
of 2 changes, of all changes, and of `batch_rows` changes. With `clock`, the logged time of each batch in ms, it runs
only in batches of `batch_rows`; a change `{"clock": …}` sets the time of the following changes for every batch size. A
case also runs with all sizes of `tests/sizes.py` at 1 and its changes in batches of `batch_rows`.

`expected` has the rows that `rowkind try --fold` prints, in any order. `expected_exit` is the exit code if the job is
refused (2) or stopped by one of its rows (1).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rowkind.errors import RowkindError
from rowkind.operators.columns.changes import Changes
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.query.memory import MemoryEngine
from rowkind.service.query.trial import TrialBatch
from tests.sizes import sized
from tests.trying import job, outcome

FILES = sorted(Path(__file__).parent.glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_job_gives_what_its_file_says(file: Path, tmp_path: Path) -> None:
    """The folded result is the expected one for every batch size, or the job ends with the expected exit code."""
    case = json.loads(file.read_text())
    for name, text in case.get("code", {}).items():
        (tmp_path / name).write_text(text)
    for rows, size in [*((rows, None) for rows in _batch_rows(case)), (case.get("batch_rows", 1), 1)]:
        if "expected_exit" in case:
            with sized(size, releases=False), pytest.raises(RowkindError) as caught:
                _folded(case, tmp_path, rows)
            assert caught.value.exit_code == case["expected_exit"], f"batches of {rows}, sizes of {size}"
        else:
            with sized(size, releases=False):
                found = _folded(case, tmp_path, rows)
            assert _bag(found) == _bag(case["expected"]), f"batches of {rows}, sizes of {size}"


def _folded(case: dict[str, Any], folder: Path, rows: int) -> list[dict[str, Any]]:
    settings = {name: case[name] for name in ("ttl", "on_expire") if name in case} | case.get("job", {})
    engine = partial(_clocked, case["clock"]) if "clock" in case else None
    return outcome(
        job(folder, case["sql"], case["tables"], sink=case["sink"], **settings), case["changes"], rows, engine
    )


def _batch_rows(case: dict[str, Any]) -> list[int]:
    own = case.get("batch_rows", 1)
    return [own] if "clock" in case else sorted({1, 2, len(case["changes"]), own})


def _clocked(clock: Sequence[int], _: Job, sink: PhysicalSink, batches: Sequence[TrialBatch]) -> Iterator[Changes]:
    """Run the in-memory engine at the given times."""
    engine = MemoryEngine(sink)
    for batch, now in zip(batches, clock, strict=True):
        yield engine.batch(batch, now)[sink.name]


def _bag(rows: Sequence[Any]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)
