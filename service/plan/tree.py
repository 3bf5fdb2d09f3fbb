"""Functions that traverse and rewrite a logical plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from sqlglot import exp

from rowkind.operators.field_roles import children, roles
from rowkind.service.plan.calls import EqualKey, LogicalDefine
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode

Node = TypeVar("Node", bound=LogicalNode)
AnyRule = TypeVar("AnyRule")
Rules = Mapping[type[Any], Callable[[Any], LogicalNode]]
"""The functions with which a pass changes nodes, keyed by node class or shape."""
Conditions = tuple[exp.Expr, ...]


def inputs(node: LogicalNode) -> tuple[LogicalNode, ...]:
    """Return the nodes directly below `node`."""
    return tuple(below.input if isinstance(below, LogicalInput) else below for below in children(node))


def sides(node: LogicalNode) -> tuple[LogicalInput, ...]:
    """Return an operator's inputs, left before right. For a node without state, return an empty tuple."""
    return tuple(below for below in children(node) if isinstance(below, LogicalInput))


def first(node: LogicalNode) -> LogicalNode:
    """Return the first of the nodes directly below `node`."""
    return inputs(node)[0]


def over(node: Node, below: LogicalNode) -> Node:
    """Return a copy of the node that has `below` as its first input."""
    name = next(name for name, role in roles(type(node)) if role == "child")
    return replace(node, **{name: _over(getattr(node, name), lambda _: below)})


def expressions(node: LogicalNode) -> tuple[exp.Expr, ...]:
    """Return the expressions that a node computes, in the order of its fields."""
    return tuple(_expressions(node))


def _expressions(value: Any) -> Iterator[exp.Expr]:
    match value:
        case exp.Expr():
            yield value
        case tuple():
            for each in value:
                yield from _expressions(each)
        case Mapping():
            for each in value.values():
                yield from _expressions(each)
        case LogicalNode() | EqualKey() | LogicalDefine():
            for name, role in roles(type(value)):
                yield from () if role in ("aside", "child") else _expressions(getattr(value, name))


def rewritten(root: LogicalNode, rules: Rules) -> LogicalNode:
    """Apply to each node the rule for its class or shape, inputs first, and return the resulting tree."""
    return bottom_up(root, partial(changed, rules))


def changed(rules: Rules, node: LogicalNode) -> LogicalNode:
    """Apply to the node the rule for its class or shape. If there is no rule, return the node itself."""
    rule = rule_for(node, rules)
    return node if rule is None else rule(node)


def rule_for(value: object, rules: Mapping[type[Any], AnyRule]) -> AnyRule | None:
    """Return the rule for a value's class or its nearest base class (a shape), or None if there is no rule."""
    return next((rules[of] for of in type(value).__mro__ if of in rules), None)


def with_conditions(root: LogicalNode, change: Callable[[Conditions], Conditions]) -> LogicalNode:
    """Return the tree with `change` applied to the conditions of every filter and join."""
    rules: Rules = {
        LogicalFilter: lambda node: replace(node, conjuncts=change(node.conjuncts)),
        LogicalJoin: lambda node: replace(node, condition=change(node.condition)),
    }
    return rewritten(root, rules)


def with_inputs(node: LogicalNode, change: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """Return the node with `change` applied to its inputs.

    If no input changes, return the same object, so that facts memoized on the node are kept.
    """
    before = {name: getattr(node, name) for name, role in roles(type(node)) if role == "child"}
    after = {name: _over(below, change) for name, below in before.items()}
    return node if all(after[name] is below for name, below in before.items()) else replace(node, **after)


def _over(below: Any, change: Callable[[LogicalNode], LogicalNode]) -> Any:
    """Apply `change` to the nodes in a child field's value. If no node changes, return the same object."""
    if isinstance(below, tuple):
        nodes = tuple(map(change, below))
        return below if all(new is old for new, old in zip(nodes, below, strict=True)) else nodes
    if not isinstance(below, LogicalInput):
        return change(below)
    node = change(below.input)
    return below if node is below.input else replace(below, input=node)


def bottom_up(node: LogicalNode, change: Callable[[LogicalNode], LogicalNode]) -> LogicalNode:
    """Return the tree with `change` applied to every node, inputs first."""
    return change(with_inputs(node, lambda below: bottom_up(below, change)))


def walk(node: LogicalNode) -> Iterator[LogicalNode]:
    """Yield the node and all nodes below it, inputs first, left before right."""
    for child in inputs(node):
        yield from walk(child)
    yield node
