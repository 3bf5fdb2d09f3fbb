"""Going on without a row on which the job fails: it becomes a dead letter."""

from __future__ import annotations

import re
from collections.abc import Collection

from rowkind.service.job.model import Job
from rowkind.service.run.checkpoint import Checkpoint, queries
from rowkind.service.run.errors import SkipError
from rowkind.service.run.folder import looking_into

_ROW = re.compile(r"[^:]+:\d+:\d+")


def skip(job: Job, rows: Collection[str]) -> list[str]:
    """Note in the checkpoint of the job that these rows are excused, from its next start on; its queries' names.

    A row is written `step:partition:offset`, as the message of the failure has it.

    Raises SkipError or CheckpointFolderError.
    """
    for row in rows:
        if not _ROW.fullmatch(row):
            raise SkipError(f"{row!r} is no row: expected STEP:PARTITION:OFFSET, such as orders:3:120")
    if job.dead_letters.topic is None:
        raise SkipError("what is skipped becomes a dead letter: say `dead_letters: {topic: …}` in the job first")
    with looking_into(job) as spark:
        there = queries(spark, f"{job.checkpoint}/{job.name}")
        if not there:
            raise SkipError(f"there is no checkpoint of job {job.name} in {job.checkpoint}, so it has not failed yet")
        for name in there:
            Checkpoint(spark, f"{job.checkpoint}/{job.name}/{name}").excuse(rows)
    return list(there)
