"""Errors of a running job.

    RunError
    ├── StartError                 the machine lacks something that the process needs
    ├── JobsError                  there is no job to run, or two jobs cannot share a service
    ├── CheckpointMismatchError    the checkpoint belongs to another plan
    ├── ParallelismError           the state has a different number of partitions than the job has tasks
    ├── CheckpointFolderError      the checkpoint cannot be read or written
    ├── CheckpointTornError        a crash of the machine has damaged the end of the checkpoint
    ├── SavepointError             a savepoint is missing, or exists already
    ├── DeadLettersError           too many of the records read are not valid rows
    ├── LetterError                a dead letter does not exist, or there is no record to send back for it
    ├── SkipError                  the row to skip does not exist, or there is no dead letter topic for it
    ├── StrangeCheckpointError     the topics were later written from another checkpoint
    ├── ReplayError                the checkpoint is older than the results, and later batches cannot be replayed
    │    └── LostProgressError     the progress topic is gone, so the written batches are unknown
    ├── LostResultError            a result topic lacks rows that the query has written
    ├── TopicsHeldError            result topics contain rows, but there is no checkpoint
    ├── SupersededError            a later run of the same job has taken over
    ├── SessionStoppedError        the Spark session was stopped while the job ran
    ├── TopicGoneError             a topic disappeared while the job ran, and did not come back
    ├── RebuildError               the job must be rebuilt, and its settings request this
    └── QueryFailedError           a query stopped unexpectedly
        ├── WorkerBugError         because of a bug in Rowkind
        └── QueryUnreachableError  because the brokers or the registry could not be reached

Each message ends with the next step for the person on call. The command line prints the message alone, without a stack
trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowkind.errors import BUG, FAILED, NO_SPACE, REFUSED, UNREACHABLE, RowkindError
from rowkind.quantities import plural

_WITHOUT_JARS = ("ClassNotFoundException", "No FileSystem for scheme")


class RunError(RowkindError):
    """A job cannot start or continue."""


class StartError(RunError):
    """Something is missing on this machine, such as Java or a free port. The message says what to do about it."""


class JobsError(RunError):
    """A folder contains no job to run, or contains jobs that cannot share a service."""

    exit_code = REFUSED


class CheckpointMismatchError(RunError):
    """The checkpoint was written by another plan, whose state the new plan would misread."""

    exit_code = REFUSED

    def __init__(self, folder: str, changed: Sequence[str]) -> None:
        self.folder = folder
        self.changed = tuple(changed)
        lines = "\n".join(f"  {line}" for line in changed)
        super().__init__(
            f"the checkpoint {folder} belongs to another plan:\n{lines}\n"
            "`rowkind diff` shows which sinks can stay. `rowkind run --upgrade` keeps these sinks and rebuilds the "
            "other sinks from the topics. It changes only those rows of the result topics that differ."
        )


class ParallelismError(RunError):
    """The state of a query has a different number of partitions than the job has tasks."""

    exit_code = REFUSED

    def __init__(self, query: str, before: int, after: int) -> None:
        super().__init__(
            f"the state of query {query} was written with `parallelism: {before}`, but the job has "
            f"`parallelism: {after}`.\n"
            "`rowkind rescale` moves the state; `rowkind run --upgrade` does the same and then runs the job."
        )


class CheckpointFolderError(RunError):
    """The folder of a checkpoint or savepoint cannot be read or written."""

    exit_code = REFUSED

    def __init__(self, folder: str, reason: str, *, savepoint: bool = False) -> None:
        self.folder = folder
        self.reason = reason
        advice = "Set `checkpoint` to a folder that this process can create and write."
        if savepoint:
            advice = "Use a savepoint folder that this process can create, read and write."
        if any(words in reason for words in _WITHOUT_JARS):
            advice = (
                "Spark lacks the jars of this file system. Copy these jars to pyspark's folder `jars`, in the same "
                "version as its hadoop-client-api. The jars of s3a:// are downloaded automatically."
            )
        if NO_SPACE in reason:
            self.exit_code, advice = FAILED, "Free space there, then try again."
        what = "savepoint" if savepoint else "checkpoint"
        super().__init__(f"the {what} {folder} cannot be used: {reason}\n{advice}")


class CheckpointTornError(RunError):
    """The machine has lost the checkpoint's last writes, and the job cannot continue without them."""

    exit_code = REFUSED

    def __init__(self, folder: str, what: str) -> None:
        self.folder = folder
        super().__init__(
            f"the checkpoint {folder} is incomplete: {what}.\n"
            "`rowkind run --reset-state` rebuilds the state from the topics. It changes only those rows of the result "
            "topics that differ."
        )


