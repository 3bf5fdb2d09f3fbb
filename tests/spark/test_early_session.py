"""A session that is started while the main thread does other work, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

BEGINS = """
import sys
from pyspark import SparkContext
from rowkind.service.machine.budget import Budget
from rowkind.service.processes import forks
from rowkind.service.spark import early_session, jvm

early_session.begin("early", 1, sys.argv[1], Budget())
print(isinstance(jvm._running[0].forks, forks.Forked), SparkContext._active_spark_context)
spark = early_session.take()
print(spark.range(3).count(), spark.sparkContext.appName, early_session.take())
spark.stop()
"""
CLASSES = """
from rowkind.service.machine.budget import Budget
from rowkind.service.spark.session import session

spark = session("jars", master="local[1]", parallelism=1, checkpoint="")
loader = spark._jvm.java.lang.ClassLoader.getSystemClassLoader()
print(loader.getResource("org/apache/spark/sql/ml/InternalFunctionRegistration.class"))
spark.stop()
"""


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program, and return what it has printed."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_the_caller_goes_on_while_the_session_starts(tmp_path: Path) -> None:
    """Spark's Python processes are forked from the caller, and the session can be taken once."""
    done = run(BEGINS, str(tmp_path))
    assert done.stdout.splitlines() == ["True None", "3 early None"], done.stderr
    assert done.stderr == ""


def test_an_error_of_the_start_reaches_the_caller_that_takes_the_session(tmp_path: Path) -> None:
    """If Java cannot run Spark, the caller gets the same error as from `session`."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    done = run(BEGINS, str(tmp_path), JAVA_HOME=str(tmp_path))
    assert done.stdout.splitlines() == ["True None"]
    assert "SparkStartError: Spark did not start with" in done.stderr.splitlines()[-1]


def test_a_local_session_has_no_classes_of_machine_learning() -> None:
    """Spark would initialise them in each session."""
    assert run(CLASSES).stdout == "None\n"
