"""A process of Spark's that was killed since it was last asked is no reason not to start a query."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rowkind.service.run.streaming import register, source_of
from tests.run.process import until


@pytest.mark.spark
def test_a_source_is_asked_again_where_the_process_that_knows_it_is_gone(spark: SparkSession) -> None:
    """Such as where SIGTERM went to all processes of a job, in the moment in which one of its queries began."""
    register(spark)
    first = source_of(spark, "{}")
    killed = [pid for pid in _processes() if _knows_sources(pid)]
    assert killed, "Spark has asked a process"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(_knows_sources, killed)), "the end of the processes")
    assert source_of(spark, "{}").schema == first.schema


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _knows_sources(pid: int) -> bool:
    """Whether it is a process of this session, or one that this has forked, that says what a source offers."""
    try:
        said = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"create_data_source" in said and os.getpid() in _above(pid)
    except FileNotFoundError:
        return False


def _above(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found
