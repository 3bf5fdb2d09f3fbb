"""Commands that run a job or look after its state: `rowkind run | rescale | savepoint | skip | diff | executor`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rowkind.errors import REFUSED
from rowkind.service.cli.job_file import JOB, calls, fail, load_job, planned_queries
from rowkind.service.cli.progress_output import LogForm, showing_progress, usual
from rowkind.service.machine.signals import until_a_signal

if TYPE_CHECKING:
    from rowkind.service.job.model import Job

OnChange = Literal["tell", "upgrade"]


def _of_this_machine(context: click.Context, _: click.Parameter, host: str) -> str:
    """A host at which a port can be served, whichever is free."""
    if not context.resilient_parsing:
        try:
            with socket.socket() as trial:
                trial.bind((host, 0))
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no name"
            raise click.BadParameter(f"{host} is no address of this machine: {why}") from None
    return host


@click.command(
    epilog=calls(
        "rowkind run job.yaml",
        "rowkind run job.yaml --port 0 --log json",
        "rowkind run job.yaml --upgrade                 after the query has changed",
        "rowkind run job.yaml --from /backup/monday     where the checkpoint is lost",
        "rowkind run jobs/ --on-change upgrade          every job file of a folder, in one service",
    )
)
@click.argument("path", metavar="JOB", type=click.Path(path_type=Path))
@click.option("--master", metavar="URL", help="A Spark master instead of this process.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Status and metrics; 0: any."
)
@click.option(
    "--host",
    default="127.0.0.1",
    envvar="ROWKIND_HOST",
    callback=_of_this_machine,
    show_default=True,
    show_envvar=True,
    help="The address of that port; 0.0.0.0: all there are.",
)
@click.option("--upgrade", is_flag=True, help="Rebuild what has changed since the checkpoint was written.")
@click.option("--reset-state", is_flag=True, help="Rebuild everything.")
@click.option("--from", "savepoint", metavar="FOLDER", help="Begin with a savepoint if there is no checkpoint.")
@click.option(
    "--on-change",
    type=click.Choice(["tell", "upgrade"]),
    help="When a job file changes: tell what would, or upgrade the job.  [default: tell, for a folder]",
)
@click.option("--stdin", is_flag=True, hidden=True, help="The text of JOB comes here, whatever its file says now.")
@click.option(
    "--log",
    "form",
    type=click.Choice(["view", "lines", "json"]),
    help="What is told: a view of the job, lines, or objects of JSON, one a batch.  [default: view on a terminal]",
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
    stdin: bool,
    form: LogForm | None,
) -> None:
    """Run the job until SIGTERM or SIGINT. It ends within five seconds.

    The batch in progress is finished, if it takes no longer; else it is done again at the next start.

    What is rebuilt reads its topics from where the job says, and writes nothing until it has read what there is. Then
    its result topics are brought up to date in one transaction: what should not be there is taken back, what is missing
    is added, everything else stays as it is. `rowkind diff` says what would be rebuilt.

    JOB is a job file, or a folder of them. The jobs of a folder have a process each and one port for all; they come and
    go with their files.
    """
    if path.is_dir() or on_change is not None:
        if reset_state or savepoint is not None:
            raise click.UsageError("--reset-state and --from are for one job: give its file, without --on-change")
        options = [] if master is None else ["--master", master]
        _together(path, upgrades=upgrade or on_change == "upgrade", options=options, host=host, port=port, form=form)
        return
    with until_a_signal() as signals:
        job = load_job(path, sys.stdin.read() if stdin else None)
        job.check_runnable()
        _begin(job, master)
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


def _begin(job: Job, master: str | None) -> None:
    """Start Spark in this process where it runs here, while the job is planned."""
    if master is None:
        from rowkind.service.spark.session import begin  # noqa: PLC0415 -- loaded when it is needed

        begin(job.checkpoint or "", job.budget)
    elif job.memory is not None:
        fail(
            "`memory` divides the memory of one machine. With --master leave it out, and give driver and executors "
            "theirs by Spark's settings, spark.executor.memory and spark.executor.memoryOverhead",
            REFUSED,
        )


def _together(
    path: Path, *, upgrades: bool, options: Sequence[str], host: str, port: int, form: LogForm | None
) -> None:
    from rowkind.service.multi.service import run_together  # noqa: PLC0415 -- loaded when it is needed

    # What several jobs tell goes by in lines.
    form = "json" if form == "json" else "lines"
    with showing_progress(form):
        run_together(path, upgrades=upgrades, options=[*options, "--log", form], host=host, port=port)


@click.command(hidden=True)
def executor() -> None:
    """Be an executor of Spark's. Spark starts it so, in a pod of a Kubernetes cluster."""
    from rowkind.service.spark.executor import become  # noqa: PLC0415 -- loaded when it is needed

    become()


@click.command(epilog=calls("rowkind rescale job.yaml --parallelism 8"))
@JOB
@click.option("--parallelism", type=click.IntRange(1, 1024), help="Instead of what the job says.")
@click.option("--master", metavar="URL", help="A Spark master instead of this process.")
def rescale(job_file: Path, parallelism: int | None, master: str | None) -> None:
    """Move the job's state to as many partitions as the job has tasks. A run that is under way is ended."""
    with until_a_signal() as signals:
        job = load_job(job_file)
        job = job.model_copy(update={"parallelism": parallelism or job.parallelism})
        job.check_runnable()
        from rowkind.service.run import process  # noqa: PLC0415 -- loaded when it is needed

        plan = partial(planned_queries, job)
        with showing_progress(usual()) as watch:
            moves = process.RunOptions(master, "127.0.0.1", 0, "nothing", moves=True)
            process.run(job, plan, signals, moves, watch)
        if not signals.count:
            click.echo(f"rescaled: the job runs with `parallelism: {job.parallelism}`")


@click.command(epilog=calls("rowkind savepoint job.yaml /backup/monday"))
@JOB
@click.argument("folder")
def savepoint(job_file: Path, folder: str) -> None:
    """Copy the checkpoint of the job, which may run meanwhile, to FOLDER, for `run --from FOLDER`."""
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.checkpoint.savepoint import save  # noqa: PLC0415 -- loaded when it is needed

    for name, batch in save(job, folder).items():
        click.echo(f"query {name}: saved as of batch {batch}")


@click.command(epilog=calls("rowkind skip job.yaml orders:0:1234"))
@JOB
@click.argument("rows", nargs=-1, required=True, metavar="STEP:PARTITION:OFFSET…")
def skip(job_file: Path, rows: tuple[str, ...]) -> None:
    """Let the job, which failed on a row, go on without it: it becomes a dead letter. The failure says which row."""
    job = load_job(job_file)
    job.check_runnable()
    from rowkind.service.checkpoint.skip import skip as excuse  # noqa: PLC0415 -- loaded when it is needed

    names = excuse(job, rows)
    click.echo(f"skipped: from the next start on, in {', '.join(names)}")


@click.command(epilog=calls("rowkind diff job.yaml"))
@JOB
def diff(job_file: Path) -> None:
    """Say what `run --upgrade` would do: which sinks go on from the checkpoint, and which are rebuilt, and why."""
    job = load_job(job_file)
    job.check_runnable()
    planned_queries(job)
    from rowkind.service.checkpoint.upgrade_preview import diff as lines  # noqa: PLC0415 -- loaded when it is needed

    for line in lines(job):
        click.echo(line)
