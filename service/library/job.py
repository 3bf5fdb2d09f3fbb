"""`rowkind.Job`: work with a job from Python, without the command line. Only its topics and `start` need Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from rowkind.avro import codec
from rowkind.errors import REFUSED, RowkindError
from rowkind.service.job.load import load, loaded
from rowkind.service.library.job_graph import drawn
from rowkind.service.library.plan import Plan
from rowkind.service.library.result import Result, of_changes
from rowkind.service.physical.node import topic_sinks
from rowkind.service.plan.pipeline import plan
from rowkind.service.plan.sql.scope import near
from rowkind.service.query import trial
from rowkind.service.query.queries import planned, planned_whole
from rowkind.service.query.trial import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rowkind.service.client.consume import TopicChanges
    from rowkind.service.client.produce import Producer
    from rowkind.service.library.running_job import StartedJob

# As in any library, messages appear only if the program configures logging.
logging.getLogger("rowkind").addHandler(logging.NullHandler())

_TEXT = Path("<yaml>")
"""The name of a job file that is only a text, for messages."""

TrialLine = Mapping[str, Any]
"""A change, `{"table": "orders", "op": "+I", "row": {…}}`, or a new time of the clock, `{"clock": …}`."""


class SinkError(RowkindError):
    """The job does not have the requested sink, or it has several sinks and none was chosen."""

    exit_code = REFUSED


class LoadedJob:
    """A job: `rowkind.Job`. Its methods raise only RowkindErrors."""

    def __init__(self, path: str | Path, environment: Mapping[str, str] | None = None) -> None:
        """Load the job from a file. References are replaced from `environment`, by default the process's.

        Raises JobError with all problems in the file.
        """
        self._job = load(path, environment)

    @classmethod
    def from_yaml(cls, text: str, environment: Mapping[str, str] | None = None) -> Self:
        """Load the job from the text of a job file. Paths in the text are relative to the current folder.

        Raises JobError with all problems in the text.
        """
        job = cls.__new__(cls)
        job._job = loaded(text, _TEXT, environment)  # noqa: SLF001 - its own attribute
        return job

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
        batch_rows: int = 1,
        open_: bool = False,
    ) -> Result:
        """Run a sink's query over changes in memory, without Kafka or Spark.

        Args:
            changes: a file of JSON lines, or the changes themselves, with Python values or values in their JSON form.
            sink: the name of the sink; optional if the job has only one.
            batch_rows: the number of changes in a batch.
            open_: do not advance time at the end. By default, all watermarks and PROCTIME() advance past all times.

        Returns:
            The changes of the query's result: the number of the batch from 0, the row kind, and the row. `fold()` of
            the result has the rows that remain at the end.

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
        warnings: list[str] = []
        found = list(trial.in_memory(warnings.append)(self._job, query, batches))

        def fold() -> pa.Table:
            rows = trial.fold_of(query)
            for each in found:
                rows.apply(each)
            return codec.table(query.value, trial.in_order(query, rows))

        return Result(of_changes(query.value, found), fold, warnings)

    def create_topics(self) -> tuple[str, ...]:
        """Create the missing topics of tables and sinks, and register the sinks' schemas. Return the created topics.

        Raises the errors of the job, of Kafka and of the registry.
        """
        from rowkind.service.query.topics import connect, create, register  # noqa: PLC0415 -- the rest needs no Kafka

        self._job.check_runnable()
        queries, connection = planned_whole(self._job), connect(self._job)
        created = tuple(create(self._job, queries, connection, sources=True))
        for sink in topic_sinks(sink for query in queries.values() for sink in query.sinks):
            register(sink, connection)
        return created

    def producer(self, table: str) -> Producer:
        """Return a context manager that writes to a table's topic. Raises OutsideError, JobError or RegistryError."""
        from rowkind.service.client.produce import Producer  # noqa: PLC0415 -- as above

        return Producer(self._job, table)

    def changes(self, name: str, *, follow: bool = False) -> TopicChanges:
        """Return the committed changes of a sink's or table's topic, for `for` and for `async for`.

        If `follow` is set, they never end. Raises OutsideError, JobError, PlanError or RegistryError.
        """
        from rowkind.service.client.consume import changes  # noqa: PLC0415 -- as above

        return changes(self._job, name, follow=follow)

    def read(self, name: str) -> Result:
        """Return the rows that the topic of a sink or table represents now. Raises the errors of `changes`."""
        from rowkind.service.client.consume import table  # noqa: PLC0415 -- as above

        return Result(table(self._job, name))

    def start(
        self, spark: SparkSession | None = None, *, upgrade: bool = False, reset_state: bool = False
    ) -> StartedJob:
        """Start the job in a background thread. Nothing is printed; `wait_ready` waits for the first results.

        Without `spark`, Rowkind starts a Spark session for all jobs of this process. With `spark`, the job runs in the
        caller's session, which determines Java's memory and the access to object stores. As for `rowkind run`,
        `upgrade` rebuilds the changed queries, and `reset_state` rebuilds all queries.

        Raises the errors of the job and its topics, and SparkStartError if the session is unsuitable.
        """
        from rowkind.service.library.running_job import StartedJob  # noqa: PLC0415 -- the rest of a job needs no Spark

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

    def _repr_html_(self) -> str:
        """Return a picture of the job: tables, queries and sinks."""
        return drawn(self._job)
