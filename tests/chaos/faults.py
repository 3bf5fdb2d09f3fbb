"""What can go wrong while a job runs, each as one function: it does its harm, and sees that a job runs afterwards."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rowkind.service.dev.broker import Broker
from tests.chaos.stage import SLOW, Stage
from tests.run.process import Rowkind

Fault = Callable[["Scene"], None]


@dataclass
class Scene:
    """A stage with a broker of its own, and the job that runs on it."""

    stage: Stage
    broker: Broker
    random: random.Random
    job: Rowkind = field(init=False)

    def start(self, *arguments: str) -> None:
        """Start the job, in the place of the one before."""
        self.job = self.stage.job(*arguments)
        self.job.__enter__()

    def end(self) -> None:
        """Kill whatever runs."""
        self.job.kill()

    def inside(self) -> None:
        """Wait for some moment, which lies inside a batch or between two."""
        self.stage.happens(self.random.randrange(50, 400))
        time.sleep(self.random.choice((0.3, 2.0)) * self.random.random())


def kill_main(scene: Scene) -> None:
    """SIGKILL to the process that is `rowkind run`; Java and the workers find out by themselves."""
    scene.inside()
    before = scene.job
    before.kill_driver()
    scene.start()
    scene.stage.await_words(scene.job, "status, metrics and health")
    before.kill()


def kill_all(scene: Scene) -> None:
    """SIGKILL to all processes at once, as when a container is lost."""
    scene.inside()
    scene.job.kill()
    scene.start()


def kill_java(scene: Scene) -> None:
    """SIGKILL to Spark's JVM."""
    _kill(scene, lambda job: [job.java()])


def kill_worker(scene: Scene) -> None:
    """SIGKILL to the Python worker of a task that is at work."""
    scene.stage.happens(400)
    with suppress(ProcessLookupError):
        os.kill(scene.job.busy_worker(), signal.SIGKILL)


def kill_workers(scene: Scene) -> None:
    """SIGKILL to all Python workers, and what they are forked from."""
    _kill(scene, lambda job: job.workers())


def kill_planner(scene: Scene) -> None:
    """SIGKILL to the process that says how far a batch goes."""
    _kill(scene, lambda job: job.planners())


def kill_writer(scene: Scene) -> None:
    """SIGKILL to a process that writes to Kafka."""
    _kill(scene, lambda job: job.writers()[:1])


def stop_main(scene: Scene) -> None:
    """SIGSTOP to the main process for some seconds."""
    _stop(scene, lambda job: [job.pid])


def stop_java(scene: Scene) -> None:
    """SIGSTOP to Java for some seconds, as in a long collection of garbage."""
    _stop(scene, lambda job: [job.java()])


def stop_workers(scene: Scene) -> None:
    """SIGSTOP to all workers for some seconds."""
    _stop(scene, lambda job: job.workers())


def stop_planner(scene: Scene) -> None:
    """SIGSTOP to the process that says how far a batch goes."""
    _stop(scene, lambda job: job.planners())


def stop_writers(scene: Scene) -> None:
    """SIGSTOP to the processes that write to Kafka."""
    _stop(scene, lambda job: job.writers())


def stop_all(scene: Scene) -> None:
    """SIGSTOP to everything, as when a machine is suspended."""
    _stop(scene, lambda job: job.members())


def restart_broker(scene: Scene) -> None:
    """The broker is stopped in order and started again."""
    scene.inside()
    scene.broker.stop()
    time.sleep(scene.random.uniform(0, 4))
    scene.broker.start()


def kill_broker(scene: Scene) -> None:
    """SIGKILL to the broker, and it is started again."""
    scene.inside()
    os.kill(scene.broker.pid, signal.SIGKILL)
    scene.broker.stop()
    scene.broker.start()


def stop_broker(scene: Scene) -> None:
    """The broker stands still for up to 20 seconds."""
    scene.inside()
    with _stopped([scene.broker.pid]):
        time.sleep(scene.random.uniform(1, 20))


def drain(scene: Scene) -> None:
    """SIGTERM, and a new start."""
    scene.inside()
    _drain(scene)
    scene.start()


def terminate_all(scene: Scene) -> None:
    """SIGTERM to every process, as from systemd."""
    scene.inside()
    scene.job.terminate_all()
    _ended(scene, 0)
    scene.start()


