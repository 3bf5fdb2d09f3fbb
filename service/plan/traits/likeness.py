"""What a node computes whichever of its columns are read, and what its columns mean, in words without aliases.

Nodes of one text have the same rows, but for columns that nobody reads; and columns of one meaning are the same column
of these. A meaning is an expression over what is below all filters and projections: the columns of a table, or those of
an operator, which are called by what they mean there.

What is not looked into is like nothing but itself: so are views that stand, which are the same in every query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from rowkind.service.calc import ARRIVAL
from rowkind.service.clocks import Clock, Closing, ColumnTime
from rowkind.service.plan.calls import LogicalCall, OrderColumn
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical import (
    LogicalAggregate,
    LogicalFilter,
    LogicalInput,
    LogicalJoin,
    LogicalNode,
    LogicalNormalize,
    LogicalProject,
    LogicalRank,
    LogicalScan,
)
from rowkind.service.plan.memoized import memoized
from rowkind.service.plan.scalar.conjuncts import substitute
from rowkind.service.plan.scalar.scalars import resolved

Meanings = Mapping[str, exp.Expr]
"""What columns mean, by their names in the plan."""


@dataclass(frozen=True)
class Likeness:
    """What a node computes, and what its columns mean, by their names in the plan."""

    text: str
    columns: Meanings


@memoized
def likeness(node: LogicalNode) -> Likeness:
    """What a node computes, and what those columns mean that it has, of a scan all that the table has."""
    match node:
        case LogicalScan():
            declared = node.source.declared.names
            named = {node.name(column): resolved(column) for column in (*declared, *([ARRIVAL] * node.numbered))}
            return Likeness(f"scan {node.source.table}", named)
        case LogicalFilter():
            below = likeness(node.input)
            return Likeness(f"{below.text} if {_texts(node.conjuncts, below.columns)}", below.columns)
        case LogicalProject(stands=False):
            below = likeness(node.input)
            outputs = {name: substitute(output, below.columns) for name, output in node.outputs.items()}
            return Likeness(below.text, outputs)
        case LogicalJoin():
            return _join(node)
        case LogicalAggregate():
            return _aggregate(node)
        case LogicalRank():
            return _rank(node)
        case LogicalNormalize():
            text, meanings = _side(node.input)
            given = node.arrival is not None
            text = _digest(f"normalize {node.takes_back} {given} {_named(node.key, meanings)} {text}")
            arrival = {} if node.arrival is None else {node.arrival: resolved(ARRIVAL)}
            return Likeness(text, {**_carried(meanings, node.input), **arrival})
        case _:
            return Likeness(f"node {id(node)}", {name: resolved(name) for name in columns(node)})


def meant(expression: exp.Expr) -> str:
    """A meaning as a text, equal where the meaning is."""
    node = expression.unnest()
    if isinstance(node, exp.Column):
        return str(node.name)
    node = node.copy()
    for each in list(node.find_all(exp.Paren)):
        each.replace(each.this)
    return _digest(repr(node))


def call_meant(call: LogicalCall, meanings: Meanings) -> str:
    """What a call means over columns of these meanings, as a text."""
    arguments = _named(call.arguments, meanings)
    filter_ = "" if call.filter is None else meant(meanings[call.filter])
    constants = (call.constants, call.grows, call.stage, call.types, call.tries)
    kept = (call.function, call.type, call.distinct, _order(call.order, meanings), constants)
    return _digest(f"{arguments} {filter_} {kept}")


def _join(node: LogicalJoin) -> Likeness:
    sides = [_side(side, f"{place}.") for place, side in enumerate(node.sides)]
    both = {**sides[0][1], **sides[1][1]}
    keys = [(_texts([key.left, key.right], both), key.type, key.null_safe) for key in node.keys]
    texts = f"{sides[0][0]} with {sides[1][0]} on {keys} if {_texts(node.condition, both)}"
    emitted = (node.left,) if node.keeps_left else node.sides
    answer = {} if node.answer is None else {node.answer: resolved("answer")}
    return Likeness(_digest(f"{node.kind} {node.answer is None} {texts}"), {**_carried(both, *emitted), **answer})


def _aggregate(node: LogicalAggregate) -> Likeness:
    text, meanings = _side(node.input)
    calls = {name: resolved(call_meant(call, meanings)) for name, call in node.calls.items()}
    ending = "" if node.ending is None else f"{_time(node.ending.at, calls)} {_clock(node.ending.clock)}"
    own = f"{_named(node.group, meanings)} {node.is_global} {node.split_distinct} {ending} {node.apart}"
    groups = {name: meanings[name] for name in node.group}
    return Likeness(_digest(f"aggregate {own} {text}"), {**groups, **calls})


def _rank(node: LogicalRank) -> Likeness:
    text, meanings = _side(node.input)
    numbers = {name: resolved(f"number {function}") for name, function in {**node.numbers, **node.asked}.items()}
    own = (
        node.ranking,
        _named(node.partition, meanings),
        _order(node.order, meanings),
        sorted(node.numbers.values()),
        _texts(node.condition, {**meanings, **numbers}),
        None if node.bound is None else meant(meanings[node.bound]),
        (node.settled, node.strategy, node.in_time, _named(node.identity, meanings)),
    )
    emitted = {name: numbers[name] for name in node.numbers}
    return Likeness(_digest(f"rank {own} {text}"), {**_carried(meanings, node.input), **emitted})


def _side(side: LogicalInput, prefix: str = "") -> tuple[str, Meanings]:
    """What comes to an operator and what is chosen for it, and what the columns mean that come to it."""
    below = likeness(side.input)
    meanings = {name: resolved(f"{prefix}{meant(each)}") for name, each in below.columns.items()}
    arrival = None if side.arrival is None else meant(meanings[side.arrival])
    sub_key = _named(side.sub_key, meanings)
    chosen = (side.layout, sub_key, side.ttl_ms, side.spread, side.copies, side.remade, arrival)
    return f"{below.text} {chosen} {_closing(side.closing, meanings)}", meanings


def _carried(meanings: Meanings, *sides: LogicalInput) -> Meanings:
    return {name: meanings[name] for side in sides for name in side.carried}


def _closing(closing: Closing | None, meanings: Meanings) -> str:
    if closing is None:
        return ""
    kept = "" if closing.kept is None else _time(closing.kept, meanings)
    return f"{_time(closing.late, meanings)} {kept} {_clock(closing.clock)}"


def _clock(clock: Clock) -> str:
    return f"{clock.tables} {clock.processing}"


def _time(time: ColumnTime, meanings: Meanings) -> str:
    return f"{meant(meanings[time.column])} {time.later_us} {time.null}"


def _order(order: Iterable[OrderColumn], meanings: Meanings) -> list[tuple[str, bool, bool]]:
    return [
        ("" if each.column is None else meant(meanings[each.column]), each.descending, each.nulls_first)
        for each in order
    ]


def _named(names: Iterable[str], meanings: Meanings) -> list[str]:
    return [meant(meanings[name]) for name in names]


def _texts(expressions: Iterable[exp.Expr], meanings: Meanings) -> list[str]:
    return [meant(substitute(each, meanings)) for each in expressions]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
