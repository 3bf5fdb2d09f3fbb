"""Removes notices from Spark's standard error that no logging configuration can turn off.

A JVM started by pyspark inherits standard error. To this stream, the JVM and its workers print notices that no setting
turns off. So the JVM writes to a pipe instead, and a thread passes on everything else while the JVM runs.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NOISE = (
    b"WARNING: Using incubator modules:",
    b"Picked up JDK_JAVA_OPTIONS",
    b"Picked up JAVA_TOOL_OPTIONS",
    # Spark's own options open this package, which Java 25 no longer has.
    b"WARNING: package sun.security.action not in java.base",
    b"Setting default log level to ",
    b"To adjust logging level use ",
    # Printed at each start of a stateful query by the worker that reads the processor's state variables.
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)

_LOST = (b"BrokenPipeError:", b"ConnectionResetError:", b"EOFError")
_SPARKS = (b"pyspark/daemon.py", b"pyspark/sql/streaming/python_streaming_source_runner.py")
_BEGIN = b"Traceback (most recent call last):"
_AFTERWARDS = b"During handling of the above exception"
# Printed by a Spark thread that serves a worker's state requests, if the worker is killed during a request.
_UNANSWERED = tuple(
    b'Exception in thread "stateConnectionListenerThread" java.' + lost
    for lost in (b"io.IOException", b"io.EOFException", b"net.SocketException")
)
_TRACE = (b"\tat ", b"\t... ", b"Caused by: ")


def not_py4js(record: logging.LogRecord) -> bool:
    """Return whether a message is not from py4j, the bridge to Java, which logs a traceback for every exception."""
    return not record.name.startswith("py4j") and "py4j" not in Path(record.pathname).parts


@contextmanager
def quiet_stderr(*, later: bool = False) -> Iterator[None]:
    """Filter the standard error of processes that are started inside the block. Their output is then passed on.

    `later`: output is passed on only after the block. Until then, this process stays single-threaded, so that it can
    fork.
    """
    sys.stderr.flush()
    screen = os.dup(2)
    source, sink = os.pipe()
    os.dup2(sink, 2)
    os.close(sink)
    relay = threading.Thread(target=_relay_to_screen, args=(source, screen), name="jvm-stderr", daemon=True)
    if not later:
        relay.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(screen, 2)
        if later:
            relay.start()


@contextmanager
def relayed(write: Callable[[bytes], object]) -> Iterator[int]:
    """Yield a descriptor for the output of processes that are started inside the block.

    As long as these processes run, `write` is called in another thread with each line of their output, except notices.
    """
    source, sink = os.pipe()
    threading.Thread(target=_relay, args=(source, write), name="jvm-output", daemon=True).start()
    try:
        yield sink
    finally:
        os.close(sink)


def _relay_to_screen(source: int, screen: int) -> None:
    with os.fdopen(screen, "wb", buffering=0) as out:
        _relay(source, out.write)


def _relay(source: int, write: Callable[[bytes], object]) -> None:
    noise = trace = False
    with os.fdopen(source, "rb") as lines:
        for line in _without_lost_connections(lines):
            # Some notices have an empty line after them.
            noise = line.startswith(_NOISE) or (noise and not line.strip())
            trace = line.startswith(_UNANSWERED) or (trace and line.startswith(_TRACE))
            if not (noise or trace):
                write(line)


def _without_lost_connections(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Remove tracebacks printed by pyspark's daemon, or by a source's process, after Spark closed their connections.

    Every failed batch may cause such tracebacks, in addition to the failure itself. Only the last line of a traceback
    is not indented. If one exception caused another, the text between their tracebacks belongs to the first. Several
    processes may print tracebacks at the same time, line by line. A process may be killed after the first line.
    """
    traceback: list[bytes] = []
    gone = False
    for line in lines:
        if gone and not traceback and (not line.strip() or line.startswith((_AFTERWARDS, *_LOST))):
            continue
        if not line.startswith((b" ", _BEGIN)) and _only_begun(traceback):
            traceback = []
        if traceback or line.startswith(_BEGIN):
            traceback.append(line)
            if line.startswith((b" ", _BEGIN)):
                continue
            gone = line.startswith(_LOST) and any(place in each for each in traceback for place in _SPARKS)
            if not gone:
                yield from traceback
            traceback = []
        else:
            gone = False
            yield line
    if not _only_begun(traceback):
        yield from traceback


def _only_begun(traceback: list[bytes]) -> bool:
    """Return whether the traceback has no lines besides first lines, perhaps because its process was killed."""
    return all(line.startswith(_BEGIN) for line in traceback)