class SavepointError(RunError):
    """There is nothing to save or to start from, or the savepoint's folder is in use."""

    exit_code = REFUSED


class DeadLettersError(RunError):
    """Too many records are not valid rows (`max_ratio`). Fix the table's declaration in the job, or the producer."""

    def __init__(self, share: str, most: float) -> None:
        super().__init__(
            f"{share} The job has `max_ratio: {most:g}`, so it has stopped. Nothing is lost; the next start continues "
            "after the records that were read."
        )


class LetterError(RunError):
    """A dead letter does not exist, or there is no record that could be sent back for it."""

    exit_code = REFUSED


class SkipError(RunError):
    """The row to skip does not exist, or there is no dead letter topic for it."""

    exit_code = REFUSED


class StrangeCheckpointError(RunError):
    """The topics were last written from another, later checkpoint, so the current checkpoint lacks these writes."""

    exit_code = REFUSED

    def __init__(self, folder: str) -> None:
        self.folder = folder
        super().__init__(
            f"the result topics were last written from another checkpoint, so the job cannot continue from {folder}.\n"
            "Restore the later checkpoint, or use `rowkind run --reset-state`, which rebuilds the state from the "
            "topics. It changes only those rows of the result topics that differ."
        )


class ReplayError(RunError):
    """A checkpoint is older than the results, and the batches since then cannot be replayed exactly."""

    exit_code = REFUSED

    def __init__(self, query: str, why: str, *, rebuilds: bool = False) -> None:
        self.query = query
        self.why = why
        self.rebuilds = rebuilds
        """Whether a rebuild of the state loses no row, because the query's topics are complete."""
        super().__init__(f"{self.cause}.\n{self.remedy}")

    @property
    def cause(self) -> str:
        """The cause of the error, as text."""
        return (
            f"the checkpoint or savepoint of query {self.query} is older than the result topics, and the batches "
            f"written since cannot be replayed: {self.why}"
        )

    @property
    def remedy(self) -> str:
        """The remedy, as text."""
        return (
            "Use a later savepoint, or use `rowkind run --reset-state`, which rebuilds the state from the topics. It "
            "changes only those rows of the result topics that differ."
        )


class LostProgressError(ReplayError):
    """The progress topic of a query, which records the written batches, is gone."""

    @property
    def cause(self) -> str:
        """The cause of the error, as text."""
        return f"{self.why}, so it is unknown which batches of query {self.query} were written"

    @property
    def remedy(self) -> str:
        """The remedy, as text."""
        return (
            "Use `rowkind run --reset-state`, which rebuilds the state from the topics. It changes only those rows of "
            "the result topics that differ. Or use a new `checkpoint` and new topics for the sinks."
        )


class LostResultError(RunError):
    """Result topics lack rows that a query has written, or contain them in the wrong partitions."""

    exit_code = REFUSED

    def __init__(self, query: str, harms: Mapping[str, str], lacking: str, *, rebuilds: bool) -> None:
        """Create the error.

        `harms` maps each topic to a description of its damage. `rebuilds`: a rebuild is requested, and loses no row.
        `lacking`: why a rebuild that the job file requests would lose rows; empty if it would lose none.
        """
        self.query = query
        self.topics = tuple(harms)
        self.why = self.cause = ", and ".join(f"topic {name} {harm}" for name, harm in harms.items())
        self.rebuilds = rebuilds
        refused = f"The query cannot be rebuilt, as `on_lost: rebuild` requests: {lacking}. " if lacking else ""
        kept = "Make the topic keep all records (retention.ms=-1, retention.bytes=-1). " if "first" in self.why else ""
        super().__init__(
            f"{self.why} since the last write of query {query}, so the topic no longer equals the query's result.\n"
            f"{refused}{kept}`rowkind run --upgrade` rebuilds the query from its source topics and writes the missing "
            "rows; with `on_lost: rebuild` in the sink, the job does this automatically. With `on_lost: ignore`, the "
            "query continues, and the topic stays as it is."
        )


