"""Going on behind a record on which the job fails: what fails because of it becomes a dead letter."""

from __future__ import annotations

from collections.abc import Collection

from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.service.job.model import Job
from rowkind.service.run.checkpoint import Checkpoint, queries
from rowkind.service.run.errors import SkipError
from rowkind.service.spark.session import session, stopping


def skip(job: Job, records: Collection[str]) -> list[str]:
    """Note in the checkpoint of the job that these records are excused, from its next start on; its queries' names.

    A record is written `partition:offset`, as the message of the failure has it.

    Raises SkipError or CheckpointFolderError.
    """
    assert job.checkpoint is not None, "the command line checks that a job to be run has a checkpoint"
    numbers = [_number(each) for each in records]
    if job.dead_letters.topic is None:
        raise SkipError("what is skipped becomes a dead letter: say `dead_letters: {topic: …}` in the job first")
    # Only Spark knows how to get at wherever it keeps checkpoints.
    with stopping(session(job.name, master="local[1]", parallelism=1, checkpoint=job.checkpoint)) as spark:
        there = queries(spark, f"{job.checkpoint}/{job.name}")
        if not there:
            raise SkipError(f"there is no checkpoint of job {job.name} in {job.checkpoint}, so it has not failed yet")
        for name in there:
            Checkpoint(spark, f"{job.checkpoint}/{job.name}/{name}").excuse(numbers)
    return list(there)


def _number(text: str) -> int:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise SkipError(f"{text!r} is no record: expected PARTITION:OFFSET, such as 3:120")
    return ArrivalNumber(int(offset), int(partition)).seq
