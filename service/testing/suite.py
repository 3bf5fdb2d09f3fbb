"""The model of a file of SQL tests: tests, steps, given rows and expectations; and the plans that the tests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from rowkind.avro.defaults import nothing
from rowkind.avro.json_rows import decode
from rowkind.avro.schema import Record
from rowkind.errors import REFUSED, RowkindError
from rowkind.service.job.columns import declared
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.query.trial import TrialChange

SUFFIX = ".tests.yaml"
"""The end of the name of a file of tests."""

OP = ""
"""The name under which a change's row kind is stored beside its columns. No column has an empty name."""

ComparedRow = Mapping[str, Any]
"""A row as JSON values by column; a change also has its symbol under `OP`."""

Cut = Literal["each", "one"] | int
"""How a step's rows are divided into batches: each row in its own batch, all in one batch, or so many per batch."""

YamlPath = tuple[str | int, ...]


class NoTestsError(RowkindError):
    """There is no file of tests for a job, or no job for a file of tests."""

    exit_code = REFUSED


@dataclass(frozen=True)
class GivenRow:
    """A change of a table, and its line in the file."""

    change: TrialChange
    line: int


@dataclass(frozen=True)
class Expectation:
    """The rows that a step expects.

    - `of`: `rows`, all rows of the sink `name` after the step; `changes`, the sink's changes in the step; or `late`,
      the rows of the table `name` that were late in the step.
    - `rows`: the columns of each row that are compared. None if the file has no value yet, for `--update`.
    - `path`: the position in the YAML document.
    """

    of: Literal["rows", "changes", "late"]
    name: str
    rows: Sequence[ComparedRow] | None
    line: int
    path: YamlPath


@dataclass(frozen=True)
class SqlStep:
    """A step of a test.

    - `clock`: the time to which the step moves the clock, in ms; None if the clock stays.
    - `ends`: whether the input ends after the step's rows, so that all times pass.
    - `cut`: the cut that the test requests for this step; None if the result must not depend on the cut.
    - `late`: None if late rows are not compared. `error`: a part of the message with which the step must fail.
    """

    line: int
    given: tuple[GivenRow, ...] = ()
    clock: int | None = None
    restarts: bool = False
    ends: bool = False
    cut: Cut | None = None
    expected: tuple[Expectation, ...] = ()
    late: tuple[Expectation, ...] | None = None
    error: str | None = None


@dataclass(frozen=True)
class SqlTest:
    """A test of some sinks of a job."""

    name: str
    description: str
    line: int
    sinks: tuple[str, ...]
    steps: tuple[SqlStep, ...]

    @property
    def cut(self) -> bool:
        """Whether the test chooses a cut, so that its result may depend on the cut."""
        return any(step.cut is not None for step in self.steps)


@dataclass(frozen=True)
class Suite:
    """The tests of a file."""

    file: Path
    tests: tuple[SqlTest, ...]


@dataclass
class JobUnderTest:
    """A job whose sinks are planned once, when a test first needs them."""

    job: Job
    _sinks: dict[str, PhysicalSink] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _blanks: dict[str, ComparedRow] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path) -> JobUnderTest:
        """Load the job from its file. Raises JobError."""
        return cls(load(file))

    def sink(self, name: str) -> PhysicalSink:
        """Return the plan of a sink. Raises PlanError or JobError."""
        if name not in self._sinks:
            self._sinks[name] = plan(self.job, name)
        return self._sinks[name]

    def table(self, name: str) -> Record:
        """Return the columns of a table. Raises JobError."""
        if name not in self._records:
            self._records[name] = declared(self.job, name)
        return self._records[name]

    def blank(self, table: str) -> ComparedRow:
        """Return the values of omitted columns: NULL or, for NOT NULL columns, zero, empty text or no elements."""
        if table not in self._blanks:
            record = self.table(table)
            packed = b"".join(nothing(each.type) for each in record.fields)
            self._blanks[table] = decode(record, pa.array([packed], pa.binary()))[0]
        return self._blanks[table]

    def columns(self, of: Expectation) -> Record:
        """Return the columns of the rows that an expectation is about."""
        return self.table(of.name) if of.of == "late" else self.sink(of.name).value

    @cached_property
    def records(self) -> Mapping[str, Record]:
        """The columns of every table. Raises JobError."""
        return {name: self.table(name) for name in self.job.tables}


def op_key(record: Record) -> str:
    """Return the key of the row kind beside the columns of a record."""
    return "__op" if "op" in record.names else "op"


def files_of_tests(job: Path) -> list[Path]:
    """Return the files of tests of a job, `NAME.tests.yaml` and `NAME.*.tests.yaml`. Raises NoTestsError."""
    stem = job.with_suffix("").name
    found = sorted(job.parent.glob(f"{stem}{SUFFIX}")) + sorted(job.parent.glob(f"{stem}.*{SUFFIX}"))
    if not found:
        raise NoTestsError(f"{job} has no tests: write them in {job.with_name(stem + SUFFIX)}, or name a file of tests")
    return found


def job_of(file: Path) -> Path:
    """Return the job of a file of tests: the file beside it with the longest beginning of its name.

    Raises NoTestsError.
    """
    name = file.name.removesuffix(SUFFIX)
    while name:
        for ending in (".yaml", ".yml"):
            if (job := file.with_name(name + ending)).is_file():
                return job
        name = name.rpartition(".")[0]
    expected = file.with_name(f"{file.name.removesuffix(SUFFIX)}.yaml")
    raise NoTestsError(f"{file} has no job: there is no {expected} in the same folder")
