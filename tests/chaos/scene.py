"""The scene of faults: a stage with its own brokers and a job, and ways to disturb it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rowkind.service.dev.broker import Broker
from tests.chaos.brokers import Brokers
from tests.chaos.clock import Clock
from tests.chaos.network import Network
from tests.chaos.stage import SLOW, Stage
from tests.run.process import Rowkind


@dataclass
class Scene:
    """A stage with its own brokers, and the job that runs on it.

    - `disks`: its folders of limited size, by use.
    - `clock`: the clock of the job's processes.
    """

    stage: Stage
    brokers: Brokers
    random: random.Random
    disks: Mapping[str, Path]
    clock: Clock
    job: Rowkind = field(init=False)

    def start(self, *arguments: str) -> None:
        """Start the job in place of the previous one."""
        self.job = self.stage.job(*arguments)
        self.job.__enter__()

    def end(self) -> None:
        """Kill the running job."""
        self.job.kill()

    @property
    def broker(self) -> Broker:
        """Return a random broker."""
        return self.random.choice(self.brokers.all)

    def inside(self) -> None:
        """Wait for a random moment, inside a batch or between two."""
        self.stage.happens(self.random.randrange(50, 400))
        time.sleep(self.random.choice((0.3, 2.0)) * self.random.random())


def kill_those(scene: Scene, which: Callable[[Rowkind], Iterable[int]]) -> None:
    """Send SIGKILL to some of the job's processes."""
    scene.inside()
    signal_all(which(scene.job), signal.SIGKILL)


def stop_those(scene: Scene, which: Callable[[Rowkind], Iterable[int]]) -> None:
    """Send SIGSTOP to some of the job's processes for some seconds."""
    scene.inside()
    with stopped(which(scene.job)):
        time.sleep(scene.random.uniform(0.5, 15))


def harm_network(scene: Scene, harm: Callable[[Network], None]) -> None:
    """Disturb all networks for some seconds."""
    scene.inside()
    for network in scene.brokers.networks:
        harm(network)
    time.sleep(scene.random.uniform(0.5, 20))
    for network in scene.brokers.networks:
        network.mend()


def harm_state(scene: Scene, harm: Callable[[Path], object]) -> None:
    """Kill all processes, and damage the newest state file."""
    scene.inside()
    scene.job.kill()
    shards = [folder for folder in scene.stage.checkpoint.glob("state/*/*") if folder.name.isdigit()]
    files = [file for folder in shards for file in folder.rglob("[0-9]*") if file.is_file()]
    if files:
        harm(max(files, key=lambda file: file.stat().st_mtime))
    scene.start()
    if_refused(scene, "--reset-state")


def fill_disk(scene: Scene, disk: str) -> None:
    """Fill a disk for some seconds; a job that ends because of it must report it, and is started again."""
    ballast = scene.disks[disk] / "ballast"
    scene.inside()
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    scene.stage.happens(100)
    time.sleep(scene.random.uniform(2, 10))
    ballast.unlink()
    if not scene.job.running:
        assert "Traceback" not in scene.job.error, scene.job.error
        scene.start()


@contextmanager
def stopped(processes: Iterable[int]) -> Iterator[None]:
    """Suspend processes while in the context."""
    stopped = list(processes)
    signal_all(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(stopped, signal.SIGCONT)


def signal_all(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def drained(scene: Scene) -> None:
    """Send SIGTERM, and assert that the job ends with exit code 0."""
    scene.job.terminate()
    ended_with(scene, 0)


def ended_with(scene: Scene, code: int) -> None:
    """Assert that the job ends by itself with this exit code and without a traceback."""
    ended = scene.job.ended(SLOW)
    assert ended.code == code, ended.error
    assert "Traceback" not in ended.error, ended.error


def rebuilt(scene: Scene, option: str) -> None:
    """Start the job with an option that rebuilds something; half of the time, kill it meanwhile and start it again."""
    scene.start(option)
    if scene.random.random() < 0.5:
        scene.stage.while_filling(scene.job)
        scene.job.kill()
        scene.start(option)


def tear_newest(log: Path) -> None:
    """Truncate the newest file of one of Spark's logs."""
    newest = max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name), default=None)
    if newest is not None:
        text = newest.read_bytes()
        newest.write_bytes(text[: len(text) // 3])


def if_refused(scene: Scene, option: str) -> None:
    """If the job refuses to start and names this option, start it with the option."""
    scene.stage.await_either(scene.job, ": writing to topic")
    if not scene.job.running:
        ended_with(scene, 2)
        assert option in scene.job.error, scene.job.error
        scene.start(option)
