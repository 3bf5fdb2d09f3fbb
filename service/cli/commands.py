"""The command `rowkind`, and the one place where an error becomes a message and an exit code.

Commands load what they need when they run, so that `rowkind try` starts in well under a second.
"""

from __future__ import annotations

import gc
import traceback
from typing import Any

import click

from rowkind.errors import BUG, RowkindError
from rowkind.service.cli import completion, dev, plan, records, run, top, topics
from rowkind.service.cli.job_file import calls, fail
from rowkind.version import environment

_EPILOG = """

\b
Exit codes:
  0  it went well, or was asked to stop
  1  it could not start here, or a query failed; nothing is lost, the next start does the batch again;
     of `import`, something of the script is missing in the job file
  2  the job or other input is refused; the message says where and why
  3  the broker or the registry cannot be reached
  4  a bug in Rowkind
"""

_BUG = """
This is a bug in Rowkind, not in your job. Nothing is lost: what was not committed is done again at the next start.
Please report it with the lines above, the job file without its secrets, and this line, at
https://github.com/rowkind/rowkind/issues
"""


class _Commands(click.Group):
    """The commands; the one place where an error becomes a message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What a user can mend ends as one message, without a stack trace; the rest is a bug."""
        try:
            return super().invoke(ctx)
        except RowkindError as error:
            fail(str(error), error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own business
        except Exception:  # noqa: BLE001 - whatever it is, it is ours to mend
            traceback.print_exc()
            fail(f"{_BUG.strip()}\n{environment()}", BUG)


def _show_version(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(environment())
        ctx.exit()


@click.group(
    cls=_Commands,
    epilog=calls(
        "rowkind examples                                  the jobs that come with it",
        "rowkind try job.yaml --changes changes.jsonl      a query over a file, without Kafka",
        "rowkind explain job.yaml                          how it would be kept up to date",
        "rowkind run job.yaml                              keep it up to date",
        "rowkind top                                       what a running job does",
    )
    + _EPILOG,
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


for _each in (
    plan.check,
    plan.explain,
    plan.try_,
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
    records.produce,
    records.consume,
    dev.dev,
    completion.completion,
):
    main.add_command(_each)
