"""Errors of operators on Spark, and how the driver recovers them from Spark's text.

    SparkStartError                Spark cannot start on this machine
    CrashedExecutorsError          the executors of a cluster end as soon as they start
    UnfitExecutorsError            the executors of a cluster differ from the driver
    SparkLostError                 the JVM of a session has ended
    SourceLostError                Spark's process that reports what a source offers ends each time
    OperatorFailedError
    ├── UnmatchedRetractionError   the input retracted a row that was never there, and the job has `unmatched: fail`
    └── StateDamagedError          a blob that state refers to has changed since it was written

Spark carries an exception of a worker to the driver as text, inside its own stack trace. `surfaced` finds the last
exception of this project in that text, whichever package it comes from.
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
    """The executors of the cluster end as soon as they start, and Spark has given up on them."""

    def __init__(self, why: str) -> None:
        super().__init__(f"executors end as soon as they start: {why}.")


class UnfitExecutorsError(RowkindError):
    """The executors of the cluster lack something that the driver has."""

    exit_code = REFUSED

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason}.\nGive the executors the same Python with the same libraries, at the same path or at the path "
            "in PYSPARK_PYTHON. The same container image is the best way."
        )


class SparkLostError(RowkindError):
    """The JVM of a session ended by itself. Another session continues from the checkpoint."""

    retryable = True

    def __init__(self, code: int) -> None:
        self.code = code
        how = f"was ended by signal {code - 128}" if code > 128 else f"ended with code {code}"
        why = "; the system does so if memory runs out: see `memory`" if code == 128 + signal.SIGKILL else ""
        super().__init__(f"Spark's Java process {how}{why}")


class SourceLostError(RowkindError):
    """The process that Spark starts to look for new records of a source ends on every request. Restart the job."""

    retryable = True

    def __init__(self, why: str) -> None:
        super().__init__(f"Spark's process that looks for new records of a source ends on every request ({why})")


class OperatorFailedError(RowkindError):
    """An operator cannot continue; the query stops, and state stays as the last complete batch left it."""


class UnmatchedRetractionError(OperatorFailedError):
    """The input retracted rows that do not exist, and the job's policy is to fail.

    Look for a producer that sends `-U` or `-D` without the row's insert, a topic read from its middle, or a TTL shorter
    than the rows live. With `unmatched: ignore` or `dead_letter` the job continues and counts them.
    """


class StateDamagedError(OperatorFailedError):
    """The state store returned bytes other than those written to it.

    `rowkind run --reset-state` rebuilds the state from the topics.
    """


_WORDS = (
    (
        re.compile(r"Python in worker has different version: (\S+) than that in driver: (\d[\d.]*\d)"),
        "an executor has Python {0}, but the driver {1}",
    ),
    (re.compile(r'Cannot run program "([^"]+)"'), "an executor has no {0}"),
    (re.compile(r"No module named '?([\w.]+)"), "an executor lacks the Python module {0}"),
    (
        re.compile(r"Error from python worker:\n.*?([^\n]+)\nPYTHONPATH was", re.DOTALL),
        "Python fails on an executor: {0}",
    ),
    (re.compile(r"stopped SparkContext"), "the cluster cannot start executors: see the logs of its workers"),
)
"""Spark's texts when a Python worker cannot be started, and their meaning."""


def reason(error: Py4JJavaError) -> str:
    """Return in one line why a cluster does not do what it is asked to do."""
    said = str(error)
    for pattern, meaning in _WORDS:
        if found := pattern.search(said):
            return meaning.format(*(group.strip() for group in found.groups()))
    return first_line(error)


def first_line(error: Py4JJavaError) -> str:
    """Return the first line of Java's message, without the class and the full stop."""
    return str(error.java_exception.getMessage() or error.java_exception).partition("\n")[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class Surfaced:
    """An exception of this project as a worker raised it: its qualified class name and its whole message."""

    kind: str
    message: str

    @property
    def name(self) -> str:
        """The class name without its module."""
        return self.kind.rpartition(".")[2]

    @property
    def error(self) -> type[RowkindError] | None:
        """The class itself if it is a RowkindError, which a user can fix."""
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
    """Return the exception of this project that caused `error`; None if none did.

    The search covers the error itself, its causes, and the text in which Spark wraps a worker's traceback. Of several
    in one text the last one counts, as in any traceback.
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
"""Name prefixes of exceptions that a worker raises because Java, a socket or memory is gone."""


def unforeseen(said: str) -> str | None:
    """Return an unexpected exception that this project's code raised in a worker, with its place; None if none.

    Such an exception is a bug, and the same batch fails again. It is read from the last traceback in Spark's error
    text.
    """
    _, found, last = said.rpartition(_TRACEBACK)
    lines = last.splitlines()
    raised = next((line for line in lines if line and not line[0].isspace()), "")
    places = _PLACE.findall("\n".join(lines[: lines.index(raised)] if raised else []))
    if not found or not places or raised.startswith(_LOST):
        return None
    return "{} ({}, line {})".format(raised, *places[-1])
