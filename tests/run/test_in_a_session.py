"""`Job.start`: a job in a Spark session that was created for other work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowkind.service.dev.broker import Broker
from tests.kafka.sinks import committed
from tests.run.process import ROOT
from tests.run.shop import Shop

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_SLOW_SECONDS = 600.0

COUNTED = {
    "mode": "upsert",
    "key": "stars",
    "sql": "SELECT stars, COUNT(*) AS n FROM ratings WHERE stars IS NOT NULL GROUP BY stars",
}

SOMEBODYS = """
import sys, time
from pyspark.sql import SparkSession
import rowkind

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
job = rowkind.Job(sys.argv[1])


def ready(running):
    while not running.wait(0.1) and not running.ready:
        pass


with job.start(spark) as running:
    while not running.status().queries or not running.status().queries[0].batches:
        assert not running.wait(0.1)
    assert running.ready
    print("batch", running.status().queries[0].batches[0].number, flush=True)
    assert "rowkind_rows_in_total{" in running.metrics()
    assert (spark.conf.get("spark.sql.shuffle.partitions"), spark.range(7).count()) == ("200", 7)
    input()
    first = running
assert not first.running
assert spark.range(7).count() == 7, "the session is its owner's"

again = job.start(spark)
ready(again)
print("again", flush=True)
input()
again.stop()

lost = job.start(spark)
ready(lost)
spark.stop()
try:
    lost.wait(60)
except rowkind.RowkindError as error:
    print(error, flush=True)
try:
    job.start(spark)
except rowkind.RowkindError as error:
    print(error, flush=True)
try:
    job.start("a session")
except rowkind.RowkindError as error:
    print(error, flush=True)
"""

STRANGE = """
import sys
from pyspark.sql import SparkSession
import rowkind
from rowkind.service.processes import interpreter

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
job = rowkind.Job(sys.argv[1])
try:
    job.start(spark)
except rowkind.RowkindError as error:
    print(error, flush=True)

interpreter.check = lambda program: None
running = job.start(spark)
try:
    running.wait()
except Exception as error:
    print("No module named 'rowkind'" in str(error))
(query,) = running.status().queries
print(query.state)
print(query.reason)
print(*(each.what for each in running.status().incidents))
"""


@pytest.fixture
def somebody(broker: Broker, tmp_path: Path) -> Iterator[tuple[Shop, subprocess.Popen[str]]]:
    """A shop with a rating, and a user's program that runs the job."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"session-{os.getpid()}-{tmp_path.name}")
    shop.row("ratings", "+I", rating_id=1, stars=5)
    shop.flush()
    program = [sys.executable, "-c", SOMEBODYS, str(shop.job({"counted": COUNTED}))]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(
            program, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    # The program is killed after a time, so that a test that reads its output does not wait indefinitely.
    end = threading.Timer(_SLOW_SECONDS, process.kill)
    end.start()
    yield shop, process
    end.cancel()
    process.kill()
    process.communicate()


def test_a_job_lives_in_somebodys_session(somebody: tuple[Shop, subprocess.Popen[str]], tmp_path: Path) -> None:
    """The job stops after its batch, continues where it stopped, and leaves the session's settings unchanged."""
    shop, process = somebody
    assert process.stdin
    assert process.stdout

    def says() -> str:
        assert process.stdout
        return process.stdout.readline() or (tmp_path / "errors").read_text()

    def written() -> list[bytes]:
        return [record.value for record in committed({"bootstrap.servers": shop.servers}, shop.topic("counted"))]

    assert says() == "batch 0\n"
    assert len(written()) == 1
    process.stdin.write("\n")
    process.stdin.flush()
    assert says() == "again\n"
    assert len(written()) == 1
    shop.row("ratings", "+I", rating_id=2, stars=5)
    shop.flush()
    rest, _ = process.communicate("\n", timeout=240)
    told = rest.splitlines()
    assert len(told) == 3, (tmp_path / "errors").read_text()
    assert "the Spark session was stopped while the job ran in it" in told[0]
    assert "this Spark session has been stopped" in told[1]
    assert "a job needs a session whose driver is this process" in told[2]
    assert len(written()) == 2
    # A Python process of Spark may print its own traceback when its session is stopped.
    frames = [line for line in (tmp_path / "errors").read_text().splitlines() if line.startswith('  File "')]
    assert not [frame for frame in frames if "/rowkind/service/" in frame or "/rowkind/operators/" in frame]
    assert process.wait(60) == 0


def test_a_session_with_another_python_is_refused(broker: Broker, tmp_path: Path) -> None:
    """With a Python that lacks Rowkind, as in notebooks, the start is refused, or the failed query says why."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"strange-{os.getpid()}-{tmp_path.name}")
    job = shop.job({"counted": COUNTED})
    venv.create(tmp_path / "venv", with_pip=False)
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # With PYTHONPATH, the other Python would find Rowkind.
    left_out = ("PYSPARK_PYTHON", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | {"PATH": path}
    program = [sys.executable, "-c", STRANGE, str(job)]
    ran = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    refused, remedy, raised, state, reason, *rest = ran.stdout.splitlines()
    assert "venv/bin/python3, which is not this process's Python: " in refused
    assert "No module named 'rowkind'" in refused
    assert 'os.environ["PYSPARK_PYTHON"] = sys.executable' in remedy
    assert (raised, state) == ("True", "failed")
    assert reason.startswith("query main failed: ModuleNotFoundError")
    assert "No module named 'rowkind'" in reason
    assert "No module named 'rowkind'" in rest[-1]


LOST = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
import rowkind


def java(pid):
    if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
        return [pid]
    return [each for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for each in java(int(child))]


spark = None
if sys.argv[2] == "the caller's session":
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
job = rowkind.Job(sys.argv[1])
running = job.start(spark).wait_ready(240)
print("ready", flush=True)
os.kill(*java(os.getpid()), signal.SIGKILL)
try:
    running.wait(60)
except rowkind.RowkindError as error:
    print(type(error).__name__, error, sep=": ")
print(running.running, running.status().state)
if spark is None:
    with job.start() as again:
        print(again.wait_ready(240).status().state)
"""


@pytest.mark.parametrize("session", ["the caller's session", "Rowkind's own session"])
def test_a_lost_java_process_is_reported(broker: Broker, tmp_path: Path, session: str) -> None:
    """If Spark's Java process is killed, `wait` raises an error that says so. Rowkind's own session can start again."""
    shop = Shop(broker.bootstrap_servers, tmp_path, f"lost-{os.getpid()}-{tmp_path.name}")
    shop.row("ratings", "+I", rating_id=1, stars=5)
    shop.flush()
    program = [sys.executable, "-c", LOST, str(shop.job({"counted": COUNTED})), session]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    ready, told, state, *again = ran.stdout.splitlines()
    assert ready == "ready"
    assert told == (
        "SparkLostError: Spark's Java process was killed by signal 9; the system kills processes if memory runs out: "
        "see `memory`"
    )
    assert state == "False failed"
    assert again == ([] if session == "the caller's session" else ["running"])
