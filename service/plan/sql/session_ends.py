"""When sessions end: the largest time of each, and the gap.

All rows of a session come again when its end moves, if they have it as a column (`operators.session`). So they have it
where it is asked for, and not where an aggregate knows it as well:

    … GROUP BY k, window_start, window_end      … MAX(ts) + gap GROUP BY k, window_start

That is where the rows are grouped by sessions anyway, and their end is read for nothing else; also where nobody asks
for the end, but a watermark passes it (`passes.close_inputs`).
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.service.plan.calls import LogicalCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalFilter,
    LogicalInput,
    LogicalNode,
    LogicalProject,
    LogicalScan,
    LogicalSession,
)
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.scalar.time_windows import WindowEnd, interval
from rowkind.service.plan.tree import walk, with_inputs


def with_ends(node: LogicalNode) -> LogicalNode:
    """The plan with sessions that have a column for their end only where it is asked for."""
    session = _session(node.input.input if isinstance(node, LogicalAggregate) else node)
    if session is None or session.end is None:
        return with_inputs(node, with_ends)
    if isinstance(node, LogicalAggregate):
        return _grouped(node, session, session.end)
    if not _of_end(node, session.end) and not _filtered_by(node, session.end):
        return _without_end(node, session.end)
    return _with_end(node)


def _session(node: LogicalNode) -> LogicalSession | None:
    """The session below filters and projections."""
    while isinstance(node, LogicalFilter | LogicalProject) and not (isinstance(node, LogicalProject) and node.view):
        node = node.input
    return node if isinstance(node, LogicalSession) else None


def _of_end(node: LogicalNode, end: str) -> frozenset[str]:
    """The columns that are computed from the end of a session."""
    match node:
        case LogicalProject():
            below = _of_end(node.input, end)
            return frozenset(name for name, output in node.outputs.items() if reads(output) & below)
        case LogicalFilter():
            return _of_end(node.input, end)
        case _:
            return frozenset([end])


def _filtered_by(node: LogicalNode, end: str) -> bool:
    """Whether a filter asks for the end of a session."""
    match node:
        case LogicalProject():
            return _filtered_by(node.input, end)
        case LogicalFilter():
            below = _of_end(node.input, end)
            return any(reads(each) & below for each in node.conjuncts) or _filtered_by(node.input, end)
        case _:
            return False


def _with_end(node: LogicalNode) -> LogicalNode:
    """The same over sessions that have their ends."""
    match node:
        case LogicalFilter() | LogicalProject():
            return replace(node, input=_with_end(node.input))
        case _:
            return with_inputs(node, with_ends)


def _without_end(node: LogicalNode, end: str, more: str = "") -> LogicalNode:
    """The same without what is computed from the end of the session, and with the column `more` of it."""
    match node:
        case LogicalProject():
            gone = _of_end(node, end)
            outputs = {name: output for name, output in node.outputs.items() if name not in gone}
            kept = {more: resolved(more)} if more else {}
            return replace(node, input=_without_end(node.input, end, more), outputs={**outputs, **kept})
        case LogicalFilter():
            return replace(node, input=_without_end(node.input, end, more))
        case LogicalSession():
            return replace(node, input=replace(node.input, input=with_ends(node.input.input)), end=None)
        case _:
            raise AssertionError("there are filters and projections above a session")


def _meaning(node: LogicalNode, expression: exp.Expr, *, through: bool = False) -> exp.Expr:
    """An expression over the columns of the session below, or of what that is `through` projections over."""
    match node:
        case LogicalProject():
            return _meaning(node.input, substitute(expression, node.outputs), through=through)
        case LogicalFilter():
            return _meaning(node.input, expression, through=through)
        case LogicalSession() if through:
            return _meaning(node.input.input, expression)
        case _:
            return expression.unnest()


def _grouped(node: LogicalAggregate, session: LogicalSession, end: str) -> LogicalNode:
    """An aggregate over sessions: one that also has their last times, if it is by them."""
    rows = node.input.input
    read = frozenset[str]().union(*(call.reads for call in node.calls.values()))
    ends, asked = _of_end(rows, end), read.union(node.group)
    closes = any(isinstance(each, LogicalScan) and each.source.watermark is not None for each in walk(session))
    if not ends & asked and not _filtered_by(rows, end) and not closes:
        return replace(node, input=LogicalInput(_without_end(rows, end)))
    groups = {name: _meaning(rows, resolved(name)) for name in node.group}
    whole = {_meaning(rows, resolved(name), through=True) for name in node.group}
    parts = {_meaning(session, resolved(name), through=True) for name in session.partition}
    only = all(reads(groups[name]) == {end} for name in ends & set(node.group))
    by_session = resolved(session.start) in groups.values() and parts <= whole
    if not by_session and not ends & asked and not _filtered_by(rows, end):
        return replace(node, input=LogicalInput(_without_end(rows, end)))
    if not (by_session and only) or ends & read or _filtered_by(rows, end):
        return replace(node, input=LogicalInput(_with_end(rows)))
    last, call = session.last, _last(session)
    below = _without_end(rows, end, session.time)
    group = tuple(name for name in node.group if name not in ends)
    aggregate = replace(node, input=LogicalInput(below), group=group, calls={**node.calls, last: call})
    meant = {end: _end(session, last)}
    outputs = {name: substitute(groups[name], meant) if name in ends else resolved(name) for name in columns(node)}
    return LogicalProject(aggregate, outputs)


def _end(session: LogicalSession, last: str) -> exp.Expr:
    # There is no session without a row, but the type of MAX does not say so.
    time = exp.Coalesce(this=resolved(last), expressions=[resolved(session.start)])
    return WindowEnd(this=time, size=interval(session.gap))


def _last(session: LogicalSession) -> LogicalCall:
    type_ = columns(session)[session.start].as_nullable()
    return LogicalCall("max", (session.time,), type_, exp.Max(this=resolved(session.time)))
