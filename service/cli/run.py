"""Commands that run a job or manage its state: `rowkind run | rescale | savepoint | skip | diff | executor`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rowkind.errors import REFUSED
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, planned_queries
from rowkind.service.cli.progress_output import LOG_FORM, LogForm, showing_progress, usual
from rowkind.service.machine.loading import without_collections
from rowkind.service.machine.signals import JOB_SECONDS, Signals, until_a_signal

if TYPE_CHECKING:
    from rowkind.service.job.model import Job

OnChange = Literal["tell", "upgrade"]


def _of_this_machine(context: click.Context, _: click.Parameter, host: str) -> str:
    """Check that this machine can listen on the host's address. Raises click.BadParameter."""
    if not context.resilient_parsing:
        try:
            with socket.socket() as trial:
                trial.bind((host, 0))
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a host name"
            raise click.BadParameter(f"{host} is not an address of this machine: {why}") from None
    return host


def _log_form(context: click.Context, _option: click.Parameter, form: LogForm | None) -> LogForm | None:
    """Remember the form, which also applies to the message with which the command fails."""
    context.meta[LOG_FORM] = form
    return form


@click.command(
    epilog=calls(
        "rowkind run job.yaml",
        "rowkind run job.yaml --port 0 --log json",
        "rowkind run job.yaml --upgrade                 after a query has changed",
        "rowkind run job.yaml --from /backup/monday     if the checkpoint is lost",
        "rowkind run jobs/ --on-change upgrade          run all job files of a folder in one service",
        "rowkind run job.yaml --dev                     with a broker of its own, for a job that only generates rows",
    )
)
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path))
@click.option("--master", metavar="URL", help="Run tasks on this Spark master instead of on this machine.")
@click.option(
    "--port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port for status and metrics; 0 for any free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="ROWKIND_HOST",
    callback=_of_this_machine,
    show_default=True,
    show_envvar=True,
    help="Address for status and metrics; 0.0.0.0 for all addresses of this machine.",
)
@click.option("--upgrade", is_flag=True, help="Rebuild the queries that have changed since the checkpoint was written.")
@click.option("--reset-state", is_flag=True, help="Rebuild all queries.")
@click.option("--from", "savepoint", metavar="FOLDER", help="Start from this savepoint if there is no checkpoint.")
@click.option(
    "--on-change",
    type=click.Choice(["tell", "upgrade"]),
    help="If a job file changes: only report the effect (tell), or upgrade the job.  [default: tell, for a folder]",
)
@click.option("--dev", is_flag=True, help="Start a broker for this run. The job must have no `kafka` section.")
@click.option("--stdin", is_flag=True, hidden=True, help="Read the text of JOB from standard input.")
@click.option(
    "--log",
    "form",
    callback=_log_form,
    type=click.Choice(["view", "lines", "json"]),
    help="Progress: a live view, log lines, or JSON lines.  [default: view on a terminal, otherwise lines]",
)
def run(
    path: Path,
    master: str | None,
    port: int,
    host: str,
    *,
    upgrade: bool,
    reset_state: bool,
    savepoint: str | None,
    on_change: OnChange | None,
    dev: bool,
    stdin: bool,
    form: LogForm | None,
) -> None:
    """Run the job until SIGTERM or SIGINT. It then ends within five seconds.

    The batch in progress is finished if it ends within that time. Otherwise it is repeated at the next start.

    A query that is rebuilt reads each topic from the table's `start`, and writes nothing until it has caught up. Then
    its result topics are updated in one transaction: wrong rows are retracted, missing rows are inserted, and all other
    rows stay unchanged. `rowkind diff` shows what would be rebuilt.

    JOB is a job file, or a folder of job files. Each job of a folder has its own process, and all share one port. A job
    is started when its file is added to the folder, and stopped when the file is removed.
    """
    if path.is_dir() or on_change is not None:
        if reset_state or savepoint is not None or dev:
            raise click.UsageError(
                "--reset-state, --from and --dev are for one job: give its file, without --on-change"
            )
        options = [] if master is None else ["--master", master]
        _together(path, upgrades=upgrade or on_change == "upgrade", options=options, host=host, port=port, form=form)
        return
    with until_a_signal() as signals, _loaded(path, signals, dev=dev, stdin=stdin) as job:
        job.check_runnable()
        _begin(job, master)
        signals.end_within(JOB_SECONDS)
        with without_collections():
            from rowkind.service.run import process  # noqa: PLC0415 -- loaded when it is needed

        with showing_progress(form or usual()) as watch:
            how = process.RunOptions(
                master,
                host,
                port,
                rebuild="everything" if reset_state else "what changed" if upgrade else "nothing",
                savepoint=savepoint,
            )
            process.run(job, partial(planned_queries, job), signals, how, watch)


