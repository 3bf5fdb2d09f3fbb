"""`rowkind dev`: a broker for trying jobs, the demo, and something to watch."""

from __future__ import annotations

from pathlib import Path

import click

from rowkind.service.cli.job_file import JOB, calls
from rowkind.service.cli.progress_output import showing_progress


@click.group(
    invoke_without_command=True,
    epilog=calls(
        "rowkind dev                          a broker on port 9092, a registry on 8081", "rowkind dev demo job.yaml"
    ),
)
@click.option("--port", default=9092, show_default=True, type=click.IntRange(1, 65535), help="The broker's port.")
@click.option(
    "--registry-port", default=8081, show_default=True, type=click.IntRange(0, 65535), help="The registry's; 0: any."
)
@click.option(
    "--data",
    default=Path(".rowkind"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Keeps the topics and the folder of schemas between runs.",
)
@click.pass_context
def dev(context: click.Context, port: int, registry_port: int, data: Path) -> None:
    """Run a Kafka broker and a schema registry, for trying jobs on this machine. Ends with Ctrl-C."""
    if context.invoked_subcommand is None:
        from rowkind.service.dev.serve import serve  # noqa: PLC0415 -- loaded when it is needed

        # Kafka's jars are fetched the first time, which takes a while and is logged.
        with showing_progress("lines"):
            serve(port, registry_port, data)


@dev.command(epilog=calls("rowkind dev demo job.yaml"))
@JOB
def demo(job_file: Path) -> None:
    """Run JOB over a changing order book, on a broker of its own, and check its results against DuckDB."""
    from rowkind.service.dev.demo.show import demo as show  # noqa: PLC0415 -- loaded when it is needed

    show(job_file)


@dev.command(epilog=calls("rowkind dev shop job.yaml"))
@JOB
def shop(job_file: Path) -> None:
    """Change the order book that JOB reads, on JOB's own Kafka, until Ctrl-C: something to watch a job with."""
    from rowkind.service.dev.demo.show import keep_shop  # noqa: PLC0415 -- loaded when it is needed

    keep_shop(job_file)
