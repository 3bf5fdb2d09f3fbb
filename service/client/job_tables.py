# ruff: noqa: S608 - names in statements are quoted, and queries are the user's own
"""Query the topics of a job in DuckDB's SQL: each table and sink is a table that is folded when a query names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from rowkind.errors import REFUSED, RowkindError
from rowkind.service.client.as_of import AsOf
from rowkind.service.client.duckdb_columns import distinct_names
from rowkind.service.client.external_table import readable_topic, table_topic
from rowkind.service.client.folded_topics import FoldedTopics, ReadProgress
from rowkind.service.client.query_names import DEAD_LETTERS, job_tables
from rowkind.service.job.model import Job
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.offsets import At
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.sql.scope import near

_RESULTS = "results"
"""The DuckDB schema of a followed query's results."""
_AT_ONCE = 50_000
_UNKNOWN = re.compile(r"Catalog Error: Table with name (.+) does not exist!")
"""DuckDB's message. DuckDB then suggests its own tables, because the job's tables do not exist yet."""
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_PLAIN = frozenset(
    {"boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint", "hugeint"}
    | {"float", "double", "decimal", "varchar", "blob", "uuid", "date", "time", "timestamp", "timestamp_s"}
    | {"timestamp_ms", "timestamp_ns", "timestamp with time zone", "timestamptz_ns"}
)
"""DuckDB's types whose values are shown by their Arrow type. Values of other types are shown as DuckDB's text."""


class QueryError(RowkindError):
    """A query that DuckDB refuses, or that fails. The message is DuckDB's."""

    exit_code = REFUSED


@dataclass(frozen=True)
class QueryResult:
    """The result of a statement. `columns` are distinct; `numbers` are those with numbers; `types` are DuckDB's.

    `batches` may be iterated once, before the next statement; it raises QueryError.
    """

    columns: Sequence[str]
    types: Sequence[str]
    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    @property
    def numbers(self) -> frozenset[str]:
        """The names of the columns with numbers."""
        found = zip(self.columns, self.types, strict=True)
        return frozenset(
            name for name, type_ in found if type_.removeprefix("U").startswith(_NUMBERS) and not type_.endswith("]")
        )


