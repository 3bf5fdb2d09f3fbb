"""One broker or a cluster of three, and the network through which a job reaches them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rowkind.service.dev.broker import Broker
from rowkind.service.machine.ports import free_port
from tests.chaos.network import Network


class Brokers:
    """A context manager that starts `count` brokers.

    - `servers`: their addresses for the test itself. `far_servers`: their addresses through the `networks`, for the
      job.
    """

    def __init__(self, folder: Path, count: int) -> None:
        nodes = range(1, count + 1)
        near, far, job, controllers = ([free_port() for _ in nodes] for _ in range(4))
        quorum = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(nodes, controllers, strict=True))
        enough = min(2, count)
        self.servers, self.far_servers = (",".join(f"127.0.0.1:{port}" for port in ports) for ports in (near, far))
        self.networks = [Network(*ports) for ports in zip(far, job, strict=True)]
        self.all = [
            Broker(
                folder / str(node),
                near[place],
                {
                    "node.id": node,
                    "controller.quorum.voters": quorum,
                    "listeners": f"PLAINTEXT://127.0.0.1:{near[place]},JOB://127.0.0.1:{job[place]},"
                    f"CONTROLLER://127.0.0.1:{controllers[place]}",
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{near[place]},JOB://127.0.0.1:{far[place]}",
                    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,JOB:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "inter.broker.listener.name": "PLAINTEXT",
                    "default.replication.factor": count,
                    "min.insync.replicas": enough,
                    "offsets.topic.replication.factor": count,
                    "transaction.state.log.replication.factor": count,
                    "transaction.state.log.min.isr": enough,
                },
            )
            for place, node in enumerate(nodes)
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for network in self.networks:
            self._stack.enter_context(network)
        for broker in self.all:
            self._stack.callback(broker.stop)
        # No broker answers before most of them are running.
        with ThreadPoolExecutor() as together:
            list(together.map(Broker.start, self.all))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
