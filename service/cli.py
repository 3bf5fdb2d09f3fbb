"""The command line: `rowkind run | try | check | explain | examples | topics create | dev`.

Commands load what they need when they run, so that `rowkind try` starts in well under a second.
"""

from __future__ import annotations

import gc
import logging
import sys
import traceback
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from rowkind.errors import BUG, REFUSED, RowkindError
from rowkind.version import environment

if TYPE_CHECKING:
    from rowkind.service.job.model import Job
    from rowkind.service.plan.explain.render import Format
    from rowkind.service.plan.pipeline import PlannedQuery

_EPILOG = """
\b
Exit codes:
  0  it went well, or was asked to stop
  1  it could not start here, or a query failed; nothing is lost, the next start does the batch again
  2  the job or other input is refused; the message says where and why
  3  the broker or the registry cannot be reached
  4  a bug in Rowkind
"""

_BUG = """
This is a bug in Rowkind, not in your job. Nothing is lost: what was not committed is done again at the next start.
Please report it with the lines above, the job file without its secrets, and this line, at
https://github.com/rowkind/rowkind/issues
"""

_JOB = click.argument("job_file", metavar="JOB", type=click.Path(path_type=Path, dir_okay=False))


class _WithoutPandas(MetaPathFinder):
    """Keeps pyarrow and DuckDB from loading pandas, half a second, to see whether what they are given is some of it."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - Python's interface
        """There is no such module."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


class _Commands(click.Group):
    """The commands; the one place where an error becomes a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What a user can mend ends as one message, without a stack trace; the rest is a bug."""
        try:
            return super().invoke(ctx)
        except RowkindError as error:
            _fail(str(error), error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own business
        except Exception:  # noqa: BLE001 - whatever it is, it is ours to mend
            traceback.print_exc()
            _fail(f"{_BUG.strip()}\n{environment()}", BUG)


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(environment())
        ctx.exit()


@click.group(
    cls=_Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Print what runs here."
)
def main() -> None:
    """Keep the results of streaming SQL up to date, from Kafka changelogs to Kafka changelogs."""
    # Loading and planning make objects that stay. To look through them for garbage at Python's usual pace took a tenth
    # of the time of `check`.
    gc.set_threshold(50_000)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"rowkind: {message}", err=True)
    sys.exit(code)


def _load(file: Path) -> Job:
    from rowkind.service.job.load import load  # noqa: PLC0415 -- see the module's docstring

    return load(file)


def _known(job: Job, sink: str | None) -> None:
    """Refuse the name of a sink that is not there."""
    from rowkind.service.job.errors import JobError, Problem  # noqa: PLC0415 -- see the module's docstring

    if sink is not None and sink not in job.sinks:
        text = f"there is no sink {sink!r}; sinks are {', '.join(job.sinks)}"
        raise JobError(str(job.file), [Problem(job.line("sinks"), "sinks", text)])


def _planned(job: Job) -> dict[str, PlannedQuery]:
    from rowkind.service.run.queries import planned  # noqa: PLC0415 -- as above

    return planned(job)


@main.command()
@_JOB
def check(job_file: Path) -> None:
    """Read the job and plan its queries, without touching a broker."""
    job = _load(job_file)
    _planned(job)
    click.echo(
        f"{job_file}: {len(job.sinks)} {'sink' if len(job.sinks) == 1 else 'sinks'} planned, nothing to complain about"
    )


@main.command()
@_JOB
@click.option("--sink", metavar="NAME", help="Only this sink.")
@click.option(
    "--format",
    "form",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json", "mermaid", "html"]),
    help="A tree to read, a document for programs, a flowchart, or a page for a browser.",
)
def explain(job_file: Path, sink: str | None, form: Format) -> None:
    """Show the plan of every query: keys, changelog modes, state, and advice."""
    from rowkind.service.plan.explain.render import render  # noqa: PLC0415 -- see the module's docstring
    from rowkind.service.plan.pipeline import plan as plan_alone  # noqa: PLC0415 -- as above

    job = _load(job_file)
    _known(job, sink)
    if sink is not None:
        click.echo(render(job, {sink: [plan_alone(job, sink)]}, form))
    else:
        click.echo(render(job, {name: query.sinks for name, query in _planned(job).items()}, form))


