# ruff: noqa: S608 - every name in a statement is quoted
"""Which rows of the sources surely count: rows that may have expired, or may have been late, are in doubt.

If any row is in doubt, a sink's result is computed several times: with all rows, with those that surely count, and with
random parts of the others. A row of the result that is equal in all of them is taken not to depend on a row in doubt,
and is compared. Without the random parts, rows in doubt whose sum is 0 would not be noticed.

- TTL: a row expires a TTL after the batch in which it was read. The recorded batches tell which offsets had been read
  by then. All rows from there on surely count.
  The results of an expired row stay if it is updated or deleted later. Below an operator that needs the retraction of
  the old row, such as SUM, nothing surely counts, and the sink is not compared.
- Watermarks: a row is late if the watermark of the batches before has passed its time. The watermark is at most the
  highest time before the row in its own partition, unless the partition may have been idle; then it is at most the
  highest time of all. Rows behind this bound are in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from duckdb import DuckDBPyConnection

from rowkind.service.client.folded_topics import FoldedTable
from rowkind.service.kafka.offsets import Offset
from rowkind.service.physical.source_table import Watermark
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import (
    LogicalExpand,
    LogicalFilter,
    LogicalProject,
    LogicalScan,
    LogicalUnion,
    LogicalWindow,
)
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.typed import quoted
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.tree import inputs, walk
from rowkind.service.verify.errors import NotComparedError

EXPIRED = "rows may have expired"


@dataclass(frozen=True)
class SureRows:
    """The rows of a table that surely count, and why others are in doubt. Both relations are in DuckDB's SQL.

    - `relation`: the rows that surely count. `some`: these, and a random part of the others.
    - `reasons`: why rows are in doubt; empty if all rows surely count.
    """

    relation: str
    some: str
    reasons: tuple[str, ...] = ()


def sure_rows(
    connection: DuckDBPyConnection, table: FoldedTable, batches: Sequence[Offset], ttl_ms: int | None, *, timed: bool
) -> SureRows:
    """Return a table's rows that surely count. `timed`: an operator follows the table's watermark.

    Raises NotComparedError.
    """
    relation, reasons, conditions = quoted(table.name), list[str](), list[str]()
    partition, offset, _ = map(quoted, table.own)
    if ttl_ms is not None and (alive := alive_from(batches, table.source.topic, ttl_ms)) is not None:
        kept = " ".join(f"WHEN {number} THEN {offset} >= {first}" for number, first in alive.items())
        conditions.append(f"CASE {partition} {kept} ELSE TRUE END")
        reasons.append(EXPIRED)
    watermark = table.source.watermark
    if timed and watermark is not None:
        if table.source.mode != "append":
            raise NotComparedError(f"table {table.source.table} has a watermark, and its rows may be updated")
        bound = f"max({_micros(watermark, own=False)}) OVER (PARTITION BY {partition} ORDER BY {offset})"
        if _may_idle(batches, table.source.topic, watermark.idle_ms):
            bound = f"max({_micros(watermark, own=False)}) OVER ()"
        on_time = f"coalesce({_micros(watermark, own=True)} >= {bound} - {watermark.delay_us}, TRUE)"
        late = connection.execute(f"SELECT 1 FROM {relation} QUALIFY NOT {on_time} LIMIT 1").fetchall()
        if late:
            conditions.append(on_time)
            reasons.append("rows may have been late")
    if not conditions:
        return SureRows(relation, relation)
    marked = f'SELECT *, {" AND ".join(conditions)} AS "#sure" FROM {relation}'
    shown = f'(SELECT * EXCLUDE ("#sure") FROM ({marked}) WHERE "#sure"'
    return SureRows(f"{shown})", f"{shown} OR random() < 0.5)", tuple(reasons))


def check_retractions(query: Query) -> None:
    """Raise NotComparedError if a row that expired may have needed a retraction later.

    If an expired row is updated or deleted, its results stay, so a sum may have both the old and the new row. The
    folded tables do not have the old row.
    """
    job = query.job
    tables = [each.on_expire or job.on_expire for each in job.tables.values()]
    if "forget" not in [*tables, *(hint.on_expire for hint in query.ttl_hints.values())]:
        return
    for node in walk(query.root):
        per_row = isinstance(node, LogicalScan | LogicalFilter | LogicalProject | LogicalUnion | LogicalExpand)
        inner = isinstance(node, LogicalJoin) and node.kind == "inner"
        if not per_row and not inner and any(map(_changes, inputs(node))):
            raise NotComparedError("rows that were updated or deleted later may have expired before")


def _changes(node: LogicalNode) -> bool:
    """Return whether rows of a node may be updated or deleted."""
    # A rank is not yet known as one before the passes.
    return produced(node) != "append" or any(isinstance(each, LogicalWindow) for each in walk(node))


def ttl_of(query: Query, table: str) -> int | None:
    """Return the shortest TTL that may apply to a table's rows, in ms, or None."""
    own = query.job.tables[table].ttl
    found = [hint.ttl_ms for hint in query.ttl_hints.values()]
    found += [each for each in (own if own is not None else query.job.ttl,) if each is not None]
    return min(found, default=None)


def alive_from(batches: Sequence[Offset], topic: str, ttl_ms: int) -> dict[int, int] | None:
    """Return, by partition, the offset from which no row of a topic has expired; None if none has at all."""
    first = next(each for each in batches if each.now > batches[-1].now - ttl_ms)
    if first.number == 0:
        return None
    return {partition: offset for (name, partition), offset in first.begin.items() if name == topic}


def watermark_at_least(connection: DuckDBPyConnection, table: FoldedTable, batches: Sequence[Offset]) -> int | None:
    """Return a time in µs that the watermark has surely reached before the last batch, or None."""
    watermark = table.source.watermark
    if watermark is None or len(batches) < 2 or table.source.mode != "append":
        return None
    partition, offset, _ = map(quoted, table.own)
    ends = {number: end for (topic, number), end in batches[-2].at.items() if topic == table.source.topic}
    read = " ".join(f"WHEN {number} THEN {offset} < {end}" for number, end in ends.items())
    found = connection.execute(
        f"SELECT {partition}, max({_micros(watermark, own=False)}) FROM {quoted(table.name)} "
        f"WHERE CASE {partition} {read} ELSE FALSE END GROUP BY ALL"
    ).fetchall()
    marks = dict(found)
    if set(marks) != set(ends) or any(mark is None for mark in marks.values()):
        return None
    return int(min(marks.values())) - watermark.delay_us


def _micros(watermark: Watermark, *, own: bool) -> str:
    time = watermark.of if own else watermark.time
    sql = f"CAST({time.sql} AS TIMESTAMP)" if family(time.type) == "date" else time.sql
    return f"epoch_us({sql})"


def _may_idle(batches: Sequence[Offset], topic: str, idle_ms: int) -> bool:
    """Return whether a partition of the topic may have been idle while another one had rows."""
    partitions = [at for at in batches[-1].at if at[0] == topic]
    if len(partitions) < 2:
        return False
    if batches[0].number != 0:
        return True
    for at in partitions:
        moments = [batches[0].now]
        moments += [later.now for before, later in pairwise(batches) if later.at.get(at, 0) > before.at.get(at, 0)]
        if any(later - before >= idle_ms for before, later in pairwise([*moments, batches[-1].now])):
            return True
    return False