class JobTables:
    """The sinks and tables of a job, in a temporary DuckDB database. `tables` has them by name.

    `letters`: reads the dead letters as Arrow tables, which have the columns `_partition` and `_offset`. `moment`: the
    moment at which topics are read, None for now.
    """

    def __init__(
        self,
        job: Job,
        letters: Callable[[], Iterable[pa.Table]],
        *,
        moment: AsOf | None = None,
        progress: ReadProgress | None = None,
    ) -> None:
        self.job = job
        self.tables = job_tables(job)
        self._letters = letters
        self._moment = moment
        self._topics = FoldedTopics(job, progress=progress)
        self._queries = self._topics.connection.cursor()
        self._cluster = Cluster(job.brokers)
        self._sources: dict[str, SourceTable] = {}
        self._reported: dict[str, int] = {}
        self._letters_at: Mapping[At, int] | None = None

    def source(self, name: str) -> SourceTable:
        """Return the topic of a table or sink.

        Raises OutsideError if there is no topic, JobError, PlanError or RegistryError.
        """
        if name not in self._sources:
            of = self.tables[name].of
            found = readable_topic(self.job, of) if self.tables[name].kind == "sink" else table_topic(self.job, of)
            self._sources[name] = replace(found, table=name)
        return self._sources[name]

    def named_in(self, statement: str) -> list[str]:
        """Return the tables that a statement may read. A name that occurs for another reason may be among them."""
        known = {name.lower(): name for name in self.tables}
        try:
            named = self._queries.get_table_names(statement)
        except duckdb.Error:
            # DuckDB binds the query, which fails if the tables do not exist yet. Its tokens name them anyway.
            starts = [start for start, _ in duckdb.tokenize(statement)]
            named = {statement[start:end].strip().strip('"') for start, end in pairwise([*starts, len(statement)])}
        return sorted({known[each.lower()] for each in named if each.lower() in known})

    def refresh(self, names: Iterable[str]) -> bool:
        """Read what is new in the topics of these tables. Return whether anything was.

        Raises ChangelogError, and the errors of `source`.
        """
        due = [*names]
        sources = {name: self.source(name) for name in due if self.tables[name].kind != "dead letters"}
        topics = {self.tables[name].topic for name in due}
        partitions = self._cluster.topics(topics).partitions if topics else ()
        ends = self._moment.ends(self._cluster, partitions) if self._moment else self._cluster.ends(partitions)
        changed = False
        for name in due:
            own = {at: end for at, end in ends.items() if at[0] == self.tables[name].topic}
            if name not in sources:
                changed |= self._read_letters(own)
                continue
            before = self._topics.tables.get(name)
            if before is None or before.at != own:
                with _refused():
                    self._topics.fold(sources[name], name, own)
                changed = True
        return changed

    def undecodable(self) -> dict[str, tuple[int, str]]:
        """Return, by table, the number of records that could not be decoded, and what is wrong with the first one.

        Tables for which this number has not changed since the last call are left out.
        """
        found = {
            name: (table.undecodable, f"partition {first.partition}, offset {first.offset}: {first.message}")
            for name, table in self._topics.tables.items()
            if (first := table.first_undecodable) is not None and table.undecodable != self._reported.get(name)
        }
        self._reported |= {name: count for name, (count, _) in found.items()}
        return found

    def ask(self, statement: str, *, refresh: bool = True) -> QueryResult:
        """Run a statement over the tables that it names, and return its result. Raises QueryError or ChangelogError."""
        if refresh:
            self.refresh(self.named_in(statement))
        with self._refused_by_name():
            relation = self._queries.sql(statement)
            if relation is None:
                return QueryResult((), (), pa.schema([]), iter(()))
            names = distinct_names(relation.columns)
            shown = [
                f"{f'#{number}' if _plain(type_) else f'#{number}::VARCHAR'} AS {quoted(name)}"
                for number, (name, type_) in enumerate(zip(names, relation.types, strict=True), 1)
            ]
            types = tuple(map(str, relation.types))
            if any("::VARCHAR" in each for each in shown) or names != relation.columns:
                relation = relation.project(", ".join(shown))
            reader = relation.to_arrow_reader(_AT_ONCE)
        return QueryResult(tuple(names), types, reader.schema, _read(reader))

    def compared(self, query: str) -> Callable[[], Iterator[tuple[str, QueryResult]]]:
        """Return a function that runs a query and compares its result with the one before, which is empty at first.

        The function yields two results: the rows that the result has lost, and those that it has gained, with the row
        kinds -D and +I. It raises QueryError.
        """
        before, after = f'{_RESULTS}."before"', f'{_RESULTS}."after"'
        query = query.rstrip(" ;\n")
        run = self._queries.execute
        with _refused():
            run(f"CREATE SCHEMA IF NOT EXISTS {_RESULTS}")
            run(f"CREATE OR REPLACE TABLE {before} AS SELECT * FROM ({query}) LIMIT 0")

        def compare() -> Iterator[tuple[str, QueryResult]]:
            with _refused():
                run(f"CREATE OR REPLACE TABLE {after} AS {query}")
            yield "-D", self.ask(f"FROM {before} EXCEPT ALL FROM {after}", refresh=False)
            yield "+I", self.ask(f"FROM {after} EXCEPT ALL FROM {before}", refresh=False)
            with _refused():
                run(f"DROP TABLE {before}")
                run(f'ALTER TABLE {after} RENAME TO "before"')

        return compare

    def describe(self, name: str) -> list[tuple[str, str]]:
        """Return the columns of a table with DuckDB's types. Raises QueryError, or an error in the job."""
        if self.tables[name].kind == "dead letters":
            self.refresh([name])
        elif name not in self._topics.tables:
            self._topics.declare(self.source(name), name)
        return [(str(row["column_name"]), str(row["column_type"])) for row in self._rows(f"DESCRIBE {quoted(name)}")]

    def words(self) -> list[str]:
        """Return the keywords and functions of DuckDB's SQL."""
        keywords = [str(row["keyword_name"]).upper() for row in self._rows("FROM duckdb_keywords()")]
        functions = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name ~ '^[a-z]\\w+$'"
        return [*keywords, *(str(row["function_name"]) for row in self._rows(functions))]

    def close(self) -> None:
        """Remove the database."""
        self._queries.close()
        self._topics.close()

    @contextmanager
    def _refused_by_name(self) -> Iterator[None]:
        """Turn DuckDB's errors into QueryError. If a table does not exist, suggest one of the job's."""
        try:
            with _refused():
                yield
        except QueryError as error:
            if (unknown := _UNKNOWN.match(str(error))) is None:
                raise
            raise QueryError(f"there is no table {unknown[1]!r}{near(unknown[1], self.tables)}") from None

    def _rows(self, statement: str) -> list[dict[str, Any]]:
        return [row for batch in self.ask(statement, refresh=False).batches for row in batch.to_pylist()]

    def _read_letters(self, ends: Mapping[At, int]) -> bool:
        """Read all dead letters up to the ends, because a replay marks earlier ones. Return whether there is news."""
        if ends == self._letters_at:
            return False
        connection = self._topics.connection
        bounds = {"_partition": [at[1] for at in ends], "end": list(ends.values())}
        connection.register("ends", pa.table(bounds))
        for number, part in enumerate(self._letters()):
            connection.register("part", part)
            verb = f"CREATE OR REPLACE TABLE {DEAD_LETTERS} AS" if not number else f"INSERT INTO {DEAD_LETTERS}"
            query = 'SELECT part.* FROM part JOIN ends USING (_partition) WHERE _offset < "end"'
            connection.execute(f"{verb} {query}")
            connection.unregister("part")
        connection.unregister("ends")
        self._letters_at = ends
        return True


def statements(text: str) -> list[str]:
    """Divide a text into statements. Raises QueryError."""
    with _refused():
        return [each.query.strip() for each in duckdb.connect().extract_statements(text) if each.query.strip(" ;\n")]


def _plain(type_: Any) -> bool:
    """Return whether values of a type are shown by their Arrow type."""
    if type_.id in ("list", "struct", "map"):
        return all(_plain(child) for _, child in type_.children)
    return type_.id in _PLAIN


@contextmanager
def _refused() -> Iterator[None]:
    """Turn DuckDB's errors into QueryError, and its interruption into KeyboardInterrupt."""
    try:
        yield
    except duckdb.Error as error:
        raise QueryError(str(error).strip()) from None
    except RuntimeError as error:
        if "nterrupt" not in str(error):
            raise
        raise KeyboardInterrupt from None


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        while True:
            with _refused():
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    return
                except (pa.ArrowInvalid, OSError) as error:
                    raise QueryError(str(error)) from None
            yield batch
    finally:
        reader.close()
