"""A standalone Spark cluster as processes: a master, and workers that stand for machines.

A worker has a separate folder for all files of its executors, including temporary ones. Where permissions allow, it
does not see the driver's temporary folder: they share only the network and the checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from rowkind.service.machine.jars import java
from rowkind.service.machine.ports import free_port
from rowkind.service.spark.jvm import MODULE_OPTIONS
from tests.processes import command, descendants
from tests.run.process import until

_HOME = Path(pyspark.__file__).parent
_ENVIRONMENT = {"SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13"}
"""The environment that Spark's scripts set."""

_EXECUTOR = b"CoarseGrainedExecutorBackend"
_QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The processes run for only a minute, and with these options need half of the processor time to start."""

_BLIND = ("unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')
"""A prefix to a folder and a command: the command then sees the folder empty."""


@dataclass
class Worker:
    """A machine of the cluster."""

    process: subprocess.Popen[bytes]
    folder: Path

    def executors(self) -> list[int]:
        """Return the JVMs that run tasks on this machine."""
        return [pid for pid in descendants(self.process.pid) if _EXECUTOR in command(pid)]

    def kill_executors(self) -> None:
        """Send SIGKILL to all executors; the worker starts new ones."""
        for pid in self.executors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> list[int]:
        """Return all processes of this machine."""
        return [self.process.pid, *descendants(self.process.pid)]

    def kill(self) -> None:
        """Send SIGKILL to all processes of this machine."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class SparkCluster:
    """The cluster, as a context manager.

    It has `workers` machines with `cores` each, which do not see the contents of `hidden`.
    """

    def __init__(self, folder: Path, hidden: Path, workers: int = 2, cores: int = 1) -> None:
        self.folder = folder
        self._hidden = hidden
        self._wanted, self._cores = workers, cores
        self._port = free_port()
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[Worker] = []

    @property
    def url(self) -> str:
        """The value for `--master`."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        where = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(free_port())]
        self._master = self._start("master", "master.Master", where)
        self._await("master", "New state: ALIVE")
        for worker in [self._begin_worker() for _ in range(self._wanted)]:
            self._await_worker(worker)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers:
            worker.kill()
        if self._master is not None:
            self._master.kill()
            self._master.wait()

    def add(self) -> Worker:
        """Add a machine; return when the master knows it."""
        worker = self._begin_worker()
        self._await_worker(worker)
        return worker

    def _begin_worker(self) -> Worker:
        name, host = f"worker-{len(self.workers)}", f"127.0.0.{10 + len(self.workers)}"
        folder = self.folder / name
        (folder / "tmp").mkdir(parents=True)
        # Spark runs a speculative copy of a task only on another host.
        options = ["--host", host, "--cores", str(self._cores), "--memory", "2g", "--webui-port", "0"]
        own = {"TMPDIR": str(folder / "tmp"), "SPARK_LOCAL_DIRS": str(folder / "tmp")}
        arguments = [*options, "--work-dir", str(folder / "work"), self.url]
        process = self._start(name, "worker.Worker", arguments, own, _BLIND if os.geteuid() == 0 else ())
        self.workers.append(Worker(process, folder))
        return self.workers[-1]

    def _await_worker(self, worker: Worker) -> None:
        self._await(worker.folder.name, "Successfully registered with master")

    def _start(
        self,
        name: str,
        main: str,
        arguments: list[str],
        environment: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        options = ["-Xmx256m", *_QUICK, *MODULE_OPTIONS]
        command = [java(), "-cp", f"{_HOME}/jars/*", *options, f"org.apache.spark.deploy.{main}"]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*within, *([str(self._hidden)] if within else []), *command, *arguments],
                env={**os.environ, **_ENVIRONMENT, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, name: str, words: str) -> None:
        log = self.folder / f"{name}.log"
        until(lambda: words in log.read_text(errors="replace"), f"{words!r} of {name}", lambda: log.read_text()[-2000:])
