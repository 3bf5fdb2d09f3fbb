"""Spark's Python processes are forked from a process that has loaded everything, and Spark notices no difference."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rowkind.service.spark.jvm import python
from tests.run.process import until

TELLS = """
import json, os, sys
from pathlib import Path
told = {"arguments": sys.argv[1:], "said": os.environ["SAID"], "folder": str(Path.cwd()), "read": sys.stdin.read()}
print(json.dumps(told | {"parent": os.getppid(), "loaded": "pyspark.worker" in sys.modules}))
sys.exit(int(sys.argv[1]))
"""
FORKS = """
import sys
from rowkind.service.processes.forks import fork
forks = fork(sys.argv[1], 2)
print(forks.pid, flush=True)
sys.stdin.read()
forks.stdin.close()
sys.exit(forks.wait(60))
"""
THREADS = """
import sys, threading
from rowkind.service.processes.forks import fork
assert fork(sys.argv[1] + "/gone", 2) is None
threading.Thread(target=threading.Event().wait, daemon=True).start()
assert fork(sys.argv[1], 2) is None
"""
WAITS = """
import os, sys
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two programs."""
    made = tmp_path_factory.mktemp("forks")
    (made / "tells.py").write_text(TELLS)
    (made / "waits.py").write_text(WAITS)
    return made


@pytest.fixture(scope="module", params=["program", "child"])
def forks(folder: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    """The id of the process that forks.

    It listens on the socket `forks` in the folder, and is a separate program or the child of a program with one thread.
    """
    command = [sys.executable, "-m", "rowkind.service.processes.forks", str(folder / "forks"), " " * 200]
    if request.param == "child":
        command = [sys.executable, "-c", FORKS, str(folder / "forks"), " " * 200]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        until((folder / "forks").exists, "a socket", str)
        assert running.stdin is not None
        assert running.stdout is not None
        yield running.pid if request.param == "program" else int(running.stdout.readline())
        running.stdin.close()
        assert running.wait(60) == 0, "it ends with who has started it"
    (folder / "forks").unlink()


def started(folder: Path, module: str, *arguments: str, socket: str = "forks") -> subprocess.Popen[bytes]:
    """Start a module as Spark starts one."""
    environment = {"ROWKIND_PYTHON": sys.executable, "ROWKIND_STAND_IN": str(folder / socket), "SAID": "a\nb=c"}
    return subprocess.Popen(
        [python(), "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=os.environ | environment | {"PYTHONPATH": str(folder)},
    )


def told(running: subprocess.Popen[bytes], code: int) -> dict[str, Any]:
    """Return the report of the program that reads `input` and ends with a code."""
    said, _ = running.communicate(b"input", timeout=120)
    assert running.returncode == code
    found: dict[str, Any] = json.loads(said)
    return found


@pytest.mark.parametrize("code", [0, 3])
def test_it_has_what_it_was_given_and_ends_as_it_should(forks: int, folder: Path, code: int) -> None:
    """Arguments, environment, folder, input, output and exit code are those of a process that Spark starts itself."""
    with started(folder, "tells", str(code), "ä") as running:
        found = told(running, code)
    assert (found.pop("parent"), found.pop("loaded")) == (forks, True)
    assert found == {"arguments": [str(code), "ä"], "said": "a\nb=c", "folder": str(folder), "read": "input"}


def test_where_nobody_forks_it_is_python(folder: Path) -> None:
    """Without a forking process Python starts directly, nothing is preloaded, and all else is the same."""
    with started(folder, "tells", "3", socket="nobody") as running:
        assert not told(running, 3)["loaded"]


def test_a_process_with_threads_forks_nothing(folder: Path) -> None:
    """A lock held by another thread would never be released in a child; a missing socket folder prevents forks too."""
    subprocess.run([sys.executable, "-c", THREADS, str(folder / "never")], check=True)
    assert not (folder / "never").exists()


@pytest.mark.usefixtures("forks")
def test_both_end_when_either_is_killed(folder: Path) -> None:
    """If Spark's process or the forked process is killed, the other one ends too."""
    with started(folder, "waits") as seen:
        assert seen.stdout is not None
        works = int(seen.stdout.readline())
        assert b"waits" in Path(f"/proc/{works}/cmdline").read_bytes(), "whoever looks finds it by its name"
        seen.kill()
        until(lambda: not Path(f"/proc/{works}").exists(), "the end of what works", str)
    with started(folder, "waits") as seen:
        assert seen.stdout is not None
        os.kill(int(seen.stdout.readline()), signal.SIGKILL)
        assert seen.wait(60) == -signal.SIGKILL


@pytest.mark.spark
def test_workers_of_spark_are_forked(spark: SparkSession) -> None:
    """The daemon that forks Spark's workers has itself been forked."""

    def look(_: int) -> int:
        return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])

    [forks] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert b"rowkind.service.processes.forks" in Path(f"/proc/{forks}/cmdline").read_bytes()
