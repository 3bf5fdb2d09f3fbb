"""The command `rowkind`, which turns errors into messages and exit codes.

Each command imports its modules only when it runs, so that `rowkind try` starts in well under a second.
"""

from __future__ import annotations

import errno
import gc
import tempfile
import traceback
from typing import Any, NoReturn

import click

from rowkind.errors import BUG, FAILED, NO_SPACE, RowkindError
from rowkind.service.cli import (
    completion,
    dev,
    init,
    plan,
    records,
    run,
    sql,
    testing,
    top,
    topics,
    trying,
    verify,
    why,
)
from rowkind.service.cli.job_file import calls, fail
from rowkind.version import environment

_EPILOG = """

\b
Exit codes:
  0  success, or stopped on request
  1  the command could not start on this machine, or a query failed; nothing is lost, and the next start
     repeats the batch. For `import`: the job file lacks a part of the script. For `test`: a test failed.
     For `verify`: a row differs
  2  the job or another input is refused; the message says where and why
  3  the broker or the registry cannot be reached
  4  a bug in Rowkind
"""

_BUG = """
This is a bug in Rowkind, not in your job. Nothing is lost: the next start repeats uncommitted work.
Please report it at https://github.com/rowkind/rowkind/issues, with the lines above, the job file without its secrets,
and this line:
"""


class _Commands(click.Group):
    """The group of commands, which turns errors into messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An error that the user can fix is shown without a stack trace; any other is a bug."""
        try:
            return super().invoke(ctx)
        except RowkindError as error:
            fail(str(error), error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click handles these
        except OSError as error:
            if error.errno != errno.ENOSPC:
                _report_bug()
            place = error.filename or f"standard output, or for temporary files in {tempfile.gettempdir()}"
            fail(f"{NO_SPACE}: free space for {place}, then try again", FAILED)
        except Exception:  # noqa: BLE001 - any other exception is a bug in Rowkind
            _report_bug()


def _report_bug() -> NoReturn:
    """End with the traceback of the current exception, and how to report it."""
    fail(f"{_BUG.strip()}\n{environment()}", BUG, traceback.format_exc())


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(environment())
        ctx.exit()


@click.group(
    cls=_Commands,
    epilog=calls(
        "rowkind demo                                      watch a job at work",
        "rowkind examples                                  list the example jobs",
        "rowkind try job.yaml --changes changes.jsonl      run a query over a file, without Kafka",
        "rowkind test job.yaml                             run the tests of a job's SQL, without Kafka",
        "rowkind play                                      edit a job in the browser, and see its result",
        "rowkind explain job.yaml                          show the plan",
        "rowkind run job.yaml                              run the job",
        "rowkind top                                       show a running job",
    )
    + _EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the versions of Rowkind, Python, Spark, Java and librdkafka.",
)
def main() -> None:
    """Run streaming SQL queries over Kafka changelogs, and keep their results up to date in Kafka."""
    # Loading and planning create objects that stay alive. Collecting garbage at Python's default rate took a tenth of
    # the run time of `check`.
    gc.set_threshold(50_000)


for _each in (
    plan.check,
    plan.explain,
    trying.try_,
    testing.test,
    trying.play,
    plan.import_,
    plan.schema,
    plan.examples,
    run.run,
    run.executor,
    run.rescale,
    run.savepoint,
    run.skip,
    run.diff,
    top.top,
    topics.topics,
    topics.dead_letters,
    init.init,
    records.produce,
    records.generate,
    records.consume,
    sql.sql,
    why.why,
    verify.verify,
    dev.demo,
    dev.dev,
    completion.completion,
):
    main.add_command(_each)
