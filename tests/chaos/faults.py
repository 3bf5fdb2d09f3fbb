"""What can go wrong while a job runs, each as one function: it does its harm, and sees that a job runs afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.chaos.network import Network
from tests.chaos.scene import (
    Scene,
    drained,
    ended_with,
    fill_disk,
    harm_network,
    harm_state,
    kill_those,
    rebuilt,
    stop_those,
    stopped,
    tear_newest,
)
from tests.chaos.stage import SLOW
from tests.chaos.topic_faults import lose_progress, remake_result, remake_source

Fault = Callable[[Scene], None]


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
    kill_those(scene, lambda job: [job.java()])


def kill_worker(scene: Scene) -> None:
    """SIGKILL to the Python worker of a task that is at work."""
    scene.stage.happens(400)
    with suppress(ProcessLookupError):
        os.kill(scene.job.busy_worker(), signal.SIGKILL)


def kill_workers(scene: Scene) -> None:
    """SIGKILL to all Python workers, and what they are forked from."""
    kill_those(scene, lambda job: job.workers())


def kill_planner(scene: Scene) -> None:
    """SIGKILL to the process that says how far a batch goes."""
    kill_those(scene, lambda job: job.planners())


def kill_writer(scene: Scene) -> None:
    """SIGKILL to a process that writes to Kafka."""
    kill_those(scene, lambda job: job.writers()[:1])


def stop_main(scene: Scene) -> None:
    """SIGSTOP to the main process for some seconds."""
    stop_those(scene, lambda job: [job.pid])


def stop_java(scene: Scene) -> None:
    """SIGSTOP to Java for some seconds, as in a long collection of garbage."""
    stop_those(scene, lambda job: [job.java()])


def stop_workers(scene: Scene) -> None:
    """SIGSTOP to all workers for some seconds."""
    stop_those(scene, lambda job: job.workers())


def stop_planner(scene: Scene) -> None:
    """SIGSTOP to the process that says how far a batch goes."""
    stop_those(scene, lambda job: job.planners())


def stop_writers(scene: Scene) -> None:
    """SIGSTOP to the processes that write to Kafka."""
    stop_those(scene, lambda job: job.writers())


def stop_all(scene: Scene) -> None:
    """SIGSTOP to everything, as when a machine is suspended."""
    stop_those(scene, lambda job: job.members())


def restart_broker(scene: Scene) -> None:
    """A broker is stopped in order and started again."""
    scene.inside()
    broker = scene.broker
    broker.stop()
    time.sleep(scene.random.uniform(0, 4))
    broker.start()


def kill_broker(scene: Scene) -> None:
    """SIGKILL to a broker, and it is started again."""
    scene.inside()
    broker = scene.broker
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    broker.start()


def stop_broker(scene: Scene) -> None:
    """A broker stands still for up to 20 seconds."""
    scene.inside()
    with stopped([scene.broker.pid]):
        time.sleep(scene.random.uniform(1, 20))


def lose_broker(scene: Scene) -> None:
    """SIGKILL to a broker of several; the job has to go on without it, until it is there again."""
    scene.inside()
    broker = scene.broker
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    scene.stage.catch_up(scene.job)
    broker.start()


def cut_network(scene: Scene) -> None:
    """All connections between the job and the brokers are reset, for some seconds."""
    harm_network(scene, Network.cut)


def stop_network(scene: Scene) -> None:
    """Nothing gets through between the job and the brokers, for some seconds, and nobody is told."""
    harm_network(scene, Network.stop)


def slow_network(scene: Scene) -> None:
    """What passes between the job and the brokers takes its time."""
    delay = scene.random.uniform(0.02, 0.5)
    harm_network(scene, lambda network: network.slow(delay))


def drain(scene: Scene) -> None:
    """SIGTERM, and a new start."""
    scene.inside()
    drained(scene)
    scene.start()


def terminate_all(scene: Scene) -> None:
    """SIGTERM to every process, as from systemd."""
    scene.inside()
    scene.job.terminate_all()
    ended_with(scene, 0)
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
    tear_newest(scene.stage.checkpoint / "commits")
    scene.start()


def tear_offsets(scene: Scene) -> None:
    """All processes are killed, and the last note of Spark's on where a batch begins and ends is torn."""
    scene.inside()
    scene.job.kill()
    tear_newest(scene.stage.checkpoint / "offsets")
    scene.start()


def old_checkpoint(scene: Scene) -> None:
    """All processes are killed, and the checkpoint is put back as it was some batches ago."""
    stage = scene.stage
    stage.catch_up(scene.job)
    drained(scene)
    folder = stage.checkpoint.parent
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    scene.start()
    stage.happens(scene.random.randrange(1, 600))
    if scene.random.random() < 0.5:
        stage.catch_up(scene.job)
    scene.inside()
    scene.job.kill()
    shutil.rmtree(folder)
    copy.rename(folder)
    scene.start()


def tear_state(scene: Scene) -> None:
    """All processes are killed, and the newest file of a shard's state is torn."""
    harm_state(scene, lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 3]))


