"""`rowkind dev`: a broker and a registry of schemas, whose topics and schemas stay between runs."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.jars import BrokerStartError
from rowkind.service.dev.registry_server import RegistryServer


def serve(port: int, registry_port: int, data: Path) -> None:
    """Run a broker and a registry on these ports, with all that they keep under `data`, until it is signalled.

    Raises BrokerStartError.
    """
    schemas = data / "schemas"
    schemas.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = RegistryServer(FolderRegistry(schemas), registry_port)
    except OSError:
        raise BrokerStartError(
            f"Port {registry_port} is taken: choose another with --registry-port, or end what listens there."
        ) from None
    with server as registry, Broker(data / "kafka", port) as broker:
        click.echo("Kafka and a schema registry run; in a job file:\n")
        click.echo(f'  kafka: {{bootstrap.servers: "{broker.bootstrap_servers}"}}')
        click.echo(f'  registry: {{url: "{registry.url}"}}\n')
        click.echo(f"Ctrl-C ends them. Topics stay, and schemas, in {schemas.resolve()}.")
        stop.wait()
