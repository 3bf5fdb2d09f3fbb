"""Faults of a running job. Each function causes one fault and makes sure that a job is running afterwards."""

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
    """Send SIGKILL to the `rowkind run` process; Java and the workers detect it themselves."""
    scene.inside()
    before = scene.job
    before.kill_driver()
    scene.start()
    scene.stage.await_words(scene.job, "status, metrics and health")
    before.kill()


def kill_all(scene: Scene) -> None:
    """Send SIGKILL to all processes at once, as if a container were lost."""
    scene.inside()
    scene.job.kill()
    scene.start()


def kill_java(scene: Scene) -> None:
    """Send SIGKILL to Spark's JVM."""
    kill_those(scene, lambda job: [job.java()])


def kill_worker(scene: Scene) -> None:
    """Send SIGKILL to the Python worker of a running task."""
    scene.stage.happens(400)
    with suppress(ProcessLookupError):
        os.kill(scene.job.busy_worker(), signal.SIGKILL)


def kill_workers(scene: Scene) -> None:
    """Send SIGKILL to all Python workers and to the process that forks them."""
    kill_those(scene, lambda job: job.workers())


def kill_planner(scene: Scene) -> None:
    """Send SIGKILL to the process that plans the range of a batch."""
    kill_those(scene, lambda job: job.planners())


def kill_writer(scene: Scene) -> None:
    """Send SIGKILL to a process that writes to Kafka."""
    kill_those(scene, lambda job: job.writers()[:1])


def stop_main(scene: Scene) -> None:
    """Send SIGSTOP to the main process for some seconds."""
    stop_those(scene, lambda job: [job.pid])


def stop_java(scene: Scene) -> None:
    """Send SIGSTOP to Java for some seconds, like a long garbage collection."""
    stop_those(scene, lambda job: [job.java()])


def stop_workers(scene: Scene) -> None:
    """Send SIGSTOP to all workers for some seconds."""
    stop_those(scene, lambda job: job.workers())


def stop_planner(scene: Scene) -> None:
    """Send SIGSTOP to the process that plans the range of a batch."""
    stop_those(scene, lambda job: job.planners())


def stop_writers(scene: Scene) -> None:
    """Send SIGSTOP to the processes that write to Kafka."""
    stop_those(scene, lambda job: job.writers())


def stop_all(scene: Scene) -> None:
    """Send SIGSTOP to everything, as if the machine were suspended."""
    stop_those(scene, lambda job: job.members())


def restart_broker(scene: Scene) -> None:
    """Stop a broker cleanly and start it again."""
    scene.inside()
    broker = scene.broker
    broker.stop()
    time.sleep(scene.random.uniform(0, 4))
    broker.start()


def kill_broker(scene: Scene) -> None:
    """Send SIGKILL to a broker and start it again."""
    scene.inside()
    broker = scene.broker
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    broker.start()


def stop_broker(scene: Scene) -> None:
    """Suspend a broker for up to 20 seconds."""
    scene.inside()
    with stopped([scene.broker.pid]):
        time.sleep(scene.random.uniform(1, 20))


def lose_broker(scene: Scene) -> None:
    """Send SIGKILL to one of several brokers; the job must continue without it until it is started again."""
    scene.inside()
    broker = scene.broker
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()
    scene.stage.catch_up(scene.job)
    broker.start()


def cut_network(scene: Scene) -> None:
    """Reset all connections between the job and the brokers for some seconds."""
    harm_network(scene, Network.cut)


def stop_network(scene: Scene) -> None:
    """Silently drop all traffic between the job and the brokers for some seconds."""
    harm_network(scene, Network.stop)


def slow_network(scene: Scene) -> None:
    """Delay all traffic between the job and the brokers."""
    delay = scene.random.uniform(0.02, 0.5)
    harm_network(scene, lambda network: network.slow(delay))


def drain(scene: Scene) -> None:
    """Send SIGTERM, and start the job again."""
    scene.inside()
    drained(scene)
    scene.start()


def terminate_all(scene: Scene) -> None:
    """Send SIGTERM to every process, as systemd does."""
    scene.inside()
    scene.job.terminate_all()
    ended_with(scene, 0)
    scene.start()


