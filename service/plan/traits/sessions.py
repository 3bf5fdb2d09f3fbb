"""Facts about sessions, and about aggregates whose groups are sessions."""

from __future__ import annotations

from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.per_row import LogicalSession
from rowkind.service.plan.scalar.conjuncts import reads
from rowkind.service.plan.traits.changelog_modes import produced


def session_of(node: LogicalAggregate) -> LogicalSession | None:
    """Return the session node whose sessions an aggregate groups by; None if it does not compute their last times.

    `sql.session_ends` adds the call that computes the last times.
    """
    below = node.input.input
    while isinstance(below, LogicalFilter | LogicalProject):
        below = below.input
    return below if isinstance(below, LogicalSession) and below.last in node.calls else None


def only_comes(session: LogicalSession) -> bool:
    """Whether rows of a session are never retracted, so that a session may become longer but never shorter."""
    return produced(session.input.input) == "append"


def only_merges(node: LogicalAggregate) -> bool:
    """Whether a group never loses only some of its rows: it loses all of its rows at once, or none.

    This is true of sessions over an append input: a session may merge into another, but never splits. It is not true if
    rows expire one by one, or if a filter reads the session's start: when the start moves, the filter may drop some of
    the session's rows.
    """
    session = session_of(node)
    if session is None or session.input.ttl_ms is not None or not only_comes(session):
        return False
    below, moves = node.input.input, {session.start}
    while below is not session:
        assert isinstance(below, LogicalFilter | LogicalProject), "only filters and projections lie between"
        if isinstance(below, LogicalFilter) and any(reads(each) & moves for each in below.conjuncts):
            return False
        below = below.input
    return True
