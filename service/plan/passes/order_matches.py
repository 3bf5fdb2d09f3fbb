"""Row patterns are over rows that only come, in an order that a watermark makes final."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.clocks import Closing
from rowkind.service.plan.errors import Refusal
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalJoin,
    LogicalMatch,
    LogicalNode,
    LogicalNormalize,
    LogicalRank,
    LogicalScan,
    LogicalSession,
    LogicalTemporalFilter,
)
from rowkind.service.plan.passes.close_inputs import passed, timed_tables
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.changelog_modes import updating
from rowkind.service.plan.traits.event_times import event_times
from rowkind.service.plan.tree import bottom_up


def order_matches(query: Query) -> Query:
    """Patterns with the watermark that puts their rows in order. Raises Refusal where there is none, or rows change."""
    return replace(query, root=bottom_up(query.root, _visit))


def _visit(node: LogicalNode) -> LogicalNode:
    if not isinstance(node, LogicalMatch):
        return node
    below = node.input.input
    if (changing := updating(below)) is not None:
        raise Refusal(
            f"MATCH_RECOGNIZE takes rows that only come, but {_why(changing)}: match the rows of a table with mode "
            "append, before they are made into something that changes",
            node.at,
        )
    time = event_times(below).get(node.time)
    found = None if time is None else passed(timed_tables(below), node.time, time)
    if found is None:
        shown = node.time.rpartition(".")[2]
        raise Refusal(
            f"a watermark puts the rows of MATCH_RECOGNIZE into order, and there is none on {shown}: say "
            "`watermark: {column: …, delay: …}` of its table in the job file",
            node.at,
        )
    clock, moment = found
    return replace(node, input=replace(node.input, closing=Closing(clock, moment, moment)))


def _why(node: LogicalNode) -> str:
    """What makes rows change, in a sentence."""
    match node:
        case LogicalScan():
            return f"{node.source.table} is a table with mode {node.source.mode}, whose rows change"
        case LogicalAggregate():
            return "the row of a group changes with every row that comes to it"
        case LogicalRank():
            return "a row leaves the range of a rank when another one takes its place"
        case LogicalSession():
            return "a row may make two sessions one"
        case LogicalJoin(kind="anti" | "not in"):
            return "a row without a match is taken back once a match comes"
        case LogicalJoin():
            return f"a {node.kind.upper()} JOIN takes back what it put out for a row without a match"
        case LogicalNormalize(takes_back=True):
            return "rows are taken back when they expire, because of `on_expire: retract`"
        case LogicalTemporalFilter():
            return "NOW() moves, and rows go"
    return "rows of its input change"