def lose_state(scene: Scene) -> None:
    """All processes are killed, and the newest file of a shard's state is gone."""
    harm_state(scene, Path.unlink)


def fill_checkpoint_disk(scene: Scene) -> None:
    """The disk with the checkpoint is full for some seconds."""
    fill_disk(scene, "checkpoint")


def fill_temporary_disk(scene: Scene) -> None:
    """The disk with temporary files, which RocksDB's are, is full for some seconds."""
    fill_disk(scene, "temporary")


def jump_clock(scene: Scene) -> None:
    """The machine's clock is set, twice within seconds, to any time from a week ago to almost an hour ahead."""
    # From an hour on, brokers take no records any more.
    for _ in range(2):
        scene.inside()
        scene.clock.set(scene.random.choice((0, -scene.random.randrange(604_800), scene.random.randrange(3_000))))


def tear_note(scene: Scene) -> None:
    """All processes are killed, and our own note on what the checkpoint is of is torn."""
    scene.inside()
    scene.job.kill()
    (scene.stage.checkpoint / "rowkind.json").write_text("{")
    scene.start()
    ended_with(scene, 2)
    scene.start("--upgrade")


def lose_checkpoint(scene: Scene) -> None:
    """All processes are killed, and the folder of the checkpoint is gone."""
    scene.inside()
    scene.job.kill()
    shutil.rmtree(scene.stage.checkpoint.parent)
    scene.start()
    ended_with(scene, 2)
    scene.start("--upgrade")


def reset_state(scene: Scene) -> None:
    """The job is stopped and everything rebuilt; as often as not, it is killed on the way."""
    scene.inside()
    drained(scene)
    rebuilt(scene, "--reset-state")


def change_query(scene: Scene) -> None:
    """The job is stopped, the query of a sink is another one, and it is rebuilt; maybe killed on the way."""
    scene.inside()
    drained(scene)
    scene.stage.change_query()
    rebuilt(scene, "--upgrade")


def rescale(scene: Scene) -> None:
    """All processes are killed, and state moves to another number of partitions; maybe killed on the way."""
    scene.inside()
    scene.job.kill()
    scene.stage.change(parallelism=scene.random.choice((1, 2, 4)))
    scene.start("--upgrade")
    if scene.random.random() < 0.5:
        scene.stage.await_either(scene.job, "INFO")
        time.sleep(scene.random.uniform(0, 10))
        scene.job.kill()
        scene.start("--upgrade")


def add_partition(scene: Scene) -> None:
    """A topic that is read gets another partition."""
    # Rows of a key go elsewhere from now on, which nobody may overtake.
    scene.stage.catch_up(scene.job)
    scene.stage.shop.more_partitions(scene.random.choice(("orders", "payments")))


def lose_rows(scene: Scene) -> None:
    """Retention takes rows that the job has not read; the job is told to go on, and the rows come again."""
    stage = scene.stage
    stage.catch_up(scene.job)
    drained(scene)
    before = len(stage.shop.events)
    stage.happens(scene.random.randrange(50, 300))
    tables = sorted({event.table for event in stage.shop.events[before:]})
    for table in tables:
        stage.shop.forget(table)
    scene.start()
    ended_with(scene, 1)
    assert "on_lost" in scene.job.error, scene.job.error
    stage.tolerate_losses(tolerate=True)
    stage.shop.say(stage.shop.events[before:])
    scene.start()
    stage.await_words(scene.job, ": writing to topic")
    stage.tolerate_losses(tolerate=False)


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
        lose_broker,
        cut_network,
        stop_network,
        slow_network,
        drain,
        terminate_all,
        second_instance,
        tear_commit,
        tear_offsets,
        old_checkpoint,
        tear_state,
        lose_state,
        fill_checkpoint_disk,
        fill_temporary_disk,
        jump_clock,
        tear_note,
        lose_checkpoint,
        reset_state,
        change_query,
        rescale,
        add_partition,
        lose_rows,
        remake_result,
        remake_source,
        lose_progress,
    )
}

_NEED_ALL_ROWS = {
    "old_checkpoint",
    "tear_state",
    "lose_state",
    "tear_note",
    "lose_checkpoint",
    "reset_state",
    "change_query",
    "remake_result",
    "remake_source",
    "lose_progress",
}
"""After these, a job may read again what it had read: all of it must be there, and rows of a key in one partition."""


def drawn(scene: Scene, kinds: Iterable[str], count: int) -> Iterator[str]:
    """So many faults, of those that this scene is made for."""
    impossible = {f"fill_{disk}_disk" for disk in ("checkpoint", "temporary") if disk not in scene.disks}
    if len(scene.brokers.all) == 1:
        impossible.add("lose_broker")
    for _ in range(count):
        fault = scene.random.choice([kind for kind in kinds if kind not in impossible])
        if fault in {"lose_rows", "add_partition"}:
            impossible |= _NEED_ALL_ROWS
        yield fault
