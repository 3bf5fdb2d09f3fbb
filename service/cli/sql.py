"""`rowkind sql`: query the topics of a job in DuckDB's SQL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowkind.errors import REFUSED
from rowkind.service.cli.job_file import JOB, calls, fail, load_job
from rowkind.service.cli.query_output import QueryForm, print_result, warn_of_undecodable

if TYPE_CHECKING:
    from rowkind.service.client.folded_topics import ReadProgress
    from rowkind.service.client.job_tables import JobTables


@click.command(
    epilog=calls(
        "rowkind sql job.yaml                                              a shell",
        'rowkind sql job.yaml "SELECT * FROM totals ORDER BY total DESC LIMIT 10" -o csv',
        'rowkind sql job.yaml "FROM totals" -o parquet > totals.parquet',
        'rowkind sql job.yaml "SELECT count(*) FROM orders" --at -1h',
        'rowkind sql job.yaml "SELECT stage, count(*) FROM dead_letters GROUP BY stage" --follow',
    )
)
@JOB
@click.argument("query", required=False)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet", "markdown"]),
    help="Print an aligned table, CSV, JSON lines, a Parquet file or a Markdown table.  [default: table on a terminal, "
    "otherwise json]",
)
@click.option(
    "--at",
    "moments",
    multiple=True,
    metavar="MOMENT",
    help="Show the rows as they were: at a time, such as 2026-01-31T12:00:00Z; a length of time before now, such as "
    "-1h; or after a record, NAME:PARTITION:OFFSET. Name several records by repeating the option.",
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Run the query again whenever its topics have grown, until Ctrl-C. On a terminal, the result is drawn again. "
    "Otherwise, its changes are printed as JSON lines: the rows that the result has gained (+I) and lost (-D).",
)
def sql(job_file: Path, query: str | None, *, form: QueryForm | None, moments: tuple[str, ...], follow: bool) -> None:
    """Query the sinks and tables of a job, and its dead letters, in SQL.

    Each topic that QUERY names is read from Kafka and folded to a table, which has the columns _partition, _offset and
    _timestamp besides its own. The dead letters are in the table dead_letters. QUERY is in DuckDB's dialect, unlike the
    queries in the job file. Several queries are separated by semicolons. Without QUERY, queries are read from standard
    input; on a terminal, a shell reads them.

    Topics are read into a temporary database of limited memory, which is removed at the end.
    """
    from rowkind.service.client.as_of import as_of  # noqa: PLC0415 -- loaded when it is needed
    from rowkind.service.client.external_table import opened  # noqa: PLC0415 -- as above
    from rowkind.service.client.job_tables import JobTables, statements  # noqa: PLC0415 -- as above
    from rowkind.service.run.dead_letters import tables_of_letters  # noqa: PLC0415 -- as above

    if moments and follow:
        fail("--at and --follow cannot be combined: a moment in the past does not change", REFUSED)
    if follow and form not in (None, "table", "json"):
        fail(f"--follow cannot print {form}: use -o table or -o json", REFUSED)
    shell = query is None and sys.stdin.isatty()
    if shell and follow:
        fail("--follow needs a query: rowkind sql JOB QUERY --follow", REFUSED)
    text = query if query is not None or shell else sys.stdin.read()
    asked = statements(text or "")
    job = opened(load_job(job_file))
    moment = as_of(job, moments) if moments else None
    with _shown_progress() as progress, closing(
        JobTables(job, lambda: tables_of_letters(job), moment=moment, progress=progress)
    ) as tables:  # fmt: skip
        if shell:
            from rowkind.service.cli.sql_shell import Shell  # noqa: PLC0415 -- as above

            Shell(tables, form).run()
        elif follow:
            _follow(tables, asked, form)
        else:
            _answer(tables, asked, form)


def _answer(tables: JobTables, asked: list[str], form: QueryForm | None) -> None:
    if not asked:
        fail("there is no query: write one after the job file, or to standard input", REFUSED)
    try:
        for statement in asked:
            print_result(tables.ask(statement), form)
    except KeyboardInterrupt:
        fail("the query was cancelled", 0)
    warn_of_undecodable(tables)


def _follow(tables: JobTables, asked: list[str], form: QueryForm | None) -> None:
    from rowkind.service.cli.sql_follow import draw, print_changes  # noqa: PLC0415 -- loaded when it is needed

    if len(asked) != 1:
        fail(f"--follow needs one query, but there are {len(asked)}", REFUSED)
    try:
        if form == "table" or (form is None and sys.stdout.isatty()):
            draw(tables, asked[0])
        else:
            print_changes(tables, asked[0])
    except KeyboardInterrupt:
        return


@contextmanager
def _shown_progress() -> Iterator[ReadProgress | None]:
    """Yield a function that shows on a terminal how many changes have been read; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(name: str, read: int, total: int) -> None:
        text = f"reading {name}: {read:,} of about {total:,} changes" if read < total else ""
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    yield show