@main.command("try")
@_JOB
@click.option(
    "--changes",
    metavar="FILE",
    required=True,
    type=click.File(encoding="utf-8"),
    help='JSON lines, {"table": "orders", "op": "+I", "row": {…}}; - for standard input.',
)
@click.option("--sink", metavar="NAME", help="The sink whose query to run; needed where a job has several.")
@click.option("--batch-rows", metavar="N", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--engine", default="memory", show_default=True, type=click.Choice(["memory", "spark"]))
@click.option("--fold", is_flag=True, help="Print the rows that are left in the end instead of the changes.")
def try_(job_file: Path, changes: Any, sink: str | None, batch_rows: int, engine: str, *, fold: bool) -> None:
    """Run a query over a file of changes, without Kafka.

    The changes are taken in order, in batches of N lines. Decimals are written as text, timestamps as ISO-8601 (UTC)
    or milliseconds since the epoch. Prints one JSON object for each change of the result, or row with --fold.
    """
    if engine == "memory":
        sys.meta_path.insert(0, _WithoutPandas())
    from rowkind.service.plan.pipeline import plan as plan_alone  # noqa: PLC0415 -- see the module's docstring
    from rowkind.service.run import trial  # noqa: PLC0415 -- as above

    job = _load(job_file)
    if sink is None and len(job.sinks) > 1:
        _fail(f"{job_file} has several sinks: choose one with --sink ({', '.join(job.sinks)})", REFUSED)
    _known(job, sink)
    plan = plan_alone(job, sink or next(iter(job.sinks)))
    batches = trial.read(job, changes, changes.name, batch_rows)
    for table in trial.unread(plan, batches):
        _warn(f"the query of sink {plan.name} does not read table {table}")
    if engine == "memory":
        run = trial.in_memory(_warn)
    else:
        from rowkind.service.run.trial_on_spark import on_spark  # noqa: PLC0415 -- loads Spark

        run = on_spark(_warn)
    for line in trial.results(job, plan, batches, run, fold=fold):
        sys.stdout.write(line + "\n")


@main.command()
def examples() -> None:
    """List the jobs that come with Rowkind; beside most lies a changes.jsonl to try them with."""
    from importlib.resources import as_file, files  # noqa: PLC0415 -- see the module's docstring

    with as_file(files("rowkind") / "examples") as folder:
        for job in sorted(folder.glob("*/job.yaml")):
            click.echo(job)


def _warn(message: str) -> None:
    click.echo(f"rowkind: {message}", err=True)


@main.command()
@_JOB
@click.option("--master", metavar="URL", help="A Spark master instead of this process.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Status and metrics; 0: any."
)
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="ROWKIND_HOST",
    show_default=True,
    show_envvar=True,
    help="The address of that port; 0.0.0.0: all there are.",
)
@click.option("--upgrade", is_flag=True, help="Rebuild what has changed since the checkpoint was written.")
@click.option("--reset-state", is_flag=True, help="Rebuild everything.")
@click.option("--from", "savepoint", metavar="FOLDER", help="Begin with a savepoint if there is no checkpoint.")
def run(
    job_file: Path,
    master: str | None,
    port: int,
    host: str,
    *,
    upgrade: bool,
    reset_state: bool,
    savepoint: str | None,
) -> None:
    """Run the job until SIGTERM or SIGINT; the batch in progress is finished.

    What is rebuilt reads its topics from where the job says, and writes nothing until it has read what there is. Then
    its result topics are brought up to date in one transaction: what should not be there is taken back, what is missing
    is added, everything else stays as it is. `rowkind diff` says what would be rebuilt.
    """
    job = _load(job_file)
    job.check_runnable()
    if master is None:
        from rowkind.service.spark.session import begin  # noqa: PLC0415 -- as above

        begin(job.checkpoint or "", job.budget)
    elif job.memory is not None:
        _fail(
            "`memory` divides the memory of one machine. With --master leave it out, and give driver and executors "
            "theirs by Spark's settings, spark.executor.memory and spark.executor.memoryOverhead",
            REFUSED,
        )
    fresh = _planned(job)
    from rowkind.service.run.lifecycle import Rebuild  # noqa: PLC0415 -- see the module's docstring
    from rowkind.service.run.lifecycle import run as live  # noqa: PLC0415 -- as above

    _log()
    rebuild: Rebuild = "everything" if reset_state else "what changed" if upgrade else "nothing"
    live(job, fresh, master=master, host=host, port=port, rebuild=rebuild, savepoint=savepoint)