class TopicsHeldError(RunError):
    """Result topics contain rows, but there is no checkpoint for them. A new run would write these rows twice."""

    exit_code = REFUSED

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        super().__init__(
            f"{plural(len(topics), 'topic')} {', '.join(topics)} already {'has' if len(topics) == 1 else 'have'} rows, "
            f"but there is no checkpoint from which they were written.\n"
            "If the checkpoint was lost, or the sink is new, use `rowkind run --upgrade`: it rebuilds the state, then "
            "retracts wrong rows and adds missing ones. If another application wrote the rows, use another topic."
        )


class SupersededError(RunError):
    """A later run of the same job has taken over, so the current run stops."""

    def __init__(self, job: str, query: str) -> None:
        self.job = job
        self.query = query
        super().__init__(
            f"a later run of job {job} has taken over the checkpoint of query {query}, so this run has stopped.\n"
            "Run only one instance of a job at a time. Nothing is lost or written twice: the later run continues from "
            "here."
        )


class SessionStoppedError(RunError):
    """The Spark session in which a job runs has been stopped by its owner, or by the cluster."""

    def __init__(self) -> None:
        super().__init__(
            "the Spark session was stopped while the job ran in it. Nothing is lost: the unfinished batch is repeated "
            "at the next start. In a program with its own session, stop the job before the session."
        )


class TopicGoneError(RunError):
    """A topic was deleted while the job ran, and has not been created again in time."""

    exit_code = REFUSED

    def __init__(self, query: str, why: str, seconds: float) -> None:
        super().__init__(
            f"query {query} has waited {seconds:.0f} s for a topic that existed before: {why}\n"
            "If the topic was deleted permanently, remove its table or sink from the job. If you create it again, then "
            "start the job with `rowkind run --reset-state`, which rebuilds state and results from the topics. With "
            "`on_recreated: restart` in the table's `start`, a running job does this automatically."
        )


class RebuildError(RunError):
    """A query cannot continue from its checkpoint, and the job's settings request a rebuild in that case."""


class QueryFailedError(RunError):
    """A streaming query stopped unexpectedly."""

    def __init__(self, query: str, reason: str, error: type[RowkindError] | None) -> None:
        self.query = query
        self.reason = reason
        """The message of the exception that a task raised."""
        self.error = error
        """The class of the exception, if it is one of Rowkind's own, or else None."""
        self.passes = error is not None and error.retryable
        """Whether the same batch may succeed when it is repeated."""
        again = "" if error is None or error.retryable else ". It would fail again: fix the cause first"
        super().__init__(
            f"query {query} failed: {reason}\nIts batch was not committed, and is repeated at the next start{again}."
        )


class WorkerBugError(QueryFailedError):
    """A worker raised an unexpected exception. Report this bug; the same batch would fail again."""

    exit_code = BUG

    def __init__(self, query: str, raised: str) -> None:
        super().__init__(query, raised, None)
        message = (
            f"query {query} failed: {raised}.\nThis is a bug in Rowkind, not in your job. Nothing is lost: the batch "
            "was not committed, and is repeated at the next start. Please report this message, with the job file but "
            "without its secrets, at https://github.com/rowkind/rowkind/issues"
        )
        self.args = (message,)


class QueryUnreachableError(QueryFailedError):
    """A streaming query stopped because the brokers or the registry did not answer. Start again when they do."""

    exit_code = UNREACHABLE
    retryable = True
