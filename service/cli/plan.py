"""Commands that need no broker: `rowkind check | explain | import | schema | examples`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowkind.errors import FAILED, REFUSED
from rowkind.quantities import counted
from rowkind.service.cli.completion import names
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, planned_queries, warn

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
    sinks = [sink for query in planned_queries(job).values() for sink in query.sinks]
    found = list(map(str, lints(job, sinks)))
    for each in found:
        warn(each)
    warnings = f"{counted(len(found), 'warning')}, see above" if found else "No problems found"
    click.echo(f"{job_file}: {counted(len(job.sinks), 'sink')} planned. {warnings}.")


@click.command(
    epilog=calls(
        "rowkind explain job.yaml",
        "rowkind explain job.yaml --sink paid_orders --full",
        "rowkind explain job.yaml --format html > plan.html",
    )
)
@JOB
@click.option("--sink", metavar="NAME", shell_complete=names("sinks"), help="Show only this sink.")
@click.option("--full", is_flag=True, help="Show every step as a tree, with all reasons and all advice.")
@click.option(
    "--format",
    "form",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json", "mermaid", "html"]),
    help="Output format: text, a JSON document, a Mermaid flowchart, or an HTML page.",
)
def explain(job_file: Path, sink: str | None, form: Format, *, full: bool) -> None:
    """Show in ten lines what the job reads, keeps, moves and writes. `--full` shows every step of the plan.

    The other formats always contain the whole plan.
    """
    from rowkind.service.plan.explain.render import render  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.plan.pipeline import plan as plan_alone  # noqa: PLC0415 -- as above

    job = load_job(job_file)
    form = "summary" if form == "text" and not full else form
    if sink is not None:
        click.echo(render(job, {sink: [plan_alone(job, sink)]}, form))
    else:
        click.echo(render(job, {name: query.sinks for name, query in planned_queries(job).items()}, form))


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


@click.command(epilog=calls("rowkind schema > job.schema.json", "rowkind schema --tests > tests.schema.json"))
@click.option("--tests", is_flag=True, help="Print the schema of files of tests, *.tests.yaml.")
def schema(*, tests: bool) -> None:
    """Print the JSON Schema of job files. Editors use it to complete and check them.

    If a job file begins with the line `# yaml-language-server: $schema=job.schema.json`, the editor uses the schema
    file of that name in the same folder.
    """
    from importlib.resources import files  # noqa: PLC0415 -- loaded when it is needed

    file = "testing/tests.schema.json" if tests else "job/job.schema.json"
    click.echo((files("rowkind.service") / file).read_text(encoding="utf-8"), nl=False)


@click.command()
def examples() -> None:
    """List the example jobs that come with Rowkind. Most have a changes.jsonl in the same folder for `rowkind try`."""
    from importlib.resources import as_file, files  # noqa: PLC0415 -- loaded when it is needed

    with as_file(files("rowkind") / "examples") as folder:
        for job in sorted(folder.glob("*/job.yaml")):
            click.echo(job)
