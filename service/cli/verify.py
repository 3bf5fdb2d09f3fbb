"""The command `rowkind verify`, which audits the result topics of a job against DuckDB."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import click

from rowkind.errors import FAILED, REFUSED
from rowkind.service.cli.completion import names
from rowkind.service.cli.job_file import JOB, calls, fail, load_job


@click.command(
    epilog=calls(
        "rowkind verify job.yaml",
        "rowkind verify job.yaml totals --sample 0.01",
        "rowkind verify job.yaml --metrics /var/lib/node-exporter/rowkind.prom -o json",
    )
)
@JOB
@click.argument("sinks", nargs=-1, shell_complete=names("sinks"))
@click.option(
    "--sample",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of keys to compare.",
)
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    help="Do not compare rows that were written before this time, in UTC.",
)
@click.option("--memory", default="1GB", show_default=True, help="Memory for DuckDB; it spills more to the disk.")
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write metrics to this file, as text for Prometheus.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
def verify(
    job_file: Path,
    sinks: tuple[str, ...],
    *,
    sample: float,
    since: datetime | None,
    memory: str,
    metrics: Path | None,
    form: str,
) -> None:
    """Compare the result topics of SINKS, or of all sinks, with what DuckDB computes from the source topics.

    The job may be running. Exit code 0: no row differs. 1: a row differs. A sink that cannot be compared does not
    change the exit code; its line says why.
    """
    from rowkind.service.verify.audit import audit  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.verify.compare import AuditedPart  # noqa: PLC0415 -- as above
    from rowkind.service.verify.report import document, lines, write_metrics  # noqa: PLC0415 -- as above

    job = load_job(job_file)
    if metrics is not None and not os.access(metrics.parent, os.W_OK):
        fail(f"--metrics: folder {metrics.parent} does not exist, or is not writable: create it", REFUSED)
    part = AuditedPart(sample, None if since is None else f"{since.isoformat()}+00:00")
    audits = list(audit(job, sinks, part, memory))
    for line in document(audits) if form == "json" else lines(audits):
        click.echo(line)
    if metrics is not None:
        write_metrics(metrics, job.name, audits)
    if any(each.verdict == "differs" for each in audits):
        raise click.exceptions.Exit(FAILED)
