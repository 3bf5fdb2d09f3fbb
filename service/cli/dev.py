"""`rowkind dev`: a local broker for trying jobs, a demo, and a source of changing data."""

from __future__ import annotations

from pathlib import Path

import click

from rowkind.service.cli.job_file import JOB, calls
from rowkind.service.cli.progress_output import showing_progress


@click.group(
    invoke_without_command=True,
    epilog=calls(
        "rowkind dev                          start a broker on port 9092 and a registry on 8081",
        "rowkind dev demo job.yaml",
    ),
)
@click.option("--port", default=9092, show_default=True, type=click.IntRange(1, 65535), help="Port of the broker.")
@click.option(
    "--registry-port",
    default=8081,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the registry; 0 for any free port.",
)
@click.option(
    "--data",
    default=Path(".rowkind"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder that keeps topics and schemas between runs.",
)
@click.pass_context
def dev(context: click.Context, port: int, registry_port: int, data: Path) -> None:
    """Run a Kafka broker and a schema registry on this machine. Use them to try jobs, and stop them with Ctrl-C."""
    if context.invoked_subcommand is None:
        from rowkind.service.dev.serve import serve  # noqa: PLC0415 -- loaded when it is needed

        # The first start downloads Kafka's jars, which takes a while and is logged.
        with showing_progress("lines"):
            serve(port, registry_port, data)


@dev.command(epilog=calls("rowkind dev demo job.yaml"))
@JOB
def demo(job_file: Path) -> None:
    """Run JOB over a changing order book, on a temporary broker. Its results are checked against DuckDB."""
    from rowkind.service.dev.demo.show import demo as show  # noqa: PLC0415 -- loaded when it is needed

    show(job_file)


@dev.command(epilog=calls("rowkind dev shop job.yaml"))
@JOB
def shop(job_file: Path) -> None:
    """Produce a changing order book to the Kafka that JOB reads. Use it to watch a job; stop it with Ctrl-C."""
    from rowkind.service.dev.demo.show import keep_shop  # noqa: PLC0415 -- loaded when it is needed

    keep_shop(job_file)
