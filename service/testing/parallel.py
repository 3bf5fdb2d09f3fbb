"""Run tests in several processes at once, which are forked from this one after the job has been planned.

Process `k` of `n` runs the tests `k`, `k + n`, `k + 2n`, … and sends each result through its own pipe. So this process
reads the results in the order of the tests, and it sees if a process has exited.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection

from rowkind.errors import RowkindError
from rowkind.service.machine.threads import threads
from rowkind.service.testing.run import SqlTestResult, run_test
from rowkind.service.testing.suite import JobUnderTest, SqlTest

_LEAST = 8
"""The number of tests for which a process is worth its start, which takes as long as two or three tests."""


class SqlTestProcessLostError(RowkindError):
    """A process that ran tests has exited before it had run all of them."""


def results(job: JobUnderTest, tests: Sequence[SqlTest]) -> Generator[SqlTestResult, None, None]:
    """Run tests, one process per core if there are enough tests, and yield their results in the order of the tests.

    If this process has several threads, or runs on another system than Linux, the tests run here one after the other,
    because such a process cannot fork safely. Raises the errors of the job's plan, and SqlTestProcessLostError.
    """
    for sink in dict.fromkeys(name for test in tests for name in test.sinks):
        job.sink(sink)
    processes = min(len(os.sched_getaffinity(0)), len(tests) // _LEAST) if threads() == 1 else 1
    if processes < 2:
        yield from (run_test(job, each) for each in tests)
        return
    with ExitStack() as ended:
        pipes = [_started(job, tests[number::processes], ended) for number in range(processes)]
        for number, test in enumerate(tests):
            yield _received(job, test, pipes[number % processes])


def _started(job: JobUnderTest, tests: Sequence[SqlTest], ended: ExitStack) -> Connection:
    """Fork a process that runs these tests, and return the pipe with its results. `ended` kills the process."""
    context = get_context("fork")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(job, tests, writer), daemon=True)
    process.start()
    # Without this copy, the pipe ends when the process exits.
    writer.close()
    for end in (reader.close, process.join, process.kill):
        ended.callback(end)
    return reader


def _send(job: JobUnderTest, tests: Sequence[SqlTest], pipe: Connection) -> None:
    # Ctrl-C ends this process too, without a stack trace.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for test in tests:
        try:
            result = run_test(job, test)
            found = result.failures, result.notes, result.seconds
        except Exception:  # noqa: BLE001 -- the parent runs the test again, and raises the error with its stack
            found = None
        pipe.send(found)


def _received(job: JobUnderTest, test: SqlTest, pipe: Connection) -> SqlTestResult:
    """Return the next result of a process, which is the result of this test. Raises SqlTestProcessLostError."""
    try:
        found = pipe.recv()
    except (EOFError, OSError):
        text = f"the process that ran the test {test.name!r} has exited, or the system has killed it"
        raise SqlTestProcessLostError(f"{text}. Run this test alone with -k to see the cause.") from None
    return run_test(job, test) if found is None else SqlTestResult(test, *found)