@contextmanager
def _loaded(path: Path, signals: Signals, *, dev: bool, stdin: bool) -> Iterator[Job]:
    """Yield the job. With `dev`, it has a broker while the context is active, and the process exits in time."""
    job = load_job(path, sys.stdin.read() if stdin else None)
    if dev:
        signals.end_within(JOB_SECONDS)
        from rowkind.service.dev.serve import with_own_broker  # noqa: PLC0415 -- loaded when it is needed

        with with_own_broker(job, Path(".rowkind")) as with_broker:
            yield with_broker
    else:
        yield job


def _begin(job: Job, master: str | None) -> None:
    """Start Spark in the background while the job is planned, unless the job runs on another Spark `master`.

    Ends the command with an error if the job sets `memory` and a `master` is given.
    """
    if master is None:
        from rowkind.service.spark.early_session import begin  # noqa: PLC0415 -- loaded when it is needed

        begin(job.name, job.parallelism, job.checkpoint or "", job.budget)
    elif job.memory is not None:
        fail(
            "`memory` cannot be combined with --master, because it divides the memory of one machine. Remove it, and "
            "set the memory of the driver and the executors in Spark's settings, such as spark.executor.memory and "
            "spark.executor.memoryOverhead",
            REFUSED,
        )


def _together(
    path: Path, *, upgrades: bool, options: Sequence[str], host: str, port: int, form: LogForm | None
) -> None:
    from rowkind.service.multi.service import run_together  # noqa: PLC0415 -- loaded when it is needed

    # The live view shows a single job, so several jobs log lines.
    form = "json" if form == "json" else "lines"
    with showing_progress(form):
        run_together(path, upgrades=upgrades, options=[*options, "--log", form], host=host, port=port)


@click.command(hidden=True)
def executor() -> None:
    """Run as a Spark executor. Spark calls this command in executor pods on Kubernetes."""
    from rowkind.service.spark.executor import become  # noqa: PLC0415 -- loaded when it is needed

    become()


@click.command(epilog=calls("rowkind rescale job.yaml --parallelism 8"))
@JOB
@click.option(
    "--parallelism", type=click.IntRange(1, 1024), help="Number of tasks.  [default: the job's `parallelism`]"
)
@click.option("--master", metavar="URL", help="Run tasks on this Spark master instead of on this machine.")
def rescale(job_file: Path, parallelism: int | None, master: str | None) -> None:
    """Redistribute the job's state over another number of tasks. A running instance of the job is stopped.

    The number of tasks is the job's `parallelism`, unless --parallelism is given.
    """
    with until_a_signal() as signals:
        signals.end_within(JOB_SECONDS)
        written = load_job(job_file)
        job = written.model_copy(update={"parallelism": parallelism or written.parallelism})
        job.check_runnable()
        from rowkind.service.run import process  # noqa: PLC0415 -- loaded when it is needed

        plan = partial(planned_queries, job)
        with showing_progress(usual()) as watch:
            moves = process.RunOptions(master, "127.0.0.1", 0, "nothing", moves=True)
            process.run(job, plan, signals, moves, watch)
        if not signals.count:
            click.echo(f"rescaled: the state is now divided for `parallelism: {job.parallelism}`")
            if job.parallelism != written.parallelism:
                click.echo(
                    f"set `parallelism: {job.parallelism}` in {job_file}: until then, `rowkind run` refuses the job"
                )


@click.command(epilog=calls("rowkind savepoint job.yaml /backup/monday"))
@JOB
@click.argument("folder")
def savepoint(job_file: Path, folder: str) -> None:
    """Copy the job's checkpoint to FOLDER. `run --from FOLDER` starts from the copy. The job may keep running."""
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.checkpoint.savepoint import save  # noqa: PLC0415 -- loaded when it is needed

    for name, batch in save(job, folder).items():
        click.echo(f"query {name}: saved as of batch {batch}")


@click.command(epilog=calls("rowkind skip job.yaml orders:0:1234"))
@JOB
@click.argument("rows", nargs=-1, required=True, metavar="STEP:PARTITION:OFFSET…")
def skip(job_file: Path, rows: tuple[str, ...]) -> None:
    """Skip rows on which the job failed. They become dead letters. The error message names the row to skip."""
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.checkpoint.skip import skip as excuse  # noqa: PLC0415 -- loaded when it is needed

    names = excuse(job, rows)
    queries = "query" if len(names) == 1 else "queries"
    click.echo(f"the rows will be skipped from the next start, in {queries} {', '.join(names)}")


@click.command(epilog=calls("rowkind diff job.yaml"))
@JOB
def diff(job_file: Path) -> None:
    """Show what `run --upgrade` would do.

    The output says which sinks continue from the checkpoint, which are rebuilt, and why.
    """
    job = load_job(job_file)
    job.check_runnable()
    planned_queries(job)
    from rowkind.service.checkpoint.upgrade_preview import diff as lines  # noqa: PLC0415 -- loaded when it is needed

    for line in lines(job):
        click.echo(line)
