# ruff: noqa: S608 - every name in a statement is quoted
"""Fold topics to tables in DuckDB: a topic's changes become the rows that they result in.

    with FoldedTopics(job) as topics:
        topics.fold(readable_topic(topics.job, "totals"), "totals")
        topics.connection.sql("SELECT count(*) FROM totals")

An upsert topic has the last row of each primary key, and a retract topic has a multiset of rows: each row as often as
it was inserted more than retracted. An append topic has all rows. After the row's own columns, each table has three
more: `_partition`, `_offset` and `_timestamp` of the record that inserted the row last.

Changes are decoded as columns and collected in DuckDB, which folds them a few million at a time. DuckDB's memory is
limited. What exceeds the limit is in a temporary folder, which `close` removes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa

from rowkind.avro import codec
from rowkind.avro.same_rows import SameRows
from rowkind.operators.columns.arrival import ArrivalNumber
from rowkind.operators.columns.changes import WEIGHTS, Rows
from rowkind.service.client.consume import Between, Chunk, read
from rowkind.service.client.duckdb_columns import distinct_names, for_duckdb
from rowkind.service.client.external_table import JobFile, OutsideError, opened
from rowkind.service.kafka.cluster import Cluster
from rowkind.service.kafka.dead_letter import DeadLetter
from rowkind.service.kafka.generated_topic import GeneratedTopic
from rowkind.service.kafka.offsets import At
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.plan.scalar.typed import quoted

_MEMORY = "1GB"
_FOLD_ROWS = 2_000_000
"""The least number of changes that are folded at once; as long as changes arrive, it is also the number of rows."""

_GENERATED_AT_ONCE = 50_000
"""The number of offsets of a generated table that are computed at a time."""

ReadProgress = Callable[[str, int, int], None]
"""Receives a table's name, the number of changes read, and about how many there are; both are equal at the end."""

_OWN = ("_partition", "_offset", "_timestamp")
_SCHEMA = "folding"
"""The DuckDB schema of the tables behind the views."""


class FoldedTopics:
    """A temporary DuckDB database with topics folded to tables, each under a name that the caller chooses.

    - `connection`: the connection to the database, for queries.
    - `tables`: the tables by name.
    """

    def __init__(self, job: JobFile, *, memory: str = _MEMORY, progress: ReadProgress | None = None) -> None:
        """Open the database. `memory` limits what DuckDB keeps in memory. Raises JobError or OutsideError."""
        self.job = opened(job)
        self._progress = progress or (lambda _name, _read, _total: None)
        self._folder = tempfile.TemporaryDirectory(prefix="rowkind-sql-", ignore_cleanup_errors=True)
        try:
            self.connection = database(Path(self._folder.name), memory)
        except duckdb.ParserException as error:
            self._folder.cleanup()
            raise OutsideError(f"memory limit {memory!r} is not valid: write a size such as 1GB") from error
        self.tables: dict[str, FoldedTable] = {}

    def fold(
        self, source: SourceTable, name: str, ends: Mapping[At, int] | None = None, *, by_partition: bool = False
    ) -> FoldedTable:
        """Read a topic up to the given offsets, and make its rows the table `name`. Return the table.

        `ends`: the offsets after the last records to read, by topic and partition; None for all committed records. If
        the table exists, only the records since are read; if the table is already ahead of `ends`, it is made again.
        The changes of a generated table are computed for `ends`, with times since 1970 instead of since the job began.
        Records that cannot be decoded are skipped and counted. `by_partition`: an upsert topic has the last row of each
        key in each partition, so a key may have several rows. Raises ChangelogError.
        """
        if ends is None:
            cluster = Cluster(self.job.brokers)
            ends = cluster.ends(cluster.topics([source.topic]).partitions)
        table = self.declare(source, name, by_partition=by_partition)
        if any(end > ends.get(at, 0) for at, end in table.at.items()):
            table = self.tables[name] = FoldedTable(self.connection, source, name, by_partition=by_partition)
        if ends != table.at:
            total, done = sum(end - table.at.get(at, 0) for at, end in ends.items()), 0
            try:
                between = Between(ends, table.at)
                generated = source.generation is not None
                for chunk in (
                    _generated(source, between) if generated else read(self.job, source, tolerate=True, between=between)
                ):
                    table.add(chunk)
                    done += len(chunk.rows)
                    self._progress(name, min(done, total - 1), total)
                table.fold()
            except BaseException:
                # Some of the changes have been added. The next call starts from the beginning.
                del self.tables[name]
                raise
            finally:
                self._progress(name, total, total)
            table.at = dict(ends)
        return table

    def declare(self, source: SourceTable, name: str, *, by_partition: bool = False) -> FoldedTable:
        """Return the table `name` as it is. If it does not exist, or is of another topic, it has no rows yet."""
        table = self.tables.get(name)
        if table is None or (table.source, table.by_partition) != (source, by_partition):
            table = self.tables[name] = FoldedTable(self.connection, source, name, by_partition=by_partition)
        return table

    def close(self) -> None:
        """Close the database, and remove its files."""
        self.connection.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        """Return the database itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the database."""
        self.close()


