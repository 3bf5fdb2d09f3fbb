"""`python -m tests.cluster`: random losses during a job on a Spark cluster; `make cluster` calls it.

Each episode has a broker, a master, two machines with two cores each, and a job whose slow tasks Spark runs twice
(speculation). The driver is reached through a separate network, so that it can be disconnected from executors that
continue to read and write. The episode's seed chooses the losses. As in `tests.chaos`, the job must recover to the
right result by itself, and every change in every topic is checked against all earlier ones.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port
from tests.bench.compare import page
from tests.chaos.checks import CHECKS
from tests.chaos.network import Network
from tests.chaos.outcomes import Outcome, commit, gets_over, table, told
from tests.chaos.scene import stopped
from tests.chaos.stage import Stage
from tests.cluster.spark_cluster import SparkCluster, Worker
from tests.run.process import Rowkind

_LOSSES_OF_AN_EPISODE = 8
_FOUND = Path(".rowkind/cluster.jsonl")
_PAGE = Path("docs/explanation/tested-faults.md")
_DRIVER = "127.0.0.99"
_SETTINGS = """
spark.driver.host {driver}
spark.driver.bindAddress 127.0.0.1
spark.driver.port {rpc}
spark.driver.blockManager.port {blocks}
spark.network.timeout 40s
spark.network.timeoutInterval 10s
spark.executor.heartbeatInterval 2s
spark.speculation true
spark.speculation.quantile 0.5
spark.speculation.multiplier 1.1
spark.speculation.minTaskRuntime 200ms
"""
"""Spark settings. Spark gives up on a machine after 40 s without an answer, instead of two minutes."""


@dataclass
class Scene:
    """A job on a cluster.

    - `networks`: between the driver and all other processes. `settings`: the folder with Spark's settings.
    """

    stage: Stage
    cluster: SparkCluster
    networks: Sequence[Network]
    settings: Path
    random: random.Random
    job: Rowkind = field(init=False)

    def start(self, *arguments: str) -> None:
        """Start the job in place of the previous one, with a new temporary folder, as if on another machine."""
        here = Path(tempfile.mkdtemp(dir=self.stage.shop.folder / "driver"))
        own = {"SPARK_CONF_DIR": str(self.settings), "TMPDIR": str(here)}
        self.job = self.stage.job("--master", self.cluster.url, *arguments, **own)
        self.job.__enter__()

    def end(self) -> None:
        """Kill the driver."""
        self.job.kill()

    def inside(self) -> None:
        """Wait for a random moment, inside a batch or between two."""
        self.stage.happens(self.random.randrange(50, 400))
        time.sleep(self.random.choice((0.3, 2.0)) * self.random.random())

    @property
    def machine(self) -> Worker:
        """A random machine that is running."""
        return self.random.choice([each for each in self.cluster.workers if each.process.poll() is None])

    def away(self, seconds: float) -> None:
        """Sleep for a random time, at most this long, while something is unavailable."""
        time.sleep(self.random.uniform(0.5, seconds))


def kill_executor(scene: Scene) -> None:
    """SIGKILL to the executors of one machine."""
    scene.inside()
    scene.machine.kill_executors()


def kill_executors(scene: Scene) -> None:
    """SIGKILL to all executors."""
    scene.inside()
    for worker in scene.cluster.workers:
        worker.kill_executors()


def lose_machine(scene: Scene) -> None:
    """SIGKILL to all processes of one machine; a new machine replaces it."""
    scene.inside()
    scene.machine.kill()
    scene.away(5)
    scene.cluster.add()


def stop_machine(scene: Scene) -> None:
    """SIGSTOP to all processes of one machine, sometimes for longer than Spark's timeout."""
    scene.inside()
    with stopped(scene.machine.processes()):
        scene.away(scene.random.choice((10, 60)))


def cut_driver_off(scene: Scene) -> None:
    """Connections to the driver are reset, and new ones too, for some seconds."""
    scene.inside()
    with _harmed(scene, Network.cut):
        scene.away(10)


