"""A process of Spark's that was killed since it was last asked is no reason not to start a query."""

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
    """Such as where SIGTERM went to all processes of a job, in the moment in which one of its queries began."""
    register(spark)
    first = source_of(spark, "{}")
    killed = [pid for pid in descendants(os.getpid()) if _knows_sources(pid)]
    assert killed, "Spark has asked a process"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(_knows_sources, killed)), "the end of the processes")
    assert source_of(spark, "{}").schema == first.schema


def _knows_sources(pid: int) -> bool:
    """Whether it is a process that says what a source offers."""
    return b"create_data_source" in command(pid)