def _generated(source: SourceTable, between: Between) -> Iterator[Chunk]:
    """Yield the changes of a generated table."""
    topic = GeneratedTopic(source, 0)
    for at, end in between.end.items():
        for first in range(between.begin.get(at, 0), end, _GENERATED_AT_ONCE):
            changes = topic.changes(first, min(end, first + _GENERATED_AT_ONCE))
            seq = ArrivalNumber.pack(changes.offset, np.zeros(len(changes.offset), np.int64))
            payload = codec.encode(source.declared, topic.columns(changes))
            yield Chunk(Rows(changes.kind.astype(np.int8), seq, payload), (), np.full(len(seq), -1))


def database(folder: Path, memory: str = _MEMORY) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database in a folder that nothing else uses."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "temp_directory": str(folder / "spilled"),
        # A query downloads no extension. Users can still write INSTALL and LOAD.
        "autoinstall_known_extensions": "false",
        # Only the job's topics are tables, not the variables of this program.
        "python_enable_replacements": "false",
    }
    connection = duckdb.connect(str(folder / "topics.duckdb"), config=settings)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE SCHEMA {_SCHEMA}")
    return connection


@dataclass
class FoldedTable:
    """A topic's rows in DuckDB, as a view with the given name.

    - `columns`: the names in DuckDB of the columns of `source.declared`, in order. DuckDB ignores case, so a name may
      have got an underscore. `own`: likewise the names of partition, offset and timestamp.
    - `at`: the offsets up to which the topic has been read.
    - `undecodable`: the number of records that could not be decoded, and `first_undecodable`, the first one.
    - `by_partition`: an upsert topic has the last row of each key in each partition.

    Behind the view are two tables: the rows, and the changes that have not been folded yet. Both have the same columns.
    `:order` numbers the changes in the order in which they were read. `:weight` is how often the row is there, negative
    if it was retracted more often than inserted; in the table of changes, 1 or -1. `:row`, in a retract topic only, is
    a digest of 128 bits, equal for rows that are equal in SQL.
    """

    connection: duckdb.DuckDBPyConnection
    source: SourceTable
    name: str
    at: dict[At, int] = field(default_factory=dict)
    undecodable: int = 0
    first_undecodable: DeadLetter | None = None
    columns: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    by_partition: bool = False

    def __post_init__(self) -> None:
        """Create the view and the two tables, without rows."""
        names = self.source.declared.names
        self.columns = tuple(distinct_names(names))
        self.own = tuple(distinct_names(_OWN, self.columns))
        self._rows, self._changes = f"{_SCHEMA}.{quoted(self.name)}", f"{_SCHEMA}.{quoted(f'{self.name}:changes')}"
        self._same = SameRows(self.source.declared)
        self._waiting = self._folded = self._next = 0
        self._insert(pa.table(self._columns(Rows.empty(), np.empty(0, np.int64))), create=True)
        shown = ", ".join(map(quoted, (*self.columns, *self.own)))
        once = f"SELECT {shown} FROM {self._rows}"
        if self.source.mode == "retract":
            often = f'{once}, range(":weight") WHERE ":weight" > 1'
            once = f'{once} WHERE ":weight" = 1 UNION ALL {often}'
        self.connection.execute(f"CREATE OR REPLACE VIEW {quoted(self.name)} AS {once}")

    def add(self, chunk: Chunk) -> None:
        """Add changes. The changes of a key must be added in order. The table has them after the next `fold`."""
        if chunk.letters:
            self.undecodable += len(chunk.letters)
            self.first_undecodable = self.first_undecodable or chunk.letters[0]
        rows, timestamp = chunk.rows, chunk.timestamp
        if chunk.truncation is not None:
            # A table whose truncations count has a single partition, so arrival numbers are in order.
            self._clear()
            after = rows.seq > chunk.truncation
            rows, timestamp = rows.filter(after), timestamp[after]
        if len(rows):
            self._insert(pa.table(self._columns(rows, timestamp)))
            self._waiting += len(rows)
            if self._waiting >= max(_FOLD_ROWS, self._folded):
                self.fold()

    def fold(self) -> None:
        """Apply the changes that were added to the rows."""
        if not self._waiting or self.source.mode == "append":
            return
        run = self.connection.execute
        key = [self.columns[self.source.declared.index(name)] for name in self.source.primary_key]
        key = [*key, self.own[0]] if self.by_partition else key
        by = ", ".join(map(quoted, key if self.source.mode == "upsert" else [":row"]))
        touched = f"SELECT {by} FROM {self._changes}"
        with self._transaction():
            if self.source.mode == "retract" and self._folded:
                rows = f"SELECT rows.* FROM {self._rows} rows SEMI JOIN ({touched}) USING ({by})"
                run(f"INSERT INTO {self._changes} {rows}")
            if self._folded:
                run(f"DELETE FROM {self._rows} WHERE ({by}) IN ({touched})")
            last = (_LAST if self.source.mode == "upsert" else _NET).format(self._changes, by)
            # In any order and by one thread, fewer rows wait in memory to be written.
            run("SET preserve_insertion_order = false; SET threads = 1")
            try:
                run(f"INSERT INTO {self._rows} {last}")
            finally:
                run("RESET preserve_insertion_order; RESET threads")
            run(f"TRUNCATE {self._changes}")
        self._waiting = 0
        ((self._folded,),) = run(f"SELECT count(*) FROM {self._rows}").fetchall()

    @property
    def overdrawn(self) -> int:
        """The number of different rows that were retracted more often than they were inserted."""
        if self.source.mode != "retract":
            return 0
        ((found,),) = self.connection.execute(f'SELECT count(*) FROM {self._rows} WHERE ":weight" < 0').fetchall()
        return int(found)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def _clear(self) -> None:
        for table in {self._rows, self._target}:
            self.connection.execute(f"TRUNCATE {table}")
        self._waiting = self._folded = 0

    @property
    def _target(self) -> str:
        """The table to which changes are added. In an append topic, each change is a row."""
        return self._rows if self.source.mode == "append" else self._changes

    def _columns(self, rows: Rows, timestamp: Any) -> dict[str, pa.Array]:
        decoded = codec.read(self.source.declared, rows.payload)
        fields = zip(self.columns, self.source.declared.fields, strict=True)
        found = {name: for_duckdb(field.type, decoded.column(field.name)) for name, field in fields}
        times = pa.array(timestamp, mask=timestamp < 0).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
        partitions = ArrivalNumber.partitions(rows.seq).astype(np.int32)
        places = (partitions, ArrivalNumber.offsets(rows.seq), times)
        found |= dict(zip(self.own, map(pa.array, places), strict=True))
        if self.source.mode != "append":
            found[":weight"] = pa.array(WEIGHTS[rows.kind])
            found[":order"] = pa.array(np.arange(self._next, self._next + len(rows)))
            self._next += len(rows)
        if self.source.mode == "retract":
            found[":row"] = self._same(rows.payload)
        return found

    def _insert(self, changes: pa.Table, *, create: bool = False) -> None:
        """Add changes to their table. Equal rows get equal digests."""
        digest = ' REPLACE (md5_number(":row") AS ":row")' if self.source.mode == "retract" else ""
        self.connection.register("added", changes)
        try:
            for table in {self._rows, self._changes} if create else {self._target}:
                begin = f"CREATE OR REPLACE TABLE {table} AS" if create else f"INSERT INTO {table}"
                self.connection.execute(f"{begin} SELECT *{digest} FROM added")
        finally:
            self.connection.unregister("added")


_LAST = """
    SELECT * FROM {0} SEMI JOIN (SELECT max(":order") AS ":order" FROM {0} GROUP BY {1}) USING (":order")
    WHERE ":weight" > 0
"""
_NET = """
    SELECT changes.* REPLACE (net.weight AS ":weight")
    FROM {0} changes JOIN (
        SELECT
            sum(":weight")::BIGINT AS weight,
            coalesce(max(":order") FILTER (":weight" > 0), max(":order")) AS ":order"
        FROM {0} GROUP BY {1} HAVING weight <> 0
    ) net USING (":order")
"""
