"""A query can start even if Spark's process for its source was killed after it was last used."""

from __future__ import annotations

import os
import signal

import pytest
from pyspark.sql import SparkSession

from rowkind.service.query.streaming import register, source_of
from tests.processes import command, descendants
from tests.run.process import until


@pytest.mark.spark
def test_a_source_is_asked_again_where_the_process_that_knows_it_is_gone(spark: SparkSession) -> None:
    """SIGTERM to all processes of a job may kill the process that knows the source while a query starts."""
    register(spark)
    first = source_of(spark, "{}")
    killed = [pid for pid in descendants(os.getpid()) if _knows_sources(pid)]
    assert killed, "Spark has asked a process"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(_knows_sources, killed)), "the end of the processes")
    assert source_of(spark, "{}").schema == first.schema


def _knows_sources(pid: int) -> bool:
    """Return whether a process describes sources to Spark."""
    return b"create_data_source" in command(pid)