def second_instance(scene: Scene) -> None:
    """The job is started once more while it runs; the later one goes on."""
    scene.inside()
    before = scene.job
    scene.start()
    assert before.ended(SLOW).code == 1, before.error
    before.kill()


def tear_commit(scene: Scene) -> None:
    """All processes are killed, and the last note of Spark's that a batch has ended is torn."""
    scene.inside()
    scene.job.kill()
    _tear(scene.stage.checkpoint / "commits")
    scene.start()


def tear_offsets(scene: Scene) -> None:
    """All processes are killed, and the last note of Spark's on where a batch begins and ends is torn."""
    scene.inside()
    scene.job.kill()
    _tear(scene.stage.checkpoint / "offsets")
    scene.start()
    _if_refused(scene, "--reset-state")


def tear_note(scene: Scene) -> None:
    """All processes are killed, and our own note on what the checkpoint is of is torn."""
    scene.inside()
    scene.job.kill()
    (scene.stage.checkpoint / "rowkind.json").write_text("{")
    scene.start()
    _ended(scene, 2)
    scene.start("--upgrade")


def lose_checkpoint(scene: Scene) -> None:
    """All processes are killed, and the folder of the checkpoint is gone."""
    scene.inside()
    scene.job.kill()
    shutil.rmtree(scene.stage.checkpoint.parent)
    scene.start()
    _ended(scene, 2)
    scene.start("--upgrade")


def reset_state(scene: Scene) -> None:
    """The job is stopped and everything rebuilt; as often as not, it is killed on the way."""
    scene.inside()
    _drain(scene)
    _rebuilt(scene, "--reset-state")


def change_query(scene: Scene) -> None:
    """The job is stopped, the query of a sink is another one, and it is rebuilt; maybe killed on the way."""
    scene.inside()
    _drain(scene)
    scene.stage.change_query()
    _rebuilt(scene, "--upgrade")


def add_partition(scene: Scene) -> None:
    """A topic that is read gets another partition."""
    # Rows of a key go elsewhere from now on, which nobody may overtake.
    scene.stage.catch_up(scene.job)
    scene.stage.shop.more_partitions(scene.random.choice(("orders", "payments")))


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        kill_main,
        kill_all,
        kill_java,
        kill_worker,
        kill_workers,
        kill_planner,
        kill_writer,
        stop_main,
        stop_java,
        stop_workers,
        stop_planner,
        stop_writers,
        stop_all,
        restart_broker,
        kill_broker,
        stop_broker,
        drain,
        terminate_all,
        second_instance,
        tear_commit,
        tear_offsets,
        tear_note,
        lose_checkpoint,
        reset_state,
        change_query,
        add_partition,
    )
}


def _kill(scene: Scene, which: Callable[[Rowkind], Iterable[int]]) -> None:
    scene.inside()
    _signal(which(scene.job), signal.SIGKILL)


def _stop(scene: Scene, which: Callable[[Rowkind], Iterable[int]]) -> None:
    scene.inside()
    with _stopped(which(scene.job)):
        time.sleep(scene.random.uniform(0.5, 15))


@contextmanager
def _stopped(processes: Iterable[int]) -> Iterator[None]:
    stopped = list(processes)
    _signal(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _drain(scene: Scene) -> None:
    scene.job.terminate()
    _ended(scene, 0)


def _ended(scene: Scene, code: int) -> None:
    ended = scene.job.ended(SLOW)
    assert ended.code == code, ended.error
    assert "Traceback" not in ended.error, ended.error


def _rebuilt(scene: Scene, option: str) -> None:
    scene.start(option)
    if scene.random.random() < 0.5:
        scene.stage.while_filling(scene.job)
        scene.job.kill()
        scene.start(option)


def _tear(log: Path) -> None:
    newest = max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name), default=None)
    if newest is not None:
        text = newest.read_bytes()
        newest.write_bytes(text[: len(text) // 3])


def _if_refused(scene: Scene, option: str) -> None:
    """If the job says that it cannot go on, and how it can, do that."""
    scene.stage.await_either(scene.job, ": writing to topic")
    if not scene.job.running:
        _ended(scene, 2)
        assert option in scene.job.error, scene.job.error
        scene.start(option)
