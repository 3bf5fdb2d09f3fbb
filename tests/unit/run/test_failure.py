"""The cause of a query's end: an unexpected exception is reported as a bug."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import StreamingQueryException

from rowkind.avro.schema import Record
from rowkind.errors import BUG
from rowkind.operators.columns.changes import binary
from rowkind.service.execute.values import read
from rowkind.service.monitoring.failure import failed, passing

SPARK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 failed:
org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker. Please see the stack trace.
{}
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
SQLSTATE: XXKST"""


def _raised() -> str:
    """Return the traceback of an unreadable row inside the query."""
    try:
        read(Record.of({"id": "INT NOT NULL"}), binary([b""]))
    except AssertionError:
        return traceback.format_exc()
    raise AssertionError("such a row cannot be read")


def test_an_exception_that_nobody_foresees_is_a_bug() -> None:
    """An unexpected exception has exit code 4, its place and the next step in the message, and stops the query."""
    error = StreamingQueryException(SPARK.format(_raised()))

    failure = failed("main", "checkpoint", error)

    assert failure.exit_code == BUG
    assert str(failure).startswith("query main failed: AssertionError: a row inside the query cannot be read")
    assert "(rowkind/service/execute/values.py, line " in str(failure)
    assert "This is a bug in Rowkind" in str(failure)
    assert "thrown from the Python worker" not in str(failure)
    assert passing(failure, error, ran=True) is None


@pytest.mark.parametrize("raised", ["EOFError", "ConnectionResetError: [Errno 104] Connection reset by peer"])
def test_what_is_lost_is_no_bug(raised: str) -> None:
    """A lost connection to a worker is not a bug, and the query is restarted."""
    said = _raised().replace(_raised().splitlines()[-1], raised)
    error = StreamingQueryException(SPARK.format(said))

    failure = failed("main", "checkpoint", error)

    assert failure.exit_code != BUG
    assert passing(failure, error, ran=True) is not None