def silence_driver(scene: Scene) -> None:
    """Data to and from the driver stops without an error, sometimes for longer than Spark's timeout."""
    scene.inside()
    with _harmed(scene, Network.stop):
        scene.away(scene.random.choice((10, 60)))


def move_driver(scene: Scene) -> None:
    """The driver is killed, and starts with an empty temporary folder."""
    scene.inside()
    scene.job.kill()
    scene.start()


def drain(scene: Scene) -> None:
    """SIGTERM, and a new start."""
    scene.inside()
    ended = scene.stage.drain(scene.job)
    assert ended.code == 0, ended.error
    scene.start()


def rescale(scene: Scene) -> None:
    """The driver is killed, and state moves to another number of tasks."""
    scene.inside()
    scene.job.kill()
    scene.stage.change(parallelism=scene.random.choice((1, 2, 4)))
    scene.start("--upgrade")


Loss = Callable[[Scene], None]
LOSSES: dict[str, Loss] = {
    each.__name__: each
    for each in (
        kill_executor,
        kill_executors,
        lose_machine,
        stop_machine,
        cut_driver_off,
        silence_driver,
        move_driver,
        drain,
        rescale,
    )
}


@contextmanager
def _harmed(scene: Scene, harm: Callable[[Network], None]) -> Iterator[None]:
    for network in scene.networks:
        harm(network)
    try:
        yield
    finally:
        for network in scene.networks:
            network.mend()


def main() -> int:
    """Run the episodes, print the outcomes, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="Losses on a cluster.")
    parser.add_argument("--losses", type=int, default=24, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the next ones count on")
    parser.add_argument("--only", nargs="+", choices=LOSSES, default=list(LOSSES), help="kinds of losses")
    parser.add_argument("--found", type=Path, default=_FOUND, help="where outcomes are added, one JSON object a line")
    parser.add_argument("--write", action="store_true", help=f"put the table of all outcomes found so far into {_PAGE}")
    given = parser.parse_args()
    given.found.parent.mkdir(parents=True, exist_ok=True)
    at, outcomes = commit(), list[Outcome]()
    for seed in range(given.seed, given.seed + -(-given.losses // _LOSSES_OF_AN_EPISODE)):
        for outcome in episode(seed, given.only, min(_LOSSES_OF_AN_EPISODE, given.losses - len(outcomes)), at):
            outcomes.append(outcome)
            outcome.tell(given.found)
    print(table("By kind", outcomes, "tests.cluster").text())
    if given.write:
        page.write("losses", [table("By kind", told(given.found), "tests.cluster")], _PAGE)
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


def episode(seed: int, kinds: Sequence[str], count: int, at: str) -> Iterator[Outcome]:
    """Yield the outcomes of this number of losses of one job.

    Stop after the first loss that the job does not survive.
    """
    chance = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rowkind-cluster-")))
        for name in ("driver", "settings"):
            (folder / name).mkdir()
        broker = stack.enter_context(Broker(folder / "kafka"))
        ports = free_port(), free_port()
        settings = _SETTINGS.format(driver=_DRIVER, rpc=ports[0], blocks=ports[1])
        (folder / "settings" / "spark-defaults.conf").write_text(settings)
        networks = [stack.enter_context(Network(port, port, _DRIVER)) for port in ports]
        cluster = stack.enter_context(SparkCluster(folder / "cluster", folder / "driver", cores=2))
        stage = Stage(broker.bootstrap_servers, folder, seed, CHECKS)
        stack.callback(stage.close)
        scene = Scene(stage, cluster, networks, folder / "settings", chance)
        scene.start()
        stack.callback(scene.end)
        losses = [chance.choice(list(kinds)) for _ in range(count)]
        for number, loss in enumerate(["", *losses, "drain"]):
            harm = partial(LOSSES[loss], scene) if loss else None
            outcome = gets_over(stage, harm, lambda: scene.job, Outcome(seed, number, loss, commit=at))
            if outcome.wrong or number in range(1, count + 1):
                yield outcome
            if outcome.wrong:
                return


if __name__ == "__main__":
    sys.exit(main())
