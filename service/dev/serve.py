"""`rowkind dev` and `rowkind run --dev`: a broker and a registry that keep their topics and schemas between runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rowkind.avro.registry import FolderRegistry
from rowkind.service.dev.broker import Broker
from rowkind.service.dev.jars import BrokerStartError
from rowkind.service.dev.registry_server import RegistryServer
from rowkind.service.job.errors import JobError, Problem
from rowkind.service.job.model import Job


def serve(port: int, registry_port: int, data: Path) -> None:
    """Run a broker and a registry on these ports, with their data under `data`, until SIGINT or SIGTERM.

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
            f"Port {registry_port} is in use: choose another with --registry-port, or stop the process that uses it."
        ) from None
    with server as registry, Broker(data / "kafka", port) as broker:
        click.echo("Kafka and a schema registry are running. Use them in a job file:\n")
        click.echo(f'  kafka: {{bootstrap.servers: "{broker.bootstrap_servers}"}}')
        click.echo(f'  registry: {{url: "{registry.url}"}}\n')
        click.echo(f"Ctrl-C stops them. Topics and schemas are kept; the schemas are in {schemas.resolve()}.")
        stop.wait()


@contextmanager
def with_own_broker(job: Job, data: Path) -> Iterator[Job]:
    """Start a broker for a job without a `kafka` section, and yield the job as one that uses it.

    Topics and schemas are kept under `data`. Raises JobError for a job with a `kafka` section, and BrokerStartError.
    """
    if job.kafka is not None:
        text = "the job names its brokers, so --dev cannot start one for it: remove `kafka`, or --dev"
        raise JobError(str(job.file), [Problem(job.line("kafka"), "kafka", text)])
    schemas = data / "schemas"
    schemas.mkdir(parents=True, exist_ok=True)
    click.echo(f"Starting a Kafka broker, whose topics are kept in {data.resolve()}.", err=True)
    with Broker(data / "kafka") as broker:
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        yield job.model_copy(update={"kafka": kafka, "registry": job.registry or {"folder": str(schemas)}})
