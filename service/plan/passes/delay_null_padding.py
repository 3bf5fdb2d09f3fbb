"""Delay the unmatched rows of interval joins until no match can arrive: null-padded rows, and the rows of anti joins.

An unmatched row that is emitted at once must be retracted if a match arrives later. So a temporal filter directly above
the join buffers the row until the watermark has passed the row's interval. If a match arrives in the meantime, the row
and its retraction cancel out in the filter. An outer interval join of inputs that only insert therefore never retracts
a row, as in Flink. Matched pairs are not delayed. The interval starts from the following time:

    LEFT JOIN        a.ts of a null-padded row, because its b.ts is NULL
    RIGHT JOIN       b.ts of a null-padded row
    FULL JOIN        the time of a null-padded row that is not NULL
    anti join        a.ts of every row

A row whose own time is NULL never matches, so it is emitted at once.

With `emit: changes`, unmatched rows are emitted at once and retracted when a match arrives. After every batch, the
output then equals the query's result over all rows received so far.

On a side whose unmatched rows are not emitted, rows whose time is NULL are filtered out below the join: such rows never
match, and no watermark ever passes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.clocks import ColumnTime
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.passes.apply_allowed_lateness import allowed_ms
from rowkind.service.plan.passes.derive_state_cleanup import Interval, Tables, interval, past, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.types import family
from rowkind.service.plan.traits.changelog_modes import produced
from rowkind.service.plan.tree import bottom_up

_WAITS = "#waits.{}"


def delay_null_padding(query: Query) -> Query:
    """Delay the unmatched rows of an interval join until no match can arrive, unless the sink wants changes.

    >>> example(delay_null_padding, '''
    ...     SELECT item FROM bids b WHERE NOT EXISTS (
    ...         SELECT 1 FROM bids c WHERE c.item = b.item AND c.at BETWEEN b.at AND b.at + INTERVAL '5' MINUTE)''',
    ...     sink="append")
    Join anti condition=[exists_1.c.at BETWEEN b.at AND b.at + INTERVAL '5' MINUTE] keys=[b.item =
        exists_1.c.item]
    becomes
    TemporalFilter clock=bids begins=b.at + 5m 1us final
      Join anti condition=[exists_1.c.at BETWEEN b.at AND b.at + INTERVAL '5' MINUTE] keys=[b.item =
          exists_1.c.item]
    """
    tables = timed_tables(query.root)
    if not tables:
        return query
    return replace(query, root=bottom_up(query.root, partial(_visit, tables, query.sink.emit == "changes")))


def _visit(tables: Tables, changes: bool, node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalJoin) or (found := interval(node, tables)) is None:
        return node
    join = replace(
        node,
        left=_with_time(node.left, found.bounds.left, stays=node.pads_left or node.kind in ("anti", "mark")),
        right=_with_time(node.right, found.bounds.right, stays=node.pads_right),
    )
    pads = node.pads_left or node.pads_right or node.kind == "anti"
    return _held(join, found, tables) if pads and found.bounds.whole and not changes else join


def _with_time(side: LogicalInput, time: str, *, stays: bool) -> LogicalInput:
    if stays or not columns(side.input)[time].nullable:
        return side
    return replace(side, input=LogicalFilter(side.input, (exp.Not(this=_is_null(time)),)))


def _held(join: LogicalJoin, found: Interval, tables: Tables) -> LogicalNode:
    """Return the join with a filter above it that releases unmatched rows once they have settled.

    The filter also waits for the allowed lateness.
    """
    left, right, below = found.bounds.left, found.bounds.right, columns(join)
    settled = found.left.settled, found.right.settled
    assert settled[0] is not None, "both bounds are known"
    assert settled[1] is not None, "both bounds are known"
    input_: LogicalNode = join
    if join.kind == "anti":
        time = past(left, settled[0])
    else:
        waits = exp.Case(ifs=[])
        if join.pads_left:
            waits = waits.when(_is_null(right), _moment(left, below))
        if join.pads_right:
            later = settled[1] - settled[0] if join.pads_left else 0
            waits = waits.when(_is_null(left), _moment(right, below, later))
        # The new column's name contains that of the user's column, because explain shows it.
        waiting = _WAITS.format((left if join.pads_left else right).rpartition(".")[2])
        input_ = LogicalProject(join, {name: resolved(name) for name in below} | {waiting: waits})
        time = past(waiting, settled[0] if join.pads_left else settled[1])
    final = all(produced(side.input) == "append" for side in join.sides)
    passing = LogicalTemporalFilter(
        LogicalInput(input_),
        found.clock,
        ColumnTime(time.column, time.later_us + allowed_ms(tables, found.clock) * 1000, null="always"),
        None,
        final=final,
        reason="unmatched rows are emitted when no match can arrive any more",
        at=join.at,
    )
    return passing if input_ is join else LogicalProject(passing, {name: resolved(name) for name in below})


def _moment(name: str, below: Mapping[str, Type], later_us: int = 0) -> exp.Expr:
    """Return a column's time as a TIMESTAMP, plus `later_us` microseconds."""
    time: exp.Expr = resolved(name)
    if family(below[name]) != "timestamp":
        time = exp.cast(time, exp.DataType.build("TIMESTAMP"))
    if not later_us:
        return time
    return exp.Add(this=time, expression=exp.Interval(this=exp.Literal.string(later_us), unit=exp.var("MICROSECOND")))


def _is_null(name: str) -> exp.Expr:
    return exp.Is(this=resolved(name), expression=exp.Null())
