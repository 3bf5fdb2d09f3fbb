"""Commands for trying Rowkind: `rowkind dev`, a local broker and a source of changing data, and `rowkind demo`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from rowkind.service.cli.job_file import JOB, calls
from rowkind.service.cli.progress_output import showing_progress


@click.group(
    invoke_without_command=True,
    epilog=calls(
        "rowkind dev                          start a broker on port 9092 and a registry on 8081",
        "rowkind dev shop job.yaml",
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


@dev.command(epilog=calls("rowkind dev shop job.yaml"))
@JOB
def shop(job_file: Path) -> None:
    """Produce a changing order book to the Kafka that JOB reads. Use it to watch a job; stop it with Ctrl-C."""
    from rowkind.service.dev.demo.show import keep_shop  # noqa: PLC0415 -- loaded when it is needed

    keep_shop(job_file)


@click.command(epilog=calls("rowkind demo"))
def demo() -> None:
    """Run a job over changing orders and payments, and show its results and its status page.

    The job is the example orders-payments. Its Kafka broker runs on this machine too, and needs Java 17 or newer. The
    first start downloads Kafka (44 MB) to ~/.cache/rowkind. Nothing else is left when the demo has ended.

    On a terminal, rows keep changing until Ctrl-C. If the output is not a terminal, the demo ends when it has compared
    the results with those of the same SQL in DuckDB.
    """
    from rowkind.service.dev.demo.show import demo as show  # noqa: PLC0415 -- loaded when it is needed

    stays = sys.stdout.isatty()
    # The broker's download logs its progress.
    with showing_progress("lines"):
        show(_on_terminal() if stays else _in_lines(), 0.5 if stays else 3, stays=stays)


@contextmanager
def _on_terminal() -> Iterator[Callable[[list[str]], None]]:
    """Yield a function that shows lines in place of those before."""
    from rich.live import Live  # noqa: PLC0415 -- loaded when it is needed
    from rich.text import Text  # noqa: PLC0415 -- as above

    with Live(auto_refresh=False) as live:
        yield lambda lines: live.update(Text("\n".join(["", *lines]), no_wrap=True, overflow="ellipsis"), refresh=True)


@contextmanager
def _in_lines() -> Iterator[Callable[[list[str]], None]]:
    yield lambda lines: click.echo("\n".join(["", *lines]))
