"""Logical operators have the same canonical form only if they agree in every field whose role does not exclude it.

Each field of each operator, and of its inputs, calls and keys, is set to values that it has in other plans. This must
change the canonical form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

import pytest

from rowkind.operators.field_roles import ROLE
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.logical.subset import LogicalNormalize, LogicalRank
from rowkind.service.plan.passes.merge_equivalent_operators import merge_equivalent_operators
from rowkind.service.plan.phases import PASSES
from rowkind.service.plan.pipeline import logical
from rowkind.service.plan.query import Query
from rowkind.service.plan.traits.canonical_form import canonical_form
from rowkind.service.plan.tree import walk
from tests.plan.cases import cases, planned

pytestmark = pytest.mark.xdist_group("plan")

OPERATORS = (LogicalJoin, LogicalAggregate, LogicalRank, LogicalNormalize)

NODES = (LogicalNode, LogicalInput)
"""Nodes whose fields are searched themselves."""

FEW = 3
"""How many values of a field are tried, in so many operators each."""

Part = tuple[Any, Callable[[Any], LogicalNode]]
"""A piece of plain data in an operator, and a function that returns the operator with other data in its place."""


def queries() -> Iterator[Query]:
    """Yield the queries of all cases, as they are before equivalent operators are merged."""
    for case in cases():
        if case.is_refused:
            continue
        query = logical(planned(case)[0], "result")
        for each in PASSES[: PASSES.index(merge_equivalent_operators)]:
            query = each(query)
        yield query


def parts(value: Any, change: Callable[[Any], Any]) -> Iterator[Part]:
    """Yield the pieces of plain data in a value."""
    if isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from parts(each, lambda new, n=number: change((*value[:n], new, *value[n + 1 :])))
    elif is_dataclass(value) and value.__class__.__module__.startswith("rowkind.") and type(value).__name__ != "Type":
        yield value, change
        for each in fields(value):
            below = getattr(value, each.name)
            if not isinstance(below, LogicalNode) and counts(each):
                yield from parts(below, lambda new, n=each.name: change(replace(value, **{n: new})))


def counts(field: Field[Any]) -> bool:
    """Return whether a field's declaration makes it count."""
    return field.metadata.get(ROLE) not in ("aside", "merged")


def others(field: Field[Any], below: Any, found: list[Any]) -> list[Any]:
    """Return the values to which a field is changed; for a result's name, only its presence counts."""
    if isinstance(below, bool):
        return [not below]
    if field.metadata.get(ROLE) == "results" and not isinstance(below, Mapping):
        return [None if below is not None else "a column"]
    return [new for new in found if new != below]


def text(operator: LogicalNode) -> str:
    """Return the canonical form of an operator, or the error if it has none."""
    try:
        return canonical_form(operator).text
    except (KeyError, AssertionError) as error:
        return repr(error)


def test_each_field_that_changes_makes_another_operator() -> None:
    """A change of any field of operators, inputs, orders, keys, closings and rankings changes the canonical form."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    operators = [node for query in queries() for node in walk(query.root) if isinstance(node, OPERATORS)]
    for operator in operators:
        for value, _ in parts(operator, lambda new: new):
            for each in fields(value):
                own = found[type(value).__name__, each.name]
                below = getattr(value, each.name)
                if len(own) < FEW and below not in own:
                    own.append(below)
    tried: dict[tuple[str, str], int] = defaultdict(int)
    for operator in operators:
        like = canonical_form(operator).text
        for value, change in parts(operator, lambda new: new):
            for each in fields(value):
                field = type(value).__name__, each.name
                below = getattr(value, each.name)
                if not counts(each) or tried[field] >= FEW or isinstance(below, NODES):
                    continue
                tried[field] += 1
                for new in others(each, below, found[field]):
                    try:
                        changed = change(replace(value, **{each.name: new}))
                    except AssertionError:
                        continue
                    assert text(changed) != like, f"{field} of {value} is {new}"
    assert {name for name, _ in tried} >= {each.__name__ for each in OPERATORS}
