"""Keep state longer by the allowed lateness, so that rows that are late by no more than that are still processed.

    watermark: {column: placed, delay: 5s, allowed_lateness: 1h}

Everything that a watermark closes (`passes.derive_state_cleanup`) is closed later, by the longest `allowed_lateness` of
the tables that its clock follows: rows become late later, and are kept longer. Final rows are still emitted as early as
before (`passes.delay_until_final`), and late rows correct them afterwards. But unmatched rows wait longer
(`passes.delay_null_padding`), so that they need not be retracted. Row patterns are not closed later, because they read
their rows in order.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

from rowkind.service.physical.clocks import Clock, Closing, ColumnTime
from rowkind.service.plan.logical.grouping import LogicalAggregate, LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.passes.derive_state_cleanup import Tables, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.tree import bottom_up


def apply_allowed_lateness(query: Query) -> Query:
    """Close each input later by the lateness that its tables allow.

    >>> example(apply_allowed_lateness, '''
    ...     SELECT CAST(at AS DATE) AS day, COUNT(*) AS n FROM bids GROUP BY CAST(at AS DATE)''',
    ...     tables={"bids": {"mode": "append", "columns": {"item": "INT", "at": "TIMESTAMP NOT NULL"},
    ...         "watermark": {"column": "at", "delay": "5s", "allowed_lateness": "1h"}}})
    Aggregate input.closing=(bids passes day + 1d 1us) group=[day] calls=[n: count()]
      Project day: CAST(bids.at AS DATE)
    becomes
    Aggregate input.closing=(bids passes day + 1d 1h 1us) group=[day] calls=[n: count()]
      Project day: CAST(bids.at AS DATE)
    """
    tables = timed_tables(query.root)
    if not any(allowed_ms(tables, Clock(((name, 0),))) for name in tables):
        return query
    return replace(query, root=bottom_up(query.root, partial(_visit, tables)))


def allowed_ms(tables: Tables, clock: Clock) -> int:
    """Return how late rows may be for operators that follow this clock, in ms."""
    marks = (tables[name].watermark for name, _ in clock.tables if name in tables)
    return max((mark.allowed_ms for mark in marks if mark is not None), default=0)


def _visit(tables: Tables, node: LogicalNode) -> LogicalNode:
    if isinstance(node, LogicalAggregate) and node.ending is not None:
        ending = node.ending
        node = replace(node, ending=replace(ending, at=_later(ending.at, allowed_ms(tables, ending.clock))))
    if isinstance(node, LogicalMatch):
        return node
    sides = {each.name: getattr(node, each.name) for each in fields(node)}
    closed: dict[str, Any] = {
        name: replace(side, closing=_closed_later(tables, side.closing))
        for name, side in sides.items()
        if isinstance(side, LogicalInput) and side.closing is not None
    }
    return replace(node, **closed) if closed else node


def _closed_later(tables: Tables, closing: Closing) -> Closing:
    by = allowed_ms(tables, closing.clock)
    kept = None if closing.kept is None else _later(closing.kept, by)
    return Closing(closing.clock, _later(closing.late, by), kept)


def _later(time: ColumnTime, ms: int) -> ColumnTime:
    return replace(time, later_us=time.later_us + ms * 1000)
