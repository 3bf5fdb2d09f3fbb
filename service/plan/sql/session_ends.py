"""Plans session ends: a session's end is its last time plus the gap.

If the session end is a column of each row, all rows of a session are emitted again whenever its end moves
(`operators.time.session`). So rows have this column only if the query reads it. If possible, an aggregate over whole
sessions computes the end instead:

    … GROUP BY k, window_start, window_end      … MAX(ts) + gap GROUP BY k, window_start

This is possible only if each group contains all rows of one session. If a filter removes rows, or if groups are finer
than sessions, a group's last time may differ from the session's last time, so the end remains a column. The end also
remains a column if the query does not read it, but a watermark closes the groups by it (`passes.derive_state_cleanup`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.per_row import LogicalSession
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.time_windows import WindowEnd, interval
from rowkind.service.plan.traits.column_meanings import meaning, moved
from rowkind.service.plan.tree import first, over, walk, with_inputs


def with_ends(node: LogicalNode) -> LogicalNode:
    """Return the plan without session end columns that are not needed."""
    session = _session(node.input.input if isinstance(node, LogicalAggregate) else node)
    if session is None or session.end is None:
        return with_inputs(node, with_ends)
    if isinstance(node, LogicalAggregate):
        return _grouped(node, session, session.end)
    if not _of_end(node, session.end) and not _filtered_by(node, session.end):
        return _without_end(node, session.end)
    return _with_end(node)


def _session(node: LogicalNode) -> LogicalSession | None:
    """Return the session node below filters and projections, or None if there is none."""
    while isinstance(node, LogicalFilter | LogicalProject) and not (isinstance(node, LogicalProject) and node.view):
        node = node.input
    return node if isinstance(node, LogicalSession) else None


def _of_end(node: LogicalNode, end: str) -> frozenset[str]:
    """Return the columns of a node that are computed from the session end."""
    return frozenset(name for name in columns(node) if end in reads(meaning(node, resolved(name))))


def _conditions(node: LogicalNode) -> Iterator[exp.Expr]:
    """Yield the conditions of all filters between a node and its session, rewritten over the session's columns."""
    while isinstance(node, LogicalFilter | LogicalProject):
        if isinstance(node, LogicalFilter):
            yield from (meaning(node.input, each) for each in node.conjuncts)
        node = node.input


def _filtered_by(node: LogicalNode, end: str) -> bool:
    """Return whether a filter between a node and its session reads the session end."""
    return any(end in reads(each) for each in _conditions(node))


def _with_end(node: LogicalNode, more: str = "") -> LogicalNode:
    """Return a node over sessions with the session end as a column. If `more` is given, add that session column."""
    if isinstance(node, LogicalFilter):
        return over(node, _with_end(node.input, more))
    if not isinstance(node, LogicalProject):
        return with_inputs(node, with_ends)
    kept = {more: resolved(more)} if more else {}
    return replace(node, input=_with_end(node.input, more), outputs={**node.outputs, **kept})


def _without_end(node: LogicalNode, end: str, more: str = "") -> LogicalNode:
    """Return a node without columns computed from the session end. If `more` is given, add that session column."""
    if isinstance(node, LogicalSession):
        return replace(over(node, with_ends(node.input.input)), end=None)
    below = _without_end(first(node), end, more)
    if not isinstance(node, LogicalProject):
        return over(node, below)
    gone = _of_end(node, end)
    outputs = {name: output for name, output in node.outputs.items() if name not in gone}
    kept = {more: resolved(more)} if more else {}
    return replace(node, input=below, outputs={**outputs, **kept})


def _grouped(node: LogicalAggregate, session: LogicalSession, end: str) -> LogicalNode:
    """Return an aggregate over sessions, whose end remains a column only if the aggregate needs it."""
    rows = node.input.input
    read = frozenset[str]().union(*(call.reads for call in node.calls.values()))
    ends = _of_end(rows, end)
    filtered = _filtered_by(rows, end)
    asked = filtered or bool(ends & read.union(node.group))
    closes = any(isinstance(each, LogicalScan) and each.source.watermark is not None for each in walk(session))
    groups = {name: meaning(rows, resolved(name)) for name in node.group}
    starts = [name for name, meant in groups.items() if meant == resolved(session.start)]
    below = _Below(session)
    by_session = bool(starts) and below.parts <= set(map(below.meaning, groups.values()))
    if not asked and not (closes and by_session):
        return replace(node, input=LogicalInput(_without_end(rows, end)))
    alone = all(reads(groups[name]) == {end} for name in ends.intersection(node.group))
    if by_session and alone and not filtered and not ends & read and below.agree(*groups.values(), *_conditions(rows)):
        return _with_last(node, session, ends, starts[0])
    if not (by_session and closes) or any(moved(each) == resolved(end) for each in groups.values()):
        return replace(node, input=LogicalInput(_with_end(rows)))
    # All rows of a group have the same end, by which a watermark closes the group.
    closed = replace(node, input=LogicalInput(_with_end(rows, end)), group=(*node.group, end))
    return LogicalProject(closed, {name: resolved(name) for name in columns(node)})


@dataclass(frozen=True)
class _Below:
    """Rewrites expressions over a session's columns as expressions over the rows below it."""

    session: LogicalSession

    @property
    def parts(self) -> set[exp.Expr]:
        """The columns by which rows are partitioned into sessions."""
        return {self.meaning(resolved(name)) for name in self.session.partition}

    def meaning(self, expression: exp.Expr) -> exp.Expr:
        """Rewrite an expression over the session's columns as one over the rows below it."""
        return meaning(self.session.input.input, expression)

    def agree(self, *expressions: exp.Expr) -> bool:
        """Return whether each expression has the same value in all rows of a session."""
        session = self.session
        fixed = {*session.partition, session.start, session.end}
        return all(reads(each) <= fixed or self.meaning(each) in self.parts for each in expressions)


def _with_last(node: LogicalAggregate, session: LogicalSession, ends: frozenset[str], start: str) -> LogicalProject:
    """Return an aggregate over whole sessions that computes each session's last time.

    `start` is the group column that holds the session's start.
    """
    assert session.end is not None, "the caller has checked that the session has an end"
    rows, last, time = node.input.input, session.last, session.time
    type_ = columns(session)[session.start].as_nullable()
    call = LogicalAggregateCall("max", (time,), type_, at=exp.Max(this=resolved(time)))
    group = tuple(name for name in node.group if name not in ends)
    below = LogicalInput(_without_end(rows, session.end, time))
    # Every session has a row, but the result type of MAX is still nullable.
    found = exp.Coalesce(this=resolved(last), expressions=[resolved(start)])
    meant = {session.end: WindowEnd(this=found, size=interval(session.gap))}
    outputs = {
        name: substitute(meaning(rows, resolved(name)), meant) if name in ends else resolved(name)
        for name in columns(node)
    }
    return LogicalProject(replace(node, input=below, group=group, calls={**node.calls, last: call}), outputs)