def second_instance(scene: Scene) -> None:
    """Start the job a second time while it runs; the later run continues."""
    scene.inside()
    before = scene.job
    scene.start()
    assert before.ended(SLOW).code == 1, before.error
    before.kill()


def tear_commit(scene: Scene) -> None:
    """Kill all processes, and truncate Spark's newest commit file of a batch."""
    scene.inside()
    scene.job.kill()
    tear_newest(scene.stage.checkpoint / "commits")
    scene.start()


def tear_offsets(scene: Scene) -> None:
    """Kill all processes, and truncate Spark's newest offset file of a batch."""
    scene.inside()
    scene.job.kill()
    tear_newest(scene.stage.checkpoint / "offsets")
    scene.start()


def old_checkpoint(scene: Scene) -> None:
    """Kill all processes, and restore the checkpoint of some batches ago."""
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
    """Kill all processes, and truncate the newest state file of a shard."""
    harm_state(scene, lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 3]))


def lose_state(scene: Scene) -> None:
    """Kill all processes, and delete the newest state file of a shard."""
    harm_state(scene, Path.unlink)


def fill_checkpoint_disk(scene: Scene) -> None:
    """Fill the checkpoint's disk for some seconds."""
    fill_disk(scene, "checkpoint")


def fill_temporary_disk(scene: Scene) -> None:
    """Fill the disk with temporary files, among them RocksDB's, for some seconds."""
    fill_disk(scene, "temporary")


def jump_clock(scene: Scene) -> None:
    """Set the machine's clock twice within seconds, from a week back to almost an hour ahead."""
    # Brokers refuse records that are an hour or more ahead.
    for _ in range(2):
        scene.inside()
        scene.clock.set(scene.random.choice((0, -scene.random.randrange(604_800), scene.random.randrange(3_000))))


def tear_note(scene: Scene) -> None:
    """Kill all processes, and damage Rowkind's checkpoint metadata."""
    scene.inside()
    scene.job.kill()
    (scene.stage.checkpoint / "rowkind.json").write_text("{")
    scene.start()
    ended_with(scene, 2)
    scene.start("--upgrade")


def lose_checkpoint(scene: Scene) -> None:
    """Kill all processes, and delete the checkpoint."""
    scene.inside()
    scene.job.kill()
    shutil.rmtree(scene.stage.checkpoint.parent)
    scene.start()
    ended_with(scene, 2)
    scene.start("--upgrade")


def reset_state(scene: Scene) -> None:
    """Stop the job and rebuild everything; in half of the cases it is killed meanwhile."""
    scene.inside()
    drained(scene)
    rebuilt(scene, "--reset-state")


def change_query(scene: Scene) -> None:
    """Stop the job, change a sink's query, and rebuild the sink; in half of the cases the job is killed meanwhile."""
    scene.inside()
    drained(scene)
    scene.stage.change_query()
    rebuilt(scene, "--upgrade")


def rescale(scene: Scene) -> None:
    """Kill all processes, and move state to another number of partitions; sometimes kill the job meanwhile."""
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
    """Add a partition to a source topic."""
    # Rows of a key may go to another partition from now on, and must not overtake earlier ones.
    scene.stage.catch_up(scene.job)
    scene.stage.shop.more_partitions(scene.random.choice(("orders", "payments")))


def lose_rows(scene: Scene) -> None:
    """Let retention delete rows that the job has not read; set the job to continue, and send the rows again."""
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
"""After these a job may read its sources again: they must be complete, with all rows of a key in one partition."""


def drawn(scene: Scene, kinds: Iterable[str], count: int) -> Iterator[str]:
    """Yield so many random faults that are possible in this scene."""
    impossible = {f"fill_{disk}_disk" for disk in ("checkpoint", "temporary") if disk not in scene.disks}
    if len(scene.brokers.all) == 1:
        impossible.add("lose_broker")
    for _ in range(count):
        fault = scene.random.choice([kind for kind in kinds if kind not in impossible])
        if fault in {"lose_rows", "add_partition"}:
            impossible |= _NEED_ALL_ROWS
        yield fault
