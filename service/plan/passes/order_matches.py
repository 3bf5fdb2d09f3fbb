"""Match row patterns over rows that no longer change, in an order that a watermark makes final.

Rows that may change, such as those of windows, are matched once they are final: a temporal filter buffers them until
the watermark has passed the time by which they are ordered. A change that arrives after that is late, as it is for a
sink that accepts only final rows. All rows that are due are released at once, because rows that were left for a later
batch would be late for the pattern. The results of OVER and of ranks that are ordered by that time are already final
(`passes.buffer_until_watermark`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rowkind.service.physical.clocks import Closing
from rowkind.service.plan.columns import kept
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical.grouping import LogicalMatch
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalOver
from rowkind.service.plan.logical.subset import LogicalTemporalFilter
from rowkind.service.plan.passes.apply_allowed_lateness import allowed_ms
from rowkind.service.plan.passes.derive_state_cleanup import Tables, passed, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.changelog_modes import updating
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.tree import rewritten

_UNTIMED = (
    ": order by the end of a window, or by another time that has a watermark, so that rows are matched when they are "
    "final. Or match the rows of a table with mode append, before another operator updates them"
)
_OVER_UNTIMED = (
    ": start the ORDER BY of OVER with the time that has a watermark, ascending, and use only frames that look back, "
    "or ahead by RANGE and an INTERVAL. LEAD and ROWS … FOLLOWING wait for the next row, and no watermark says when it "
    "arrives"
)


def order_matches(query: Query) -> Query:
    """Set the watermark that puts the rows of each row pattern in order.

    Raises Refusal if there is no such watermark, if rows change after it has passed, or if the time may be NULL.

    >>> example(order_matches, '''
    ...     SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY at MEASURES A.price AS p PATTERN (A B)) AS m''',
    ...     sink="append")
    Match order=[m.ticks.at] calls=[(call=(variables=[0], column=m.ticks.price))]
      Scan ticks m.ticks
    becomes
    Match input.closing=(ticks passes m.ticks.at + 1us) order=[m.ticks.at] calls=[(call=(variables=[0],
        column=m.ticks.price))]
      Scan ticks m.ticks
    """
    return replace(query, root=rewritten(query.root, {LogicalMatch: partial(_ordered, timed_tables(query.root))}))


def _ordered(tables: Tables, node: LogicalMatch) -> LogicalMatch:
    below = node.input.input
    time, changing = event_times(below).get(node.time), updating(below)
    found = None if time is None else passed(tables, node.time, time)
    if changing is not None and (found is None or allowed_ms(tables, found[0])):
        raise Refusal(
            f"MATCH_RECOGNIZE accepts only inserts, but {changing.changes}"
            + (
                _untimed(changing)
                if found is None
                else ", even after the watermark has passed: remove `allowed_lateness`"
            ),
            node.at,
        )
    if found is None:
        shown = node.time.rpartition(".")[2]
        raise Refusal(
            f"MATCH_RECOGNIZE needs a watermark to put rows in order, and there is none on {shown}: set "
            "`watermark: {column: …, delay: …}` for its table in the job file",
            node.at,
        )
    if kept(node.input)[node.time].nullable:
        raise Refusal(
            "the time of MATCH_RECOGNIZE may be NULL, and a row without a time has no place in the order: remove "
            f"such rows with WHERE {node.time.rpartition('.')[2]} IS NOT NULL in a derived table",
            node.at,
        )
    clock, moment = found
    closing = Closing(clock, moment, moment)
    if changing is not None:
        below = LogicalTemporalFilter(
            LogicalInput(below, closing=closing),
            clock,
            moment,
            None,
            final=True,
            reason="rows are matched once, when they are final",
            at=node.at,
        )
    return replace(node, input=replace(node.input, input=below, closing=closing))


def _untimed(node: LogicalNode) -> str:
    """Return the remedy for rows that may change and that no watermark makes final."""
    return _OVER_UNTIMED if isinstance(node, LogicalOver) else _UNTIMED
