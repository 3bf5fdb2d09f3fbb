"""A pytest plugin that collects files of SQL tests, `*.tests.yaml`, beside their jobs. It does not load Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rowkind.service.testing.suite import JobUnderTest, SqlTest

# ruff: noqa: PLC0415 -- every run of pytest loads this module, so it imports the rest of Rowkind only for such files

_JOBS = pytest.StashKey["dict[Path, JobUnderTest]"]()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SqlTestFile | None:
    """Collect files whose names end with `.tests.yaml`."""
    if file_path.name.endswith(".tests.yaml"):
        return SqlTestFile.from_parent(parent, path=file_path)
    return None


class SqlTestFile(pytest.File):
    """A file of SQL tests."""

    def collect(self) -> Iterator[SqlTestItem]:
        """Yield the tests of the file."""
        from rowkind.errors import RowkindError
        from rowkind.service.testing.suite import JobUnderTest, job_of
        from rowkind.service.testing.suite_file import load_suite

        try:
            file = job_of(self.path)
            jobs = self.config.stash.setdefault(_JOBS, {})
            if file not in jobs:
                jobs[file] = JobUnderTest.load(file)
            for test in load_suite(self.path, jobs[file]).tests:
                yield SqlTestItem.from_parent(self, name=test.name, test=test, job=jobs[file])
        except RowkindError as error:
            raise self.CollectError(str(error)) from None


class SqlTestFailedError(Exception):
    """A SQL test has failed."""


class SqlTestItem(pytest.Item):
    """A SQL test."""

    def __init__(self, *, test: SqlTest, job: JobUnderTest, **other: Any) -> None:
        super().__init__(**other)
        self._test = test
        self._job = job

    def runtest(self) -> None:
        """Run the test. Raises SqlTestFailedError."""
        from rowkind.service.testing.report import lines_of
        from rowkind.service.testing.run import run_test

        result = run_test(self._job, self._test)
        if result.failures:
            raise SqlTestFailedError("\n".join(lines_of(self.path, result)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the text of a failure, without a stack trace."""
        if isinstance(excinfo.value, SqlTestFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place of the test in its file, from line 0, and its name."""
        return self.path, self._test.line - 1, self.name
