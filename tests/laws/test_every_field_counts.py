"""Two nodes share an operator in a graph only if all their fields are equal: a change of any field changes the digest.

A field that must not count says so by its role (`operators.field_roles`) in its declaration. The nodes come from the
plans of all cases of `tests/plan`, with all values in them and in the calcs that feed them.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, make_dataclass
from typing import Any, get_args

import pytest

from rowkind.avro.schema import Field, Record
from rowkind.operators.field_roles import ROLE
from rowkind.service.physical.computes import computes
from rowkind.service.physical.node import (
    PhysicalBinary,
    PhysicalNode,
    PhysicalScan,
    PhysicalSink,
    PhysicalUnary,
    PhysicalUnion,
)
from rowkind.service.physical.operators import PhysicalJoin
from rowkind.service.physical.source_table import SourceTable
from rowkind.service.physical.tree import inputs, walk
from rowkind.service.plan.fingerprint import differences, fingerprint
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.pipeline import logical
from rowkind.service.plan.traits.canonical_form import canonical_form
from rowkind.service.plan.tree import walk as walk_logical
from rowkind.service.python.function import PythonFunction
from tests.plan.cases import cases, planned

pytestmark = pytest.mark.xdist_group("plan")

APART = (SourceTable, PythonFunction, Record, Field)
"""Classes not searched field by field: tables count by declaration, functions by identity, records by types."""

ASIDE = {("Type", "name")}
"""The name of a named type follows from the name of its column."""

EACH = 4
"""How many values of each field of a class are changed."""

Changed = Callable[[Any], Any]
"""Return the node with one value in it replaced."""


class Other:
    """A value that no field has."""

    def __repr__(self) -> str:
        return "another value"


def replaced(value: Any, name: str, new: Any) -> Any:
    """Return a copy of a value with one field replaced, bypassing the checks of its class."""
    found = copy.copy(value)
    for memoized in [each for each in getattr(found, "__dict__", ()) if each.startswith("_remembered_")]:
        object.__delattr__(found, memoized)
    object.__setattr__(found, name, new)
    return found


def values(value: Any, change: Changed, names: tuple[str, ...]) -> Iterator[tuple[Any, Changed, tuple[str, ...]]]:
    """Yield each piece of plain data in a value, a function that replaces it in the node, and the known columns."""
    if isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from values(each, lambda new, n=number: change((*value[:n], new, *value[n + 1 :])), names)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, (*APART, *get_args(PhysicalNode))):
        yield value, change, names
        for each in fields(value):
            if each.metadata.get(ROLE) not in ("aside", "column"):
                below = getattr(value, each.name)
                yield from values(below, lambda new, n=each.name: change(replaced(value, n, new)), names)


def of_node(node: PhysicalNode) -> Iterator[tuple[Any, Changed, tuple[str, ...]]]:
    """Yield the plain data of a node and of the calcs that feed it, in the same form."""
    names = tuple(name for each in inputs(node) for name in each.calc.output.names)
    yield node, lambda new: new, names
    for each in fields(node):
        value = getattr(node, each.name)
        if each.metadata.get(ROLE) not in ("aside", "column"):
            yield from values(value, lambda new, n=each.name: replaced(node, n, new), names)
        if isinstance(value, get_args(PhysicalNode)) and not isinstance(value, PhysicalUnion):

            def with_calc(calc: Any, name: str = each.name, below: Any = value) -> Any:
                return replaced(node, name, replaced(below, "calc", calc))

            yield from values(value.calc, with_calc, value.calc.input.names)


def changed(value: Any, role: str, names: tuple[str, ...]) -> Any:
    """Return a different value for a field."""
    if role == "column" and not isinstance(value, tuple):
        return next((name for name in names if name != value), "no column")
    if isinstance(value, tuple):
        return (*value, next(iter(names), "no column") if role == "column" else Other())
    if isinstance(value, Mapping):
        return {**value, "another": Other()}
    return not value if isinstance(value, bool) else Other()


def test_each_field_that_changes_makes_another_node() -> None:
    """For each class of plain data in plans, a change of any field without another role changes the digest."""
    seen: Counter[tuple[str, str]] = Counter()
    for sink in (planned(case)[1] for case in cases() if not case.is_refused):
        for node in walk(sink):
            if isinstance(node, PhysicalScan | PhysicalUnion | PhysicalSink):
                continue
            digest = computes(node)
            for value, change, names in of_node(node):
                for each in fields(value):
                    role, name = each.metadata.get(ROLE, ""), (type(value).__name__, each.name)
                    below = getattr(value, each.name)
                    if role == "aside" or name in ASIDE or seen[name] >= EACH or role == "child":
                        continue
                    seen[name] += 1
                    other = change(replaced(value, each.name, changed(below, role, names)))
                    assert _digest(other) != digest, f"{name} of {value} in {node.node}"
    classes = {name for name, _ in seen}
    nodes = {each.__name__ for each in PhysicalUnary.__subclasses__() + PhysicalBinary.__subclasses__()}
    assert nodes <= classes, f"no case has {nodes - classes}"
    calls = {"PhysicalAggregateCall", "PhysicalWindowCall"}
    assert calls | {"Aggregation", "Calc", "Key", "Closing", "ColumnTime", "TimeMatch"} <= classes


def test_a_field_that_is_new_counts() -> None:
    """A new field changes the digest of a physical node, the facts of a checkpoint and the digest of a logical node."""
    case = next(each for each in cases() if not each.is_refused and "JOIN" in each.sql)
    job, sink = planned(case)
    join = next(node for node in walk(sink) if isinstance(node, PhysicalJoin))
    assert computes(wider(join, 1)) != computes(wider(join, 2))
    here, wide = replaced(sink, "input", join), replaced(sink, "input", wider(join, 1))
    assert differences(fingerprint(here), fingerprint(wide)) == [f"{join.node}.more: absent -> 1"]
    like = next(node for node in walk_logical(logical(job, "result").root) if isinstance(node, LogicalJoin))
    assert canonical_form(wider(like, 1)).text != canonical_form(wider(like, 2)).text


def wider(node: Any, more: int) -> Any:
    """Return the node as an instance of a class with one more field."""
    of = make_dataclass("Wider", [("more", int, field(default=0))], bases=(type(node),), frozen=True)
    return of(**{each.name: getattr(node, each.name) for each in fields(node)}, more=more)


def _digest(node: Any) -> str:
    """Return the digest of a node, or the error if it has none."""
    try:
        return computes(node)
    except (KeyError, AttributeError, TypeError) as error:
        return repr(error)
