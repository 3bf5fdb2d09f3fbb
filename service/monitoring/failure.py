"""What has ended a query: in words, and whether the same may go well another time."""

from __future__ import annotations

import tempfile

from pyspark.errors import StreamingQueryException

from rowkind.avro.errors import RegistryUnreachableError
from rowkind.errors import UNREACHABLE, RowkindError
from rowkind.service.kafka.errors import MissingTopicError
from rowkind.service.monitoring.waiting import System
from rowkind.service.query.errors import QueryFailedError, QueryUnreachableError, RunError, WorkerBugError
from rowkind.service.spark.errors import surfaced, unforeseen

_PASSING = {
    "CONCURRENT_STREAM_LOG_UPDATE": "another run was still at work on the checkpoint",
    # Spark gives it ten seconds.
    "Python worker failed to connect back": "the machine was too busy to start a worker in time",
}
"""Failures of Spark's that are no reason to end even of a query that never ran, by words of theirs."""

_NO_SPACE = "No space left on device"
_FULL_DISK = "a disk is full"


def failed(query: str, folder: str, error: StreamingQueryException) -> QueryFailedError:
    """Why a query with this checkpoint ended, as far as Spark tells."""
    found = surfaced(error)
    if found is None:
        cause = _cause(error)
        if (raised := unforeseen(cause)) is not None:
            return WorkerBugError(query, raised)
        said = cause.partition("\n")[0]
        if _NO_SPACE in said:
            folders = f"the checkpoint {folder} or temporary files ({tempfile.gettempdir()})"
            return QueryFailedError(query, f"{_FULL_DISK}: make room where {folders} lie", None)
        return QueryFailedError(query, "Spark does not say why" if "(no cause message)" in said else said, None)
    unreachable = found.error is not None and found.error.exit_code == UNREACHABLE
    return (QueryUnreachableError if unreachable else QueryFailedError)(query, found.message, found.error)


def passing(failure: RunError, error: StreamingQueryException, *, ran: bool) -> str | None:
    """Why a query has failed, if the same may go well when it is started again.

    Our own errors say whether it may. What else ends a query that `ran` is taken for a loss of Spark's, such as of one
    of its processes, of which it tells nothing but that a pipe is broken.
    """
    if not isinstance(failure, QueryFailedError) or isinstance(failure, WorkerBugError):
        return None
    if failure.error is not None:
        return failure.reason if failure.passes or awaited(failure) else None
    if failure.reason.startswith(_FULL_DISK):
        return failure.reason
    known = next((reason for words, reason in _PASSING.items() if words in str(error)), None)
    return known or (f"Spark's part of it was lost ({failure.reason})" if ran else None)


def awaited(failure: RowkindError) -> System | None:
    """The system outside of the job without whose answer its query would fail again; of brokers, `Outage` knows."""
    kind = failure.error if isinstance(failure, QueryFailedError) else type(failure)
    if kind is None:
        return None
    if issubclass(kind, RegistryUnreachableError):
        return "registry"
    return "topic" if issubclass(kind, MissingTopicError) else None


def damage(error: StreamingQueryException) -> str:
    """Why state cannot be loaded, if that is what has ended a query, and no want of space is the reason."""
    cause = _cause(error)
    return cause if "CANNOT_LOAD_STATE_STORE" in str(error) and _NO_SPACE not in cause else ""


def _cause(error: Exception) -> str:
    """What was raised first, of all that was raised of it."""
    while (before := getattr(error, "_cause", None)) is not None:
        error = before
    return str(error)
