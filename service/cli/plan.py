"""Commands that need no broker: `rowkind check | explain | try | import | schema | examples`."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rowkind.errors import FAILED, REFUSED
from rowkind.quantities import counted
from rowkind.service.cli.completion import names
from rowkind.service.cli.job_file import JOB, calls, fail, known, load_job, planned_queries, warn
from rowkind.service.cli.row_output import OutputForm, RowOutput, numbers, row_output

if TYPE_CHECKING:
    from rowkind.service.plan.explain.render import Format


@click.command(epilog=calls("rowkind check job.yaml", "rowkind check flink-script.sql"))
@JOB
def check(job_file: Path) -> None:
    """Read the job and plan its queries. No broker is needed.

    For a Flink SQL script (*.sql), print the job file that `rowkind import` would write.
    """
    from rowkind.service.plan.lints import lints  # noqa: PLC0415 -- loaded when it is needed

    if job_file.suffix.lower() == ".sql":
        _import(job_file, None)
        return
    job = load_job(job_file)
    planned_queries(job)
    found = list(lints(job))
    for each in found:
        warn(each)
    warnings = f"{counted(len(found), 'warning')}, see above" if found else "No problems found"
    click.echo(f"{job_file}: {counted(len(job.sinks), 'sink')} planned. {warnings}.")


@click.command(
    epilog=calls(
        "rowkind explain job.yaml",
        "rowkind explain job.yaml --sink paid_orders",
        "rowkind explain job.yaml --format html > plan.html",
    )
)
@JOB
@click.option("--sink", metavar="NAME", shell_complete=names("sinks"), help="Show only this sink.")
@click.option(
    "--format",
    "form",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json", "mermaid", "html"]),
    help="Output format: a text tree, a JSON document, a Mermaid flowchart, or an HTML page.",
)
def explain(job_file: Path, sink: str | None, form: Format) -> None:
    """Show the plan of every query, with keys, changelog modes, state and advice."""
    from rowkind.service.plan.explain.render import render  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.plan.pipeline import plan as plan_alone  # noqa: PLC0415 -- as above

    job = load_job(job_file)
    known(job, sink)
    if sink is not None:
        click.echo(render(job, {sink: [plan_alone(job, sink)]}, form))
    else:
        click.echo(render(job, {name: query.sinks for name, query in planned_queries(job).items()}, form))


class _WithoutPandas(MetaPathFinder):
    """Import hook that hides pandas. pyarrow and DuckDB would load it only to check argument types, which takes 0.5 s.

    It is not installed for jobs with Python functions, which may pass pandas objects.
    """

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - Python's interface
        """Raise ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


@click.command(
    "try",
    epilog=calls(
        "rowkind try job.yaml --changes changes.jsonl",
        "rowkind try job.yaml --changes changes.jsonl --sink podium --fold",
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
@row_output
def try_(
    job_file: Path,
    changes: Any,
    sink: str | None,
    batch_rows: int,
    engine: str,
    *,
    fold: bool,
    open_: bool,
    form: OutputForm | None,
) -> None:
    """Run a query over a file of changes, without Kafka.

    The changes are processed in order, in batches of N lines. Write decimals as strings, and timestamps as ISO-8601
    (UTC) or milliseconds since the epoch. The output has each change of the result or, with --fold, each row that
    remains.

    A line {"clock": "2026-01-31T12:00:00Z"} sets the clock for the changes after it. At the end of the file, all
    watermarks and PROCTIME() advance past all times, unless --open is given.
    """
    job = load_job(job_file)
    if engine == "memory" and not job.functions:
        sys.meta_path.insert(0, _WithoutPandas())
    from rowkind.service.plan.pipeline import plan as plan_alone  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.query import trial  # noqa: PLC0415 -- as above

    if sink is None and len(job.sinks) > 1:
        fail(f"{job_file} has several sinks: choose one with --sink ({', '.join(job.sinks)})", REFUSED)
    known(job, sink)
    plan = plan_alone(job, sink or next(iter(job.sinks)))
    batches = trial.read(job, changes, changes.name, batch_rows)
    if not open_:
        trial.end(plan, batches)
    for table in trial.unread(plan, batches):
        warn(f"the query of sink {plan.name} does not read table {table}")
    if engine == "memory":
        run = trial.in_memory(warn)
    else:
        from rowkind.service.query.trial_on_spark import on_spark  # noqa: PLC0415 -- loads Spark

        run = on_spark(warn)
    columns = [column.name for column in plan.value.fields]
    shown = RowOutput(form, columns if fold else ["batch", "op", *columns], numbers(plan.value) | {"batch"})
    for found in trial.results(job, plan, batches, run, fold=fold):
        shown.add(found)
    shown.flush()


@click.command("import", epilog=calls("rowkind import flink-script.sql", "rowkind import flink-script.sql -o job.yaml"))
@click.argument("script", metavar="SCRIPT", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o", "--output", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False), help="Write the job file here."
)
@click.option("--overwrite", is_flag=True, help="Overwrite an existing file.")
def import_(script: Path, output: Path | None, *, overwrite: bool) -> None:
    """Convert a Flink SQL script to a job file. It converts tables, views and INSERT INTOs.

    Every difference from the script is reported in the job file's comments and, with its line and column, on standard
    error. The exit code is 0 if the job does everything that the script does, 1 if something is missing, and 2 if the
    script cannot be converted.
    """
    if output is not None and output.exists() and not overwrite:
        fail(f"{output} already exists: choose another name, or use --overwrite", REFUSED)
    _import(script, output)


def _import(file: Path, output: Path | None) -> None:
    from rowkind.service.flink.job_file import imported  # noqa: PLC0415 -- loaded when it is needed

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fail(f"{file}: the script cannot be read: {reason}", REFUSED)
    found = imported(str(file), text)
    for note in found.notes:
        warn(note)
    if output is None:
        click.echo(found.text, nl=False)
    else:
        try:
            output.write_text(found.text)
        except OSError as error:
            fail(f"{output}: the job file cannot be written: {error.strerror}", FAILED)
    if not found.whole:
        sys.exit(FAILED)


@click.command(epilog=calls("rowkind schema > job.schema.json"))
def schema() -> None:
    """Print the JSON Schema of job files. Editors use it to complete and check them.

    If a job file begins with the line `# yaml-language-server: $schema=job.schema.json`, the editor uses the schema
    file of that name in the same folder.
    """
    from importlib.resources import files  # noqa: PLC0415 -- loaded when it is needed

    click.echo((files("rowkind.service.job") / "job.schema.json").read_text(encoding="utf-8"), nl=False)


@click.command()
def examples() -> None:
    """List the example jobs that come with Rowkind. Most have a changes.jsonl in the same folder for `rowkind try`."""
    from importlib.resources import as_file, files  # noqa: PLC0415 -- loaded when it is needed

    with as_file(files("rowkind") / "examples") as folder:
        for job in sorted(folder.glob("*/job.yaml")):
            click.echo(job)
