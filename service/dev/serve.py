"""`rowkind dev`: a broker and a folder of schemas that stay between runs."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from rowkind.service.dev.broker import Broker


def serve(port: int, data: Path) -> None:
    """Run a broker on `port`, with everything it keeps under `data`, until it is signalled. Raises BrokerStartError."""
    schemas = data / "schemas"
    schemas.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with Broker(data / "kafka", port) as broker:
        click.echo("Kafka runs; in a job file:\n")
        click.echo(f'  kafka: {{bootstrap.servers: "{broker.bootstrap_servers}"}}')
        click.echo(f"  registry: {{folder: {schemas.resolve()}}}\n")
        click.echo("Ctrl-C ends it; topics and schemas stay.")
        stop.wait()
