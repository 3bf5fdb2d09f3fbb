"""Commands that try a query without Kafka: `rowkind try | play`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, Literal

import click

from rowkind.errors import REFUSED, RowkindError
from rowkind.service.cli.completion import names
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, warn
from rowkind.service.cli.row_output import OutputForm, RowOutput, numbers, row_output, with_row

_POLL_SECONDS = 0.2
"""The interval at which `--watch` looks for changed files."""


class _WithoutPandas(MetaPathFinder):
    """Import hook that hides pandas. pyarrow and DuckDB would load it only to check types, which takes 0.5 s."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - Python's interface
        """Raise ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def hide_pandas() -> None:
    """Hide pandas from now on. It must not be called for jobs with Python functions, which may pass pandas objects."""
    sys.meta_path.insert(0, _WithoutPandas())


@dataclass(frozen=True)
class _Trial:
    """The options of `rowkind try`."""

    job_file: Path
    sink: str | None
    batch_rows: int
    engine: Literal["memory", "spark"]
    fold: bool
    open: bool
    form: OutputForm | None
    watch: bool

    def run(self, changes: Iterable[str], name: str) -> None:
        """Run the query over the lines of the file `name`, and print its result. Raises RowkindError."""
        job = load_job(self.job_file)
        # With --watch, the next version of the job may have functions.
        if self.engine == "memory" and not job.functions and not self.watch:
            hide_pandas()
        from rowkind.service.plan.pipeline import plan as plan_alone  # noqa: PLC0415 -- loaded when it is needed
        from rowkind.service.query import trial  # noqa: PLC0415 -- as above

        if self.sink is None and len(job.sinks) > 1:
            fail(f"{self.job_file} has several sinks: choose one with --sink ({', '.join(job.sinks)})", REFUSED)
        plan = plan_alone(job, self.sink or next(iter(job.sinks)))
        batches = trial.read(job, changes, name, self.batch_rows)
        if not self.open:
            trial.end(plan, batches)
        if unread := trial.unread(plan, batches):
            warn(f"the query of sink {plan.name} does not read table{'s'[: len(unread) > 1]} {', '.join(unread)}")
        if self.engine == "memory":
            run = trial.in_memory(warn)
        else:
            from rowkind.service.query.trial_on_spark import on_spark  # noqa: PLC0415 -- loads Spark

            run = on_spark(warn)
        columns = [column.name for column in plan.value.fields]
        columns = columns if self.fold else with_row(["batch", "op"], columns)
        shown = RowOutput(self.form, columns, numbers(plan.value) | {"batch"})
        for found in trial.results(job, plan, batches, run, fold=self.fold):
            shown.add(found)
        shown.flush()


@click.command(
    "try",
    epilog=calls(
        "rowkind try job.yaml --changes changes.jsonl",
        "rowkind try job.yaml --changes changes.jsonl --sink podium --fold",
        "rowkind try job.yaml --changes changes.jsonl --watch",
        'echo \'{"table": "orders", "op": "+I", "row": {"order_id": 1}}\' | rowkind try job.yaml --changes -',
    ),
)
@JOB
@click.option(
    "--changes",
    metavar="FILE",
    required=True,
    type=click.File(encoding="utf-8"),
    help='File of changes as JSON lines, {"table": "orders", "op": "+I", "row": {…}}; - for standard input.',
)
@click.option(
    "--sink",
    metavar="NAME",
    shell_complete=names("sinks"),
    help="Run the query of this sink. Required if the job has several sinks.",
)
@click.option("--batch-rows", metavar="N", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--engine", default="memory", show_default=True, type=click.Choice(["memory", "spark"]))
@click.option("--fold", is_flag=True, help="Print the rows that remain at the end instead of the changes.")
@click.option("--open", "open_", is_flag=True, help="Do not advance time at the end of the file.")
@click.option("--watch", is_flag=True, help="Run again whenever JOB or the file of changes is changed, until Ctrl-C.")
@row_output
def try_(
    job_file: Path,
    changes: Any,
    sink: str | None,
    batch_rows: int,
    engine: Literal["memory", "spark"],
    *,
    fold: bool,
    open_: bool,
    watch: bool,
    form: OutputForm | None,
) -> None:
    """Run a query over a file of changes, without Kafka.

    The changes are processed in order, in batches of N lines. Write decimals as strings, and timestamps as ISO-8601
    (UTC) or milliseconds since the epoch. The output has each change of the result or, with --fold, each row that
    remains.

    A line {"clock": "2026-01-31T12:00:00Z"} sets the clock for the changes after it. At the end of the file, all
    watermarks and PROCTIME() advance past all times, unless --open is given.

    With --watch, the command runs again whenever JOB or the file of changes is changed, until Ctrl-C.
    """
    trial = _Trial(job_file, sink, batch_rows, engine, fold, open_, form, watch)
    if not watch:
        trial.run(changes, changes.name)
        return
    file = Path(changes.name)
    if not file.is_file():
        raise click.UsageError("--watch needs a file of changes, not standard input")

    def again() -> None:
        with file.open(encoding="utf-8") as lines:
            trial.run(lines, str(file))

    _until_interrupted([job_file, file], again)


def _until_interrupted(files: list[Path], run: Callable[[], None]) -> None:
    """Run a function now and whenever a file is changed, until Ctrl-C. Each output replaces the one before."""
    try:
        while True:
            before = [_version(file) for file in files]
            click.clear()
            try:
                run()
            except (RowkindError, OSError) as error:
                warn(str(error))
            except SystemExit:
                pass  # The function has printed why.
            while before == [_version(file) for file in files]:
                time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        click.echo()


def _version(file: Path) -> tuple[int, int] | None:
    """Return a value that differs if the file is changed; None if there is no file, as while an editor replaces it."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@click.command(epilog=calls("rowkind play", "rowkind play job.yaml", "rowkind play job.yaml --port 0"))
@click.argument("job_file", metavar="[JOB]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--port",
    default=8090,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the page; 0 for any free port.",
)
def play(job_file: Path | None, port: int) -> None:
    """Serve a page on which you edit a job and its changes, and see the plan and the result at once.

    The page begins with JOB and the changes.jsonl in its folder, or with one of its examples. It does not write to
    these files. Its address contains what you have typed, so a copied link shows the same job and changes.

    Only this machine can open the page. Python functions and registries are not available on it. Stop it with Ctrl-C.
    """
    from rowkind.service.web.play.server import serve  # noqa: PLC0415 -- loaded when it is needed

    serve(job_file, port, lambda url: click.echo(f"The page is at {url} until Ctrl-C."))
    click.echo()  # Ends the line on which the terminal shows ^C.
