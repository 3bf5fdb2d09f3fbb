"""Errors of operators on Spark, and how the driver extracts them from Spark's error text.

    SparkStartError                Spark cannot start, here or on its cluster
    CrashedExecutorsError          the cluster's executors exit as soon as they start
    UnfitExecutorsError            the cluster's executors differ from the driver
    SparkLostError                 the session's JVM exited
    SourceLostError                the process in which Spark looks for new records exits each time
    OperatorFailedError
    ├── UnmatchedRetractionError   the input retracted a row that does not exist, and the job has `unmatched: fail`
    └── StateDamagedError          a blob that the state refers to has changed since it was written

Spark passes a worker's exception to the driver as text, inside its own stack trace. `surfaced` finds the last Rowkind
exception in that text, whichever package it comes from.
"""

from __future__ import annotations

import importlib
import re
import signal
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it ships no type information

from rowkind.errors import REFUSED, RowkindError


class SparkStartError(RowkindError):
    """Spark cannot start, here or on its cluster. Fix the Java, address or permission that the message names."""


class CrashedExecutorsError(RowkindError):
    """The cluster's executors exit as soon as they start, and Spark has given up on them."""

    def __init__(self, why: str) -> None:
        super().__init__(f"executors exit as soon as they start: {why}.")


class UnfitExecutorsError(RowkindError):
    """The cluster's executors lack something that the driver has."""

    exit_code = REFUSED

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason}.\nGive the executors the same Python with the same libraries, at the same path or at the path "
            "in PYSPARK_PYTHON. The easiest way is to use the same container image."
        )


class SparkLostError(RowkindError):
    """The session's JVM exited unexpectedly. Another session continues from the checkpoint."""

    retryable = True

    def __init__(self, code: int) -> None:
        self.code = code
        how = f"was killed by signal {code - 128}" if code > 128 else f"exited with code {code}"
        why = "; the system kills processes if memory runs out: see `memory`" if code == 128 + signal.SIGKILL else ""
        super().__init__(f"Spark's Java process {how}{why}")


class SourceLostError(RowkindError):
    """The process in which Spark looks for a source's new records exits on every request. Restart the job."""

    retryable = True

    def __init__(self, why: str) -> None:
        super().__init__(f"the process in which Spark looks for new records exits on every request ({why})")


class OperatorFailedError(RowkindError):
    """An operator cannot continue. The query stops, and the state remains as after the last complete batch."""


class UnmatchedRetractionError(OperatorFailedError):
    """The input retracted rows that do not exist, and the job's policy is to fail.

    Possible causes: a producer that sends `-U` or `-D` for a row that it never inserted, a topic that is not read from
    its start, or a TTL shorter than the lifetime of the rows. With `unmatched: ignore` or `dead_letter`, the job counts
    these retractions and continues.
    """


class StateDamagedError(OperatorFailedError):
    """The state store returned different bytes than were written to it.

    `rowkind run --reset-state` rebuilds the state from the topics.
    """


_WORDS = (
    (
        re.compile(r"Python in worker has different version: (\S+) than that in driver: (\d[\d.]*\d)"),
        "an executor has Python {0}, but the driver has {1}",
    ),
    (re.compile(r'Cannot run program "([^"]+)"'), "an executor has no {0}"),
    (re.compile(r"No module named '?([\w.]+)"), "an executor lacks the Python module {0}"),
    (
        re.compile(r"Error from python worker:\n.*?([^\n]+)\nPYTHONPATH was", re.DOTALL),
        "Python fails on an executor: {0}",
    ),
    (re.compile(r"stopped SparkContext"), "the cluster cannot start executors: see the logs of its workers"),
)
"""The messages with which Spark reports that a Python worker cannot be started, and what they mean."""


def reason(error: Py4JJavaError) -> str:
    """Return, in one line, why a request to a cluster failed."""
    said = str(error)
    for pattern, meaning in _WORDS:
        if found := pattern.search(said):
            return meaning.format(*(group.strip() for group in found.groups()))
    return first_line(error)


def first_line(error: Py4JJavaError) -> str:
    """Return the first line of Java's message, without the class name and the final period."""
    return str(error.java_exception.getMessage() or error.java_exception).partition("\n")[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class Surfaced:
    """A Rowkind exception that a worker raised: its qualified class name and its complete message."""

    kind: str
    message: str

    @property
    def name(self) -> str:
        """The class name without its module."""
        return self.kind.rpartition(".")[2]

    @property
    def error(self) -> type[RowkindError] | None:
        """The class itself if it is a RowkindError, whose cause a user can fix, or else None."""
        module, _, name = self.kind.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        return found if issubclass(found, RowkindError) else None


_OURS = re.compile(
    r"^(?P<kind>rowkind(?:\.\w+)+): (?P<message>.*?)"
    r"(?=\n\s*at [\w.$/]+\.|\nTraceback |\nDriver stacktrace|\n\s*SQLSTATE|\n\nThe above exception|\n\nDuring handling"
    r"|\nJVM stacktrace|\Z)",
    re.MULTILINE | re.DOTALL,
)


def surfaced(error: BaseException) -> Surfaced | None:
    """Return the Rowkind exception that caused `error`, or None if there is none.

    The search covers the error itself, its causes, and the text in which Spark wraps a worker's traceback. If a text
    contains several exceptions, the last one counts, as in any traceback.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        module = type(current).__module__
        if module.split(".")[0] == "rowkind":
            return Surfaced(f"{module}.{type(current).__qualname__}", str(current))
        found = list(_OURS.finditer(str(current)))
        if found:
            return Surfaced(found[-1]["kind"], found[-1]["message"].strip())
        current = current.__cause__ or current.__context__
    return None


_TRACEBACK = "Traceback (most recent call last):\n"
_PLACE = re.compile(r'File "[^"]*?(rowkind/[\w/]+\.py)", line (\d+)')
_LOST = ("pyspark.", "py4j.", "EOFError", "OSError", "BrokenPipeError", "Connection", "TimeoutError", "MemoryError")
"""Name prefixes of exceptions that a worker raises because it has lost Java or a socket, or has run out of memory."""


def unforeseen(said: str) -> str | None:
    """Return the unexpected exception that Rowkind's code raised in a worker, with its location, or None.

    Such an exception is a bug, and the same batch would fail again. It is taken from the last traceback in Spark's
    error text.
    """
    _, found, last = said.rpartition(_TRACEBACK)
    lines = last.splitlines()
    raised = next((line for line in lines if line and not line[0].isspace()), "")
    places = _PLACE.findall("\n".join(lines[: lines.index(raised)] if raised else []))
    if not found or not places or raised.startswith(_LOST):
        return None
    return "{} ({}, line {})".format(raised, *places[-1])
