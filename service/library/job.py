"""`rowkind.Job`: work with a job file from Python, without the command line. Only `start` needs Kafka."""

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
"""A change, `{"table": "orders", "op": "+I", "row": {…}}`, or a new time of the clock, `{"clock": …}`."""


class SinkError(RowkindError):
    """The job does not have the requested sink, or it has several sinks and none was chosen."""

    exit_code = REFUSED


class LoadedJob:
    """A job that was loaded from its file: `rowkind.Job`. Its methods raise only RowkindErrors."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @classmethod
    def load(cls, path: str | Path, environment: Mapping[str, str] | None = None) -> Self:
        """Load the job from a file. References are replaced from `environment`, by default the process's.

        Raises JobError with all problems in the file.
        """
        return cls(load(path, environment))

    @property
    def name(self) -> str:
        """The job's name."""
        return self._job.name

    @property
    def file(self) -> Path:
        """The file from which the job was loaded."""
        return self._job.file

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the job's tables."""
        return tuple(self._job.tables)

    @property
    def sinks(self) -> tuple[str, ...]:
        """The names of the job's sinks."""
        return tuple(self._job.sinks)

    def check(self) -> None:
        """Plan the job's queries, without connecting to a broker. Raises PlanError with all problems in them."""
        planned_whole(self._job)

    def explain(self, sink: str | None = None) -> Plan:
        """Return the plan of the job's queries, or of one sink: a page in a notebook, otherwise a text tree.

        Raises PlanError, or SinkError if there is no such sink.
        """
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
        """Run a sink's query over changes in memory, without Kafka or Spark.

        Args:
            changes: a file of JSON lines, or the changes themselves, with Python values or values in their JSON form.
            sink: the name of the sink; optional if the job has only one.
            fold: return the rows that remain at the end, instead of the changes.
            batch_rows: the number of changes in a batch.
            open_: do not advance time at the end. By default, all watermarks and PROCTIME() advance past all times.

        Returns:
            A table with the columns `batch` (a number from 0), `op` (the row kind) and `row` (a struct of the result's
            columns). With `fold`, a table of the result's columns.

        Raises InputError for an invalid change, and RunError if the changes make the job fail.
        """
        query = plan(self._job, self._one(sink))
        if isinstance(changes, str | Path):
            try:
                with Path(changes).open(encoding="utf-8") as lines:
                    batches = trial.read(self._job, lines, str(changes), batch_rows)
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise InputError(f"the file of changes {changes} cannot be read: {why}") from None
        elif isinstance(changes, Iterable):
            batches = trial.read(self._job, changes, "changes", batch_rows)
        else:
            raise InputError(f"{changes!r} is neither a file of changes nor a list of changes: {trial.EXPECTED}")
        if not open_:
            trial.end(query, batches)
        engine = trial.in_memory(log.warning)
        if fold:
            return codec.table(query.value, trial.folded(self._job, query, batches, engine))
        return _changes(query, list(engine(self._job, query, batches)))

    def start(self, spark: SparkSession, *, upgrade: bool = False, reset_state: bool = False) -> StartedJob:
        """Start the job in a background thread of the caller's Spark session, like `rowkind run` in its own session.

        The job sets Spark options for its queries. The session determines Java's memory and the access to object
        stores. As for `rowkind run`, `upgrade` rebuilds the changed queries, and `reset_state` rebuilds all queries.

        Raises the errors of the job and its topics, and SparkStartError if the session is unsuitable.
        """
        from rowkind.service.run.background_job import StartedJob  # noqa: PLC0415 -- the rest of a job needs no Spark

        return StartedJob(self._job, spark, "everything" if reset_state else "what changed" if upgrade else "nothing")

    def _one(self, sink: str | None) -> str:
        """Return the name of the chosen or only sink. Raises SinkError."""
        if sink is None and len(self.sinks) > 1:
            raise SinkError(f"{self.file} has several sinks: choose one with sink= ({', '.join(self.sinks)})")
        if sink is not None and sink not in self.sinks:
            raise SinkError(f"{self.file}: there is no sink {sink!r}{near(sink, self.sinks)}")
        return sink or self.sinks[0]

    def __repr__(self) -> str:
        return f"<Job {self.name}: {', '.join(self.tables)} -> {', '.join(self.sinks)}>"


def _changes(sink: PhysicalSink, batches: list[Changes]) -> pa.Table:
    """Return the changes of all batches as one table."""
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
