"""Why a query has ended: an exception that the code does not foresee is told as the bug that it is."""

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
    """The traceback of a row inside the query that cannot be read."""
    try:
        read(Record.of({"id": "INT NOT NULL"}), binary([b""]))
    except AssertionError:
        return traceback.format_exc()
    raise AssertionError("such a row cannot be read")


def test_an_exception_that_nobody_foresees_is_a_bug() -> None:
    """The message has the exception, its place and what to do; the query is not started again, and the code is 4."""
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
    """A worker whose socket is gone says nothing about this code: the query is started again."""
    said = _raised().replace(_raised().splitlines()[-1], raised)
    error = StreamingQueryException(SPARK.format(said))

    failure = failed("main", "checkpoint", error)

    assert failure.exit_code != BUG
    assert passing(failure, error, ran=True) is not None
