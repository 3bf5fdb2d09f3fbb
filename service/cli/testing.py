"""The command that runs the tests of a job: `rowkind test`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rowkind.errors import FAILED, REFUSED
from rowkind.quantities import counted
from rowkind.service.cli.job_file import JOB, calls, fail
from rowkind.service.cli.trying import hide_pandas

if TYPE_CHECKING:
    from rowkind.service.testing.differences import DiffMark
    from rowkind.service.testing.run import SqlTestResult
    from rowkind.service.testing.suite import JobUnderTest, SqlTest, Suite

_COLOURS = {"missing": "red", "expected": "red", "unexpected": "green", "actual": "green"}

# ruff: noqa: PLC0415 -- modules are loaded when they are needed


@click.command(
    "test",
    epilog=calls(
        "rowkind test job.yaml",
        "rowkind test job.yaml refunds.tests.yaml",
        "rowkind test job.yaml -k payment -x",
        "rowkind test job.yaml --update",
        "rowkind test job.yaml --junit results.xml",
    ),
)
@JOB
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
@click.option("-k", "part", metavar="TEXT", default="", help="Run only the tests whose name contains TEXT.")
@click.option("-x", "first", is_flag=True, help="Stop after the first failed test.")
@click.option("--update", is_flag=True, help="Write the rows that were found into the expectations that failed.")
@click.option("--junit", "xml", metavar="FILE", type=click.Path(path_type=Path), help="Write the results as JUnit XML.")
def test(job_file: Path, files: tuple[Path, ...], *, part: str, first: bool, update: bool, xml: Path | None) -> None:
    """Run the tests of a job's SQL, in memory.

    The tests are YAML: rows that are given to tables, and rows that are expected of sinks. Without FILE, they are in
    the files beside JOB: NAME.tests.yaml and NAME.*.tests.yaml for a job NAME.yaml.

    Each test also runs with each row in its own batch, and with all rows in one batch. The result must be the same.

    The exit code is 0 if all tests pass, 1 if a test fails, and 2 if a file is not valid.
    """
    from rowkind.service.machine.threads import ONE_THREAD

    # The tests run in processes that are forked from this one.
    os.environ |= ONE_THREAD
    from rowkind.service.job.load import load

    loaded = load(job_file)
    if not loaded.functions:
        hide_pandas()
    from rowkind.service.testing.report import junit
    from rowkind.service.testing.run import few_collections
    from rowkind.service.testing.suite import JobUnderTest, files_of_tests
    from rowkind.service.testing.suite_file import load_suite

    job = JobUnderTest(loaded)
    with few_collections():
        suites = [load_suite(file, job) for file in files or files_of_tests(job_file)]
        if update:
            suites = [_updated(suite, job, part) for suite in suites]
        found = _run(suites, job, part, first=first)
    if xml is not None:
        try:
            xml.write_text(junit(found), encoding="utf-8")
        except OSError as error:
            fail(f"{xml}: the results cannot be written: {error.strerror}", FAILED)
    results = [each for _, of in found for each in of]
    if not results:
        fail(f"no test of {job_file} has a name that contains {part!r}", REFUSED)
    failed = sum(bool(each.failures) for each in results)
    passed = len(results) - failed
    click.echo(f"{counted(passed, 'test')} passed" + (f", {failed} failed." if failed else "."))
    if failed:
        sys.exit(FAILED)


def _run(
    suites: Sequence[Suite], job: JobUnderTest, part: str, *, first: bool
) -> list[tuple[Path, list[SqlTestResult]]]:
    """Run the tests whose name contains a text, and print the failures."""
    from rowkind.service.testing.parallel import results

    chosen = [(suite.file, each) for suite in suites for each in _chosen(suite, part)]
    found: dict[Path, list[SqlTestResult]] = {suite.file: [] for suite in suites}
    with closing(results(job, [each for _, each in chosen])) as run:
        for (file, _), result in zip(chosen, run, strict=True):
            found[file].append(result)
            if result.failures:
                _print_failure(file, result)
                if first:
                    break
    return list(found.items())


def _chosen(suite: Suite, part: str) -> list[SqlTest]:
    """Return the tests whose name contains a text, in upper or lower case."""
    return [each for each in suite.tests if part.lower() in each.name.lower()]


def _print_failure(file: Path, result: SqlTestResult) -> None:
    from rowkind.service.testing.report import lines_of

    click.echo(f"{click.style('FAILED', fg='red', bold=True)} {result.test.name}")
    if result.test.description:
        click.echo(f"  {result.test.description}")
    for line in lines_of(file, result, _styled):
        click.echo(f"  {line}")
    click.echo()


def _styled(text: str, mark: DiffMark) -> str:
    if mark == "head":
        return click.style(text, bold=True)
    if mark == "differs":
        return click.style(text, fg="yellow", bold=True)
    return click.style(text, fg=_COLOURS[mark])


def _updated(suite: Suite, job: JobUnderTest, part: str) -> Suite:
    """Run the tests of a file, write the rows that were found into the file, and load it again."""
    from rowkind.service.job.load import text_of
    from rowkind.service.testing.parallel import results
    from rowkind.service.testing.suite_file import suite_of
    from rowkind.service.testing.update import updated

    ran = results(job, _chosen(suite, part))
    fixed = [failure.fixed for result in ran for failure in result.failures if failure.fixed is not None]
    named = [(each, rows, job.columns(each)) for each, rows in fixed if each.path]
    if not named:
        return suite
    text = updated(text_of(suite.file), named)
    try:
        suite.file.write_text(text)
    except OSError as error:
        fail(f"{suite.file}: the file cannot be written: {error.strerror}", FAILED)
    click.echo(f"{suite.file}: {counted(len(named), 'expectation')} updated.")
    return suite_of(text, suite.file, job)
