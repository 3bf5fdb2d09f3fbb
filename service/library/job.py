"""`rowkind.Job`: a job file in somebody's own Python, without a command line and without Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.errors import REFUSED, RowkindError
from rowkind.operators.changelog import SYMBOLS
from rowkind.operators.columns.changes import Changes
from rowkind.service.job.load import load
from rowkind.service.job.model import Job
from rowkind.service.library.plan import Plan
from rowkind.service.physical.node import PhysicalSink
from rowkind.service.plan.pipeline import plan
from rowkind.service.plan.sql.scope import near
from rowkind.service.query import trial
from rowkind.service.query.queries import planned, planned_whole
from rowkind.service.query.trial import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rowkind.service.run.background_job import StartedJob

log = logging.getLogger("rowkind")

TrialLine = Mapping[str, Any]
"""A change, `{"table": "orders", "op": "+I", "row": {…}}`, or the time from there on, `{"clock": …}`."""


class SinkError(RowkindError):
    """A job is asked for a sink that it has not, or for one of several without saying which."""

    exit_code = REFUSED


class LoadedJob:
    """A job that has been read from its file, `rowkind.Job`. Every error of its methods is a RowkindError."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @classmethod
    def load(cls, path: str | Path, environment: Mapping[str, str] | None = None) -> Self:
        """The job in a file, its references replaced from the process's environment unless another one is given.

        Raises JobError with everything that is wrong with it.
        """
        return cls(load(path, environment))

    @property
    def name(self) -> str:
        """The job's name."""
        return self._job.name

    @property
    def file(self) -> Path:
        """The file that it was read from."""
        return self._job.file

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables."""
        return tuple(self._job.tables)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The names of its sinks."""
        return tuple(self._job.sinks)

    def check(self) -> None:
        """Plan its queries, without touching a broker. Raises a PlanError with all that cannot be kept up to date."""
        planned_whole(self._job)

    def explain(self, sink: str | None = None) -> Plan:
        """The plan of its queries, or of one sink: a page in a notebook, a tree as text. Raises as `check` does."""
        if sink is not None:
            return Plan(self._job, {sink: [plan(self._job, self._one(sink))]})
        return Plan(self._job, {name: query.sinks for name, query in planned(self._job).items()})

    def try_(
        self,
        changes: str | Path | Iterable[TrialLine],
        sink: str | None = None,
        *,
        fold: bool = False,
        batch_rows: int = 1,
        open_: bool = False,
    ) -> pa.Table:
        """What a sink's query makes of changes, in memory, with neither Kafka nor Spark.

        Args:
            changes: a file of JSON lines, or the changes themselves; values are Python's or as JSON spells them.
            sink: may be left out where the job has but one.
            fold: the rows that are left in the end, one to a row, in place of the changes that lead there.
            batch_rows: how many changes make a batch.
            open_: leave time where it is at the end, where else every watermark passes everything, and PROCTIME() too.

        Returns:
            A table with the columns `batch`, a number from 0, `op`, the row kind, and `row`, a struct of the result's
            columns; with `fold` a table of these columns themselves.

        Raises InputError for what is no change of a table, and a RunError where the job is to end by what it is given.
        """
        query = plan(self._job, self._one(sink))
        if isinstance(changes, str | Path):
            try:
                with Path(changes).open(encoding="utf-8") as lines:
                    batches = trial.read(self._job, lines, str(changes), batch_rows)
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise InputError(f"the file of changes {changes} cannot be read: {why}") from None
        elif isinstance(changes, Iterable):
            batches = trial.read(self._job, changes, "changes", batch_rows)
        else:
            raise InputError(f"{changes!r} is no file of changes, nor changes: {trial.EXPECTED}")
        if not open_:
            trial.end(query, batches)
        engine = trial.in_memory(log.warning)
        if fold:
            return codec.table(query.value, trial.folded(self._job, query, batches, engine))
        return _changes(query, list(engine(self._job, query, batches)))

    def start(self, spark: SparkSession, *, upgrade: bool = False, reset_state: bool = False) -> StartedJob:
        """Run the job in a Spark session of the caller's, in a thread, as `rowkind run` runs it in one of its own.

        Its queries have settings of their own. Java's memory and the way to an object store are the session's. What is
        to be rebuilt is said as to `rowkind run`: with `upgrade` what has changed, with `reset_state` everything.

        Raises what is wrong with the job or its topics, and SparkStartError for a session that will not do.
        """
        from rowkind.service.run.background_job import StartedJob  # noqa: PLC0415 -- the rest of a job needs no Spark

        return StartedJob(self._job, spark, "everything" if reset_state else "what changed" if upgrade else "nothing")

    def _one(self, sink: str | None) -> str:
        """The name of the sink that is meant. Raises SinkError."""
        if sink is None and len(self.sinks) > 1:
            raise SinkError(f"{self.file} has several sinks: choose one with sink= ({', '.join(self.sinks)})")
        if sink is not None and sink not in self.sinks:
            raise SinkError(f"{self.file}: there is no sink {sink!r}{near(sink, self.sinks)}")
        return sink or self.sinks[0]

    def __repr__(self) -> str:
        return f"<Job {self.name}: {', '.join(self.tables)} -> {', '.join(self.sinks)}>"


def _changes(sink: PhysicalSink, batches: list[Changes]) -> pa.Table:
    """The changes of all batches as one table."""
    whole = Changes.concat(batches)
    numbers = np.repeat(np.arange(len(batches)), [len(each) for each in batches])
    rows = codec.table(sink.value, whole.payload)
    return pa.table(
        {
            "batch": pa.array(numbers, pa.int64()),
            "op": pa.array(SYMBOLS, pa.string()).take(pa.array(whole.kind)),
            "row": rows.to_struct_array() if len(rows) else pa.array([], pa.struct(rows.schema)),
        }
    )
