"""Determine why a query failed, and whether it may succeed when it is started again."""

from __future__ import annotations

import tempfile

from pyspark.errors import StreamingQueryException

from rowkind.avro.errors import RegistryUnreachableError
from rowkind.errors import NO_SPACE, UNREACHABLE, RowkindError
from rowkind.service.kafka.errors import MissingTopicError
from rowkind.service.monitoring.waiting import System
from rowkind.service.query.errors import QueryFailedError, QueryUnreachableError, RunError, WorkerBugError
from rowkind.service.spark.errors import surfaced, unforeseen

_PASSING = {
    "CONCURRENT_STREAM_LOG_UPDATE": "another run was still using the checkpoint",
    # Spark's timeout for connecting back is 10 s.
    "Python worker failed to connect back": "the machine was too busy to start a worker in time",
}
"""Failures of Spark, by words in their messages, after which even a query that has never run is started again."""

_FULL_DISK = "a disk is full"


def failed(query: str, folder: str, error: StreamingQueryException) -> QueryFailedError:
    """Return the error that made a query fail, as far as Spark reports it. `folder`: the query's checkpoint."""
    found = surfaced(error)
    if found is None:
        cause = _cause(error)
        if (raised := unforeseen(cause)) is not None:
            return WorkerBugError(query, raised)
        said = cause.partition("\n")[0]
        if NO_SPACE in said:
            folders = f"the checkpoint {folder} or temporary files ({tempfile.gettempdir()})"
            return QueryFailedError(query, f"{_FULL_DISK}: free space for {folders}", None)
        return QueryFailedError(query, "Spark gave no reason" if "(no cause message)" in said else said, None)
    unreachable = found.error is not None and found.error.exit_code == UNREACHABLE
    return (QueryUnreachableError if unreachable else QueryFailedError)(query, found.message, found.error)


def passing(failure: RunError, error: StreamingQueryException, *, ran: bool) -> str | None:
    """Return why a query failed if it may succeed when it is started again, or None if it cannot.

    Rowkind's own errors say whether they are retryable. Any other failure of a query that `ran` counts as the loss of a
    Spark process, which Spark reports only as a broken pipe.
    """
    if not isinstance(failure, QueryFailedError) or isinstance(failure, WorkerBugError):
        return None
    if failure.error is not None:
        return failure.reason if failure.passes or awaited(failure) else None
    if failure.reason.startswith(_FULL_DISK):
        return failure.reason
    known = next((reason for words, reason in _PASSING.items() if words in str(error)), None)
    return known or (f"a Spark process was lost ({failure.reason})" if ran else None)


def awaited(failure: RowkindError) -> System | None:
    """Return the external system for which a failed query must wait. `Outage` handles the brokers themselves."""
    kind = failure.error if isinstance(failure, QueryFailedError) else type(failure)
    if kind is None:
        return None
    if issubclass(kind, RegistryUnreachableError):
        return "registry"
    return "topic" if issubclass(kind, MissingTopicError) else None


def damage(error: StreamingQueryException) -> str:
    """Return why state cannot be loaded if this ended the query and the disk was not full, or else ""."""
    cause = _cause(error)
    return cause if "CANNOT_LOAD_STATE_STORE" in str(error) and NO_SPACE not in cause else ""


def _cause(error: Exception) -> str:
    """Return the root cause of an error, as text."""
    while (before := getattr(error, "_cause", None)) is not None:
        error = before
    return str(error)
