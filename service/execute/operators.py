"""Construction of the operators for a plan's stateful nodes, which all engines run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

import pyarrow as pa

from rowkind.avro.codec import encode, null_row
from rowkind.avro.same_rows import SameRows
from rowkind.avro.schema import Record
from rowkind.operators.aggregate.aggregate import Aggregate
from rowkind.operators.join.input import Side
from rowkind.operators.join.join import Join, JoinedRows, JoinSpec
from rowkind.operators.join.semi_join import SemiJoin, SemiJoinKind, SemiJoinSpec
from rowkind.operators.match.recognize import MatchRecognize
from rowkind.operators.normalize.expiry import Expiry
from rowkind.operators.normalize.normalize import Normalize
from rowkind.operators.normalize.single_row import SingleRow
from rowkind.operators.operator import Operator
from rowkind.operators.over.order_distance import Scale
from rowkind.operators.over.over import Over, OverSpec
from rowkind.operators.rank.rank import Rank, RankSpec
from rowkind.operators.time.session import Session, SessionSpec
from rowkind.operators.time.stamp import Stamp
from rowkind.operators.time.temporal_filter import TemporalFilter, TemporalFilterSpec
from rowkind.service.execute.aggregation import spec_of
from rowkind.service.execute.calc import condition, run
from rowkind.service.execute.column_times import TimeOf, near_of, until
from rowkind.service.execute.lookups import as_of, by_arrival
from rowkind.service.execute.matched_rows import match_spec
from rowkind.service.execute.over import ColumnsOf, Measured, PackedResults, over_call
from rowkind.service.execute.overflow_checks import fallible_calls
from rowkind.service.execute.ranked_rows import Bound, Identity, Numbered, RowFilter
from rowkind.service.execute.rows_in_sessions import Started, Times
from rowkind.service.physical.node import PhysicalInput, PhysicalNode, PhysicalOperator, PhysicalScan, PhysicalUnion
from rowkind.service.physical.operators import (
    PhysicalAggregate,
    PhysicalJoin,
    PhysicalLookup,
    PhysicalMatch,
    PhysicalNormalize,
    PhysicalOver,
    PhysicalRank,
    PhysicalSession,
    PhysicalSingleRow,
    PhysicalStamp,
    PhysicalTemporalFilter,
)
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.physical.tree import walk


def _aggregate(node: PhysicalAggregate, refreshes: bool) -> Operator:
    fallible = fallible_calls(node.aggregation.calls, node.calc)
    return Aggregate(replace(spec_of(node.aggregation), refreshes=refreshes, fallible=fallible))


def _lookup(node: PhysicalLookup, refreshes: bool) -> Operator:
    sides = _side(node.left, node.left_input), _side(node.right, node.right_input)
    return by_arrival(node, *sides, refreshes) if node.match is None else as_of(node, node.match, *sides, refreshes)


def _temporal_filter(node: PhysicalTemporalFilter, refreshes: bool) -> Operator:
    row = node.input.calc.output
    begins, ends = (None if each is None else TimeOf(row, each) for each in (node.begins, node.ends))
    return TemporalFilter(TemporalFilterSpec(begins, ends, node.most, refreshes, node.whole))


def _stamp(node: PhysicalStamp, _refreshes: bool) -> Operator:
    return Stamp(Started(node.schema.select(node.schema.names[-1:])))


def _match(node: PhysicalMatch, _refreshes: bool) -> Operator:
    return MatchRecognize(match_spec(node))


def _join(node: PhysicalJoin, refreshes: bool) -> Operator:
    left, right = node.left.calc.output, node.right.calc.output
    left_side, right_side = _side(node.left, node.left_input), _side(node.right, node.right_input)
    matches = condition(node.condition, left, right, node.on_error) if node.condition else None
    near = None if node.near is None else near_of(node.near, left, right)
    match node.kind:
        case "semi" | "anti":
            return SemiJoin(SemiJoinSpec(node.kind, left_side, right_side, matches, refreshes, near=near))
        case "not in":
            return SemiJoin(SemiJoinSpec("null-aware anti", left_side, right_side, matches, refreshes))
        case "mark" | "in":
            kind: SemiJoinKind = "mark" if node.kind == "mark" else "null-aware mark"
            return SemiJoin(SemiJoinSpec(kind, left_side, right_side, matches, refreshes, _answers(node.schema), near))
        case "inner" | "left" | "right" | "full":
            left_pad = null_row(left) if node.kind in {"right", "full"} else b""
            right_pad = null_row(right) if node.kind in {"left", "full"} else b""
            left_side = replace(left_side, remake=_remake(node.left, node.left_input, "left"))
            right_side = replace(right_side, remake=_remake(node.right, node.right_input, "right"))
            return Join(JoinSpec(node.kind, left_side, right_side, matches, left_pad, right_pad, refreshes, near))
        case _:
            assert_never(node.kind)


def _remake(node: PhysicalNode, chosen: PhysicalInput, name: str) -> JoinedRows | None:
    """Return how an input's rows are recomputed from the state of the join below, or None if the rows are stored."""
    if not chosen.remade:
        return None
    assert isinstance(node, PhysicalJoin), "only a join stores all the rows that its output derives from"
    below = _join(node, refreshes=False)
    assert isinstance(below, Join), "a join that emits pairs"
    return JoinedRows(below.spec, name, partial(run, node.calc))


def _answers(row: Record) -> tuple[bytes, bytes, bytes]:
    """Encode the values of a mark join's match flag, the last column of `row`: FALSE, TRUE and, if nullable, NULL."""
    answer = row.select(row.names[-1:])
    given = [False, True] + ([None] if answer.fields[0].type.nullable else [])
    found = encode(answer, {answer.names[0]: pa.array(given)}, len(given)).to_pylist()
    return found[0], found[1], found[-1]


