"""Workers of tasks are forked by a daemon that has loaded their modules and has only one thread."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BESIDE = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
from rowkind.service.processes.worker_daemon import main
main()
"""


def test_a_worker_finds_everything_loaded(spark: SparkSession) -> None:
    """A worker has all operator modules from its first task on, and its parent has one thread."""

    def look(_: int) -> tuple[bool, str, int]:
        parent = Path("/proc", str(os.getppid()))
        loaded = "rowkind.service.spark.processor" in sys.modules
        return loaded, (parent / "cmdline").read_text(), len(list((parent / "task").iterdir()))

    [(loaded, parent, threads)] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert loaded
    assert "rowkind.service.processes.worker_daemon" in parent
    assert threads == 1


def test_with_another_thread_pysparks_own_daemon_takes_its_place(tmp_path: Path) -> None:
    """The daemon of pyspark reports its port, as Spark expects."""
    with started(tmp_path, "-c", BESIDE) as daemon:
        assert daemon.stdout is not None
        assert len(daemon.stdout.read(4)) == 4
        assert "pyspark.daemon" in Path("/proc", str(daemon.pid), "cmdline").read_text()


def test_a_worker_that_spark_turns_away_from_ends_without_a_word(tmp_path: Path) -> None:
    """A worker whose connection closes at once, as for a cancelled task, ends without output."""
    with started(tmp_path, "-m", "rowkind.service.processes.worker_daemon") as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        port = int.from_bytes(daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as turned_away:
            assert turned_away.recv(4), "the worker tells its number"
        # Reading ends when the last worker has ended.
        daemon.stdin.close()
        assert daemon.stderr.read() == b""


def started(folder: Path, *program: str) -> subprocess.Popen[bytes]:
    """Start a daemon whose workers use TCP, with pipes for its input and output."""
    return subprocess.Popen(
        [sys.executable, *program, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHON_UNIX_DOMAIN_ENABLED"},
    )
