"""Run an imported script: `rowkind try` on changes of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rowkind.service.flink.job_file import imported
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.trial import end, in_memory, read, results
from tests.trying import Change


def imported_job(folder: Path, script: str) -> Job:
    """Return the job that a script becomes. Raise ScriptError if it is refused."""
    file = folder / "job.yaml"
    file.write_text(imported("f.sql", script).text)
    return load(file, {})


def given(job: Job, changes: Sequence[Change], sink: str, *batch_rows: int, ended: bool = True) -> list[dict[str, Any]]:
    """Return the rows that remain in a sink after all changes and, if `ended`, after the end of time.

    A table with computed columns is a view over `<table>_topic`, which receives its changes. All batch sizes must leave
    the same rows, in any order.
    """
    planned, own = plan(job, sink), list(_of_topics(job, changes))
    folds = []
    for rows in batch_rows or (1,):
        batches = read(job, own, "changes", rows)
        if ended:
            end(planned, batches)
        found = results(job, planned, batches, in_memory(print), fold=True)
        folds.append([each["row"] for each in found])
    for rows, fold in zip(batch_rows, folds, strict=False):
        assert sorted(map(str, fold)) == sorted(map(str, folds[0])), f"batches of {rows}"
    return folds[0]


def _of_topics(job: Job, changes: Sequence[Change]) -> Iterator[Change]:
    for change in changes:
        name = change.get("table")
        yield change if name is None or name in job.tables else {**change, "table": f"{name}_topic"}