def _rank(node: PhysicalRank, refreshes: bool) -> Operator:
    row, admits = node.input.calc.output, None
    if node.condition is not None:
        numbers, functions = node.condition.numbers, node.condition.functions
        holds = condition(node.condition.expression, row, numbers, node.condition.on_error)
        admits = RowFilter(holds, numbers, functions)
    return Rank(
        RankSpec(
            ranking=node.ranking,
            numbered=Numbered(node.schema.select([*node.numbers])) if node.numbers else None,
            numbers=tuple(node.numbers.values()),
            admits=admits,
            asked=admits.functions if admits is not None else (),
            bound=Bound(row, node.condition.bound) if node.condition is not None and node.condition.bound else None,
            identity=Identity(row, node.identity) if node.ranking.strategy == "improving" else None,
            ttl_ms=node.state.ttl_ms,
            by_seq=node.state.by_seq,
            counts_unmatched=not _is_upsert(node.input),
            until=_until(node.input, node.state),
            refreshes=refreshes,
        )
    )


def _normalize(node: PhysicalNormalize, refreshes: bool) -> Operator:
    row = node.input.calc.output
    alike = SameRows(row) if any(field.type.varies for field in row.fields) else None
    side = replace(_side(node.input, node.state), alike=alike)
    if not node.takes_back:
        return Normalize(side, refreshes, node.arrivals)
    return Expiry(side, only_comes=node.only_comes, refreshes=refreshes, arrivals=node.arrivals)


def _single_row(node: PhysicalSingleRow, refreshes: bool) -> Operator:
    return SingleRow(_side(node.input, node.state), node.query, refreshes)


def _session(node: PhysicalSession, refreshes: bool) -> Operator:
    row, closing = node.input.calc.output, node.state.closing
    return Session(
        SessionSpec(
            gap=node.gap,
            times=Times(row, node.time),
            started=Started(node.schema.select(node.schema.names[-2 if node.ends else -1 :])),
            ttl_ms=node.state.ttl_ms,
            by_seq=node.state.by_seq,
            counts_unmatched=not _is_upsert(node.input),
            until=_until(node.input, node.state),
            # A session accepts rows until 1 microsecond before they would be late.
            open=closing.late.later_us - 1 if closing is not None and closing.late.column == node.time else None,
            refreshes=refreshes,
            ends=node.ends,
        )
    )


def _over(node: PhysicalOver, refreshes: bool) -> Operator:
    row = node.input.calc.output
    read = dict.fromkeys(name for call in node.calls for name in call.reads)
    return Over(
        OverSpec(
            calls=tuple(over_call(call, row) for call in node.calls),
            arguments=ColumnsOf(row, tuple(read)),
            packed=PackedResults(node.schema.select(call.name for call in node.calls)),
            values=None if node.measure is None else Measured(row, node.measure),
            ttl_ms=node.state.ttl_ms,
            by_seq=node.state.by_seq,
            counts_unmatched=not _is_upsert(node.input),
            until=_until(node.input, node.state),
            refreshes=refreshes,
            ahead=node.ahead,
            scale=Scale(node.measure is not None and pa.types.is_floating(row.type(node.measure.column).arrow)),
            fallible=fallible_calls(node.calls, node.calc),
        )
    )


def _side(node: PhysicalNode, chosen: PhysicalInput) -> Side:
    salt = node.calc.key.salt
    return Side(
        chosen.layout,
        chosen.ttl_ms,
        chosen.by_seq,
        counts_unmatched=not _is_upsert(node),
        exact=chosen.exact,
        until=_until(node, chosen),
        copied=salt is not None and salt.deal == "copies",
    )


def _until(node: PhysicalNode, chosen: PhysicalInput) -> TimeOf | None:
    return until(node.calc.output, chosen.closing)


def sources(node: PhysicalOperator) -> tuple[SourceTable | None, ...]:
    """Return for each side the table whose changes arrive as they were sent, or None if an operator feeds the side."""
    return tuple(each.source if isinstance(each, PhysicalScan) else None for each in node.sides)


def tables(node: PhysicalOperator) -> tuple[str, ...]:
    """Return the tables from which an operator's rows derive. The rows' arrival numbers come from these tables."""
    return tuple(dict.fromkeys(each.source.table for each in walk(node) if isinstance(each, PhysicalScan)))


def _is_upsert(node: PhysicalNode) -> bool:
    """Return whether a delete of a row that never existed is normal (as in an upsert topic) and is not counted."""
    if isinstance(node, PhysicalUnion):
        return any(_is_upsert(each) for each in node.inputs)
    return isinstance(node, PhysicalScan) and node.source.mode == "upsert"


_OPERATORS: Mapping[type[PhysicalOperator], Callable[[Any, bool], Operator]] = {
    PhysicalJoin: _join,
    PhysicalAggregate: _aggregate,
    PhysicalRank: _rank,
    PhysicalSession: _session,
    PhysicalOver: _over,
    PhysicalLookup: _lookup,
    PhysicalNormalize: _normalize,
    PhysicalSingleRow: _single_row,
    PhysicalTemporalFilter: _temporal_filter,
    PhysicalStamp: _stamp,
    PhysicalMatch: _match,
}


def operator(node: PhysicalOperator, *, refreshes: bool = False) -> Operator:
    """Return the picklable operator that runs over the shards of `node`. If `refreshes` is set, it emits refreshes."""
    return _OPERATORS[type(node)](node, refreshes)
