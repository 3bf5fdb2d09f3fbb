"""Savepoints: copies of a job's checkpoint, from which the job can start if its own checkpoint is lost.

A copy contains the state after the last ended batch. Batches written after that are neither lost nor written again:
their records are read again, so Kafka must still have these records (`service.checkpoint.replay`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information
from pyspark.sql import SparkSession

from rowkind.errors import NO_SPACE
from rowkind.service.checkpoint.checkpoint import Checkpoint, queries
from rowkind.service.checkpoint.remote_folder import looking_into
from rowkind.service.job.model import Job
from rowkind.service.monitoring.progress import Works
from rowkind.service.query.errors import CheckpointFolderError, SavepointError
from rowkind.service.spark.errors import first_line

_TRIALS = 10
_MARK = "rowkind.half-full"

log = logging.getLogger("rowkind")


def save(job: Job, folder: str) -> dict[str, int]:
    """Copy a job's checkpoint to `<folder>/<job>`, even while the job runs. Return the last batch of each query.

    Raises SavepointError or CheckpointFolderError.
    """
    with looking_into(job) as spark:
        return saved(spark, job, folder)


def saved(spark: SparkSession, job: Job, folder: str) -> dict[str, int]:
    """Copy a job's checkpoint as `save` does, in an existing session."""
    source, target = f"{job.checkpoint}/{job.name}", f"{folder}/{job.name}"
    there = queries(spark, source)
    if not there:
        raise SavepointError(f"there is nothing to save: job {job.name} has no checkpoint in {job.checkpoint}")
    with _of_savepoint(target), _made_whole(spark, target) as empty:
        if not empty:
            raise SavepointError(f"{target} already exists: choose another folder for this savepoint")
        return {name: _copied(Checkpoint(spark, f"{source}/{name}"), f"{target}/{name}") for name in there}


def restore(spark: SparkSession, job: Job, folder: str, works: Works) -> None:
    """Let a job without a checkpoint start from the savepoint in `<folder>/<job>`.

    Raises SavepointError or CheckpointFolderError.
    """
    source, target = f"{folder}/{job.name}", f"{job.checkpoint}/{job.name}"
    with _of_savepoint(source):
        there = queries(spark, source)
        if not there:
            raise SavepointError(f"there is no savepoint of job {job.name} in {folder}")
        if not whole(spark, source):
            raise SavepointError(f"the savepoint {source} is incomplete: use another savepoint")
    with _made_whole(spark, target) as empty:
        if not empty:
            log.info("the job already has a checkpoint, %s; the savepoint is not used", target)
            return
        batches = {}
        for name in there:
            with works.work(f"query {name} copies its savepoint", "files") as told:
                batches[name] = Checkpoint(spark, f"{source}/{name}").copy(f"{target}/{name}", told)
    for name, batch in batches.items():
        log.info("query %s starts from the savepoint %s, taken after batch %d", name, source, batch)


def _copied(checkpoint: Checkpoint, to: str) -> int:
    """Copy a checkpoint, with retries because Spark may delete old files during the copy. Return its last batch."""
    why = ""
    for _ in range(_TRIALS):
        try:
            return checkpoint.copy(to)
        except CheckpointFolderError as error:
            why = error.reason
    if NO_SPACE in why:
        raise CheckpointFolderError(to, why, savepoint=True)
    raise SavepointError(
        f"the checkpoint {checkpoint.folder} could not be copied: {why}. If the running job deletes files before they "
        "are copied, stop the job first"
    )


@contextmanager
def _of_savepoint(folder: str) -> Iterator[None]:
    """Mark folder errors inside the block as errors of a savepoint folder, which the job file does not name."""
    try:
        yield
    except CheckpointFolderError as error:
        raise CheckpointFolderError(error.folder, error.reason, savepoint=error.folder.startswith(folder)) from None


@contextmanager
def _made_whole(spark: SparkSession, folder: str) -> Iterator[bool]:
    """Yield whether the caller must fill the folder, because it does not exist or is incomplete.

    A marker file shows that the folder is incomplete, because not every store can rename a folder at the end.
    """
    with _store(spark, folder) as (files, path, mark):
        if files.exists(path) and not files.exists(mark):
            yield False
            return
        files.delete(path, True)
        files.create(mark, True).close()
        yield True
        files.delete(mark, False)


def whole(spark: SparkSession, folder: str) -> bool:
    """Return whether the folder with a job's checkpoints is complete or does not exist.

    Raises CheckpointFolderError.
    """
    with _store(spark, folder) as (files, _, mark):
        return not files.exists(mark)


@contextmanager
def _store(spark: SparkSession, folder: str) -> Iterator[tuple[Any, Any, Any]]:
    """Yield a folder's file system, its path, and the path of its marker file. Errors become CheckpointFolderError."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Spark's file systems are available only through its gateway
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
    path, mark = (jvm.org.apache.hadoop.fs.Path(each) for each in (folder, f"{folder}/{_MARK}"))
    try:
        yield path.getFileSystem(hadoop), path, mark
    except Py4JJavaError as error:
        raise CheckpointFolderError(folder, first_line(error)) from None
