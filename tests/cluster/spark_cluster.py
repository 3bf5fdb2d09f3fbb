"""A standalone Spark cluster as processes: a master, and workers each of which stands for a machine.

A worker has a folder of its own for all that its executors put on disk, temporary files too, so that nothing but the
network and the checkpoint is common to two of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from rowkind.service.dev.broker import free_port
from rowkind.service.spark.jvm import MODULE_OPTIONS, java
from tests.run.process import until

_HOME = Path(pyspark.__file__).parent
_EXECUTOR = b"CoarseGrainedExecutorBackend"


@dataclass
class Worker:
    """A machine of the cluster."""

    process: subprocess.Popen[bytes]
    folder: Path

    def executors(self) -> list[int]:
        """The JVMs that run tasks here."""
        return [pid for pid in _session(self.process.pid) if _EXECUTOR in _command(pid)]

    def kill_executors(self) -> None:
        """SIGKILL to each of them; the worker starts others."""
        for pid in self.executors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL to everything on this machine."""
        for pid in [self.process.pid, *_descendants(self.process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class SparkCluster:
    """A context manager; `workers` machines of so many `cores` each."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1) -> None:
        self.folder = folder
        self._wanted, self._cores = workers, cores
        self._port = free_port()
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[Worker] = []

    @property
    def url(self) -> str:
        """For `--master`."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(free_port())]
        self._master = self._start("master", "master.Master", where)
        self._await("master", "New state: ALIVE")
        for _ in range(self._wanted):
            self.add()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers:
            worker.kill()
        if self._master is not None:
            self._master.kill()
            self._master.wait()

    def add(self) -> Worker:
        """Another machine; returns when the master knows it."""
        name = f"worker-{len(self.workers)}"
        folder = self.folder / name
        (folder / "tmp").mkdir(parents=True)
        options = ["--host", "127.0.0.1", "--cores", str(self._cores), "--memory", "2g", "--webui-port", "0"]
        process = self._start(
            name,
            "worker.Worker",
            [*options, "--work-dir", str(folder / "work"), self.url],
            {"TMPDIR": str(folder / "tmp"), "SPARK_LOCAL_DIRS": str(folder / "tmp")},
        )
        self.workers.append(Worker(process, folder))
        self._await(name, "Successfully registered with master")
        return self.workers[-1]

    def _start(
        self, name: str, main: str, arguments: list[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [java(), "-cp", f"{_HOME}/jars/*", "-Xmx256m", *MODULE_OPTIONS, f"org.apache.spark.deploy.{main}"]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, *arguments],
                env={**os.environ, "SPARK_HOME": str(_HOME), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, name: str, words: str) -> None:
        log = self.folder / f"{name}.log"
        until(lambda: words in log.read_text(errors="replace"), f"{words!r} of {name}", lambda: log.read_text()[-2000:])


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry.name))
    return found


def _descendants(root: int) -> list[int]:
    children = _children()
    found, left = [], [root]
    while left:
        left += (more := children.get(left.pop(), []))
        found += more
    return found


_session = _descendants


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
