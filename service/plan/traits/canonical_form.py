"""Canonical forms: descriptions of what nodes compute, independent of aliases and of which columns are read.

Two nodes with equal canonical forms produce the same rows, but may carry different columns of these rows. A column's
**meaning** is the expression that computes the column from the columns of the table or operator below all
filters and projections. In this expression, an operator's columns are identified by their meanings within the operator.
Two columns with equal meanings contain the same values.

A node of a class that is not examined here is equal only to itself. The same applies to a view that is planned
separately, because the view must be the same in every query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from rowkind.avro.schema import Type
from rowkind.service.physical.calc import ARRIVAL
from rowkind.service.physical.digests import ColumnTexts, Walk
from rowkind.service.physical.memoized import memoized
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter, LogicalProject, LogicalScan
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank
from rowkind.service.plan.scalar.conjuncts import reads, substitute
from rowkind.service.plan.scalar.scalars import resolved
from rowkind.service.plan.tree import sides

Meanings = Mapping[str, exp.Expr]
"""The meaning of each column, by the column's name in the plan."""


@dataclass(frozen=True)
class CanonicalForm:
    """A node's canonical form: what the node computes, as a string, and the meanings of its columns."""

    text: str
    columns: Meanings


@memoized
def canonical_form(node: LogicalNode) -> CanonicalForm:
    """Return a node's canonical form. The form of a scan contains all columns of the table, not only those read."""
    match node:
        case LogicalScan():
            declared = node.source.declared.names
            named = {node.name(column): resolved(column) for column in (*declared, *([ARRIVAL] * node.numbered))}
            return CanonicalForm(f"scan {node.source.table}", named)
        case LogicalFilter():
            below = canonical_form(node.input)
            conjuncts = [meant(substitute(each, below.columns)) for each in node.conjuncts]
            return CanonicalForm(f"{below.text} if {conjuncts}", below.columns)
        case LogicalProject(stands=False):
            below = canonical_form(node.input)
            outputs = {name: substitute(output, below.columns) for name, output in node.outputs.items()}
            return CanonicalForm(below.text, outputs)
        case LogicalJoin() | LogicalAggregate() | LogicalRank() | LogicalNormalize():
            return _of_operator(node)
        case _:
            return CanonicalForm(f"node {id(node)}", {name: resolved(name) for name in columns(node)})


def meant(expression: exp.Expr) -> str:
    """Return a meaning as a string. Equal meanings have equal strings."""
    node = expression.unnest()
    if isinstance(node, exp.Column):
        return str(node.name)
    node = node.copy()
    for each in list(node.find_all(exp.Paren)):
        each.replace(each.this)
    return _digest(repr(node))


def call_meant(call: LogicalAggregateCall, texts: ColumnTexts) -> str:
    """Return the canonical form of an aggregate call. `texts` contains the canonical forms of its columns."""
    return _digest(_WALK.value(call, texts))


def _of_operator(node: LogicalJoin | LogicalAggregate | LogicalRank | LogicalNormalize) -> CanonicalForm:
    below, texts, carried = [], dict[str, str](), dict[str, str]()
    for place, side in enumerate(sides(node)):
        text, of_side = _side(side, f"{place}." if isinstance(node, LogicalJoin) else "")
        below.append(text)
        texts |= of_side
        if place == 0 or not (isinstance(node, LogicalJoin) and node.keeps_left):
            carried |= {name: of_side[name] for name in side.carried}
    own, results = _results(node, texts)
    emitted = results if isinstance(node, LogicalAggregate) else {**carried, **results}
    text = _digest(f"{_WALK.fields(node, texts, own)} of {below}")
    return CanonicalForm(text, {name: resolved(each) for name, each in emitted.items()})


def _results(node: LogicalNode, texts: ColumnTexts) -> tuple[Mapping[str, str], ColumnTexts]:
    """Return an operator's fields that refer to its own results, and the meanings of the columns that it adds.

    Both are mappings from names to strings.
    """
    match node:
        case LogicalJoin() if node.answer is not None:
            return {}, {node.answer: "answer"}
        case LogicalAggregate():
            calls = {name: call_meant(call, texts) for name, call in node.calls.items()}
            return {"ending": _WALK.value(node.ending, calls)}, {**{name: texts[name] for name in node.group}, **calls}
        case LogicalRank():
            numbers = {name: f"number {of}" for name, of in {**node.numbers, **node.asked}.items()}
            condition = _WALK.value(node.condition, {**texts, **numbers})
            return {"condition": condition}, {name: numbers[name] for name in node.numbers}
        case LogicalNormalize() if node.arrival is not None:
            return {}, {node.arrival: ARRIVAL}
    return {}, {}


def _side(side: LogicalInput, prefix: str) -> tuple[str, ColumnTexts]:
    """Return a description of an operator's input and its settings, and the meanings of the input's columns."""
    below = canonical_form(side.input)
    texts = {name: f"{prefix}{meant(each)}" for name, each in below.columns.items()}
    return f"{below.text} {_WALK.fields(side, texts)}", texts


class _LogicalWalk(Walk):
    """A walk that turns logical nodes into strings in which each column is replaced by its meaning."""

    def value(self, value: Any, names: ColumnTexts) -> str:
        """Return a value as a string in which each column is replaced by its entry in `names`."""
        match value:
            case exp.Expr():
                return meant(substitute(value, {name: resolved(names[name]) for name in reads(value)}))
            case Type():
                return repr(value)
        return super().value(value, names)


_WALK = _LogicalWalk()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
