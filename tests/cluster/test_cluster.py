"""A job on a Spark cluster runs, recovers from losses, and continues on another machine."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.chaos.stage import SLOW, Stage
from tests.cluster.spark_cluster import SparkCluster
from tests.run.process import Rowkind, until
from tests.run.results import Results
from tests.run.shop import Shop
from tests.run.test_functions import CODE, FUNCTIONS, SINKS

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_job_gets_over_what_a_cluster_loses(stage: Stage, cluster: SparkCluster) -> None:
    """It survives the loss of an executor in a batch, a machine and the driver, and continues with more tasks."""
    stage.manipulate(0.3)
    with stage.job("--master", cluster.url) as job:
        stage.catch_up(job)
        assert all(worker.executors() for worker in cluster.workers)
        stage.manipulate(0.2)
        stage.inside_a_batch(job)
        cluster.workers[0].kill_executors()
        stage.catch_up(job)
        stage.manipulate(0.2)
        stage.inside_a_batch(job)
        cluster.workers[1].kill()
        cluster.add()
        stage.catch_up(job)
        stage.manipulate(0.2)
        stage.inside_a_batch(job)
        job.kill()
    # It continues without a cluster, with another folder for temporary files.
    stage.runs()
    stage.manipulate(0.1)
    stage.change(parallelism=4)
    with stage.job("--master", cluster.url, "--upgrade") as job:
        stage.catch_up(job)
        ended = stage.drain(job)
    assert ended.code == 0, ended.error
    assert "Traceback" not in ended.error
    assert "every machine of the cluster must have the folder at the same path" in ended.error, (
        "the registry is a folder"
    )
    stage.validate()


def test_functions_in_python_go_to_executors_with_the_job(
    broker: Broker, cluster: SparkCluster, tmp_path: Path, driver_only: Path
) -> None:
    """The functions run although only the driver has their folder, and an error names the row and the line."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"cluster-functions-{os.getpid()}")
    code = driver_only / "functions"
    code.mkdir()
    (code / "own.py").write_text(CODE)
    tables = {"ratings": shop.table("ratings")}
    job = shop.job(SINKS, code=str(code), functions=FUNCTIONS, tables=tables)
    results = {name: Results(shop, name) for name in SINKS}
    right = {"worth": {(1, 100): 1, (2, 50): 1}, "points": {(1, "*"): 1, (2, "**"): 1}, "first": {(1, 1): 1, (2, 2): 1}}
    for number in (1, 2):
        shop.row("ratings", "+I", rating_id=number, stars=number)
    shop.flush()
    command = ("run", str(job), "--port", "0", "--master", cluster.url)
    with Rowkind(shop.folder / "output", *command, TMPDIR=str(driver_only)) as running:

        def done() -> bool:
            assert running.running, running.error
            return all(results[name].rows() == Counter(rows) for name, rows in right.items())

        until(done, "the results", lambda: f"{[each.rows() for each in results.values()]}{running.error}", SLOW)
        bad = shop.row("ratings", "+I", rating_id=3, stars=0)
        shop.flush()
        ended = running.ended(SLOW)
    for result in results.values():
        result.close()
    assert ended.code == 1, ended.error
    assert "at own.py:" in ended.error
    assert f"on the row from offset {bad.offset} of partition {bad.partition}" in ended.error


def test_executors_that_lack_something_are_refused(stage: Stage, cluster: SparkCluster, tmp_path: Path) -> None:
    """One line says what is missing or different: an interpreter, or the version of a library."""
    with stage.job("--master", cluster.url, PYSPARK_PYTHON="/nowhere/python") as job:
        ended = job.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "rowkind: an executor has no /nowhere/python.\n" in ended.error
    assert "Traceback" not in ended.error
    (tmp_path / "other" / "numpy-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "other" / "numpy-1.0.dist-info" / "METADATA").write_text("Name: numpy\nVersion: 1.0\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{tmp_path / "other"}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with stage.job("--master", cluster.url, PYSPARK_PYTHON=str(python)) as job:
        ended = job.ended(SLOW)
    assert ended.code == 2, ended.error
    assert "has numpy 1.0, but the driver " in ended.error
    assert ended.error.endswith("The easiest way is to use the same container image.\n")
    assert "Traceback" not in ended.error


def test_while_no_executor_comes_it_is_told_what_may_be_the_reason(
    stage: Stage, cluster: SparkCluster, tmp_path: Path
) -> None:
    """Here executors end at once and the master keeps restarting them; the job waits, and ends on SIGTERM."""
    settings = tmp_path / "spark" / "spark-defaults.conf"
    settings.parent.mkdir()
    settings.write_text("spark.executor.defaultJavaOptions -javaagent:/nowhere.jar\n")
    with stage.job("--master", cluster.url, SPARK_CONF_DIR=str(settings.parent)) as job:
        until(lambda: "no executor has registered" in job.error, "a word on executors", lambda: job.error)
        assert "their standard error, in the workers' work folders, has the reason" in job.error
        job.terminate()
        ended = job.ended(SLOW)
    assert ended.code == 0, ended.error
    assert "Traceback" not in ended.error