def _log() -> None:
    """Tell what happens on standard error."""
    from rowkind.service.spark.quiet import not_py4js  # noqa: PLC0415 -- see the module's docstring

    # The libraries' own messages only from warnings on.
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(not_py4js)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])
    logging.getLogger("rowkind").setLevel(logging.INFO)


@main.command()
@_JOB
@click.option("--parallelism", type=click.IntRange(1, 1024), help="Instead of what the job says.")
@click.option("--master", metavar="URL", help="A Spark master instead of this process.")
def rescale(job_file: Path, parallelism: int | None, master: str | None) -> None:
    """Move the job's state to as many partitions as the job has tasks. A run that is under way is ended."""
    job = _load(job_file)
    job = job.model_copy(update={"parallelism": parallelism or job.parallelism})
    job.check_runnable()
    fresh = _planned(job)
    from rowkind.service.run.lifecycle import run as live  # noqa: PLC0415 -- see the module's docstring

    _log()
    live(job, fresh, master=master, host="127.0.0.1", port=0, rebuild="nothing", moves=True)
    click.echo(f"rescaled: the job runs with `parallelism: {job.parallelism}`")


@main.command()
@_JOB
@click.argument("folder")
def savepoint(job_file: Path, folder: str) -> None:
    """Copy the checkpoint of the job, which may run meanwhile, to FOLDER, for `run --from FOLDER`."""
    job = _load(job_file)
    job.check_runnable()
    from rowkind.service.run.savepoint import save  # noqa: PLC0415 -- see the module's docstring

    for name, batch in save(job, folder).items():
        click.echo(f"query {name}: saved as of batch {batch}")


@main.command()
@_JOB
@click.argument("rows", nargs=-1, required=True, metavar="STEP:PARTITION:OFFSET…")
def skip(job_file: Path, rows: tuple[str, ...]) -> None:
    """Let the job, which failed on a row, go on without it: it becomes a dead letter. The failure says which row."""
    job = _load(job_file)
    job.check_runnable()
    from rowkind.service.run.skip import skip as excuse  # noqa: PLC0415 -- see the module's docstring

    names = excuse(job, rows)
    click.echo(f"skipped: from the next start on, in {', '.join(names)}")


@main.command()
@_JOB
def diff(job_file: Path) -> None:
    """Say what `run --upgrade` would do: which sinks go on from the checkpoint, and which are rebuilt, and why."""
    job = _load(job_file)
    job.check_runnable()
    _planned(job)
    from rowkind.service.run.diff import diff as lines  # noqa: PLC0415 -- see the module's docstring

    for line in lines(job):
        click.echo(line)


@main.group()
def topics() -> None:
    """The job's topics."""


@topics.command("create")
@_JOB
def topics_create(job_file: Path) -> None:
    """Make the job's topics that are not there, and register the schemas of its sinks."""
    job = _load(job_file)
    job.check_runnable()
    queries = _planned(job)
    from rowkind.service.run.topics import connect, create, register  # noqa: PLC0415 -- see the module's docstring

    connection = connect(job)
    for name in create(job, queries, connection, sources=True):
        click.echo(f"made topic {name}")
    for sink in (sink for query in queries.values() for sink in query.sinks):
        register(sink, connection)
        click.echo(f"registered the schemas of topic {sink.topic}")


@main.group(invoke_without_command=True)
@click.option("--port", default=9092, show_default=True, type=click.IntRange(1, 65535), help="The broker's port.")
@click.option(
    "--data",
    default=Path(".rowkind"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Keeps the topics and the folder of schemas between runs.",
)
@click.pass_context
def dev(context: click.Context, port: int, data: Path) -> None:
    """Run a Kafka broker and keep a folder of schemas, for trying jobs on this machine. Ends with Ctrl-C."""
    if context.invoked_subcommand is None:
        from rowkind.service.dev.serve import serve  # noqa: PLC0415 -- see the module's docstring

        serve(port, data)


@dev.command()
@_JOB
def demo(job_file: Path) -> None:
    """Run JOB over a changing order book, on a broker of its own, and check its results against DuckDB."""
    from rowkind.service.dev.demo.show import demo as show  # noqa: PLC0415 -- see the module's docstring

    show(job_file)


@dev.command()
@_JOB
def shop(job_file: Path) -> None:
    """Change the order book that JOB reads, on JOB's own Kafka, until Ctrl-C: something to watch a job with."""
    from rowkind.service.dev.demo.show import keep_shop  # noqa: PLC0415 -- see the module's docstring

    keep_shop(job_file)


if __name__ == "__main__":
    main()
