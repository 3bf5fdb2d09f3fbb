"""What Spark prints past any logging configuration, kept off the user's screen.

A JVM started by pyspark inherits standard error and, with the workers below it, says things there that no setting
turns off. So it is given a pipe instead, and a thread passes on everything else, for as long as the JVM lives.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NOISE = (
    b"WARNING: Using incubator modules:",
    b"Picked up JDK_JAVA_OPTIONS",
    b"Picked up JAVA_TOOL_OPTIONS",
    # Spark's own options open it, and Java 25 has it no more.
    b"WARNING: package sun.security.action not in java.base",
    b"Setting default log level to ",
    b"To adjust logging level use ",
    # Said for each start of a stateful query by the worker that asks the processor for its state variables.
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)

_LOST = (b"BrokenPipeError:", b"ConnectionResetError:", b"EOFError")
_SPARKS = (b"pyspark/daemon.py", b"pyspark/sql/streaming/python_streaming_source_runner.py")
_BEGIN = b"Traceback (most recent call last):"
_AFTERWARDS = b"During handling of the above exception"
# A thread of Spark's that answers a worker's questions on its state, when the worker is killed in the middle of one.
_UNANSWERED = tuple(
    b'Exception in thread "stateConnectionListenerThread" java.' + lost
    for lost in (b"io.IOException", b"io.EOFException", b"net.SocketException")
)
_TRACE = (b"\tat ", b"\t... ", b"Caused by: ")


def not_py4js(record: logging.LogRecord) -> bool:
    """Whether a message is none of the bridge's to Java, which logs whatever it raises, with a traceback."""
    return not record.name.startswith("py4j") and "py4j" not in Path(record.pathname).parts


@contextmanager
def quiet_stderr(*, later: bool = False) -> Iterator[None]:
    """Processes started inside write to standard error without the known notices; this process's own goes through.

    `later`: it is passed on from the end on, so that a process with one thread keeps it for so long, and may fork.
    """
    sys.stderr.flush()
    screen = os.dup(2)
    source, sink = os.pipe()
    os.dup2(sink, 2)
    os.close(sink)
    relay = threading.Thread(target=_relay, args=(source, screen), name="jvm-stderr", daemon=True)
    if not later:
        relay.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(screen, 2)
        if later:
            relay.start()


def _relay(source: int, screen: int) -> None:
    noise = trace = False
    with os.fdopen(source, "rb") as lines, os.fdopen(screen, "wb", buffering=0) as out:
        for line in _without_lost_connections(lines):
            # Some notices come with an empty line.
            noise = line.startswith(_NOISE) or (noise and not line.strip())
            trace = line.startswith(_UNANSWERED) or (trace and line.startswith(_TRACE))
            if not (noise or trace):
                out.write(line)


def _without_lost_connections(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines but for tracebacks of pyspark's daemon, or of a source's process, from which Spark has turned away.

    Every failed batch may have some, beside the failure itself. Only a traceback's last line is not indented. Where one
    came of another, what stands between them goes with the first. Several processes may say theirs at a time, line by
    line, and be killed before they have said more than that there is one.
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
    """Whether nothing is said but that there are tracebacks, if that."""
    return all(line.startswith(_BEGIN) for line in traceback)
