"""Translation of a join to a physical node, including the facts that a NOT IN needs."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from rowkind.operators.join.facts import HAS_NULL, NOT_EMPTY
from rowkind.service.physical.clocks import TimeBounds
from rowkind.service.physical.join_kinds import JOIN_NAMES
from rowkind.service.physical.node import PhysicalInput, PhysicalNode
from rowkind.service.physical.operators import PhysicalJoin
from rowkind.service.physical.tree import fused, level, without_unions
from rowkind.service.plan.calcs import Edge, record_of
from rowkind.service.plan.calls import LogicalAggregateCall
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.binary import LogicalJoin
from rowkind.service.plan.logical.calc import LogicalFilter
from rowkind.service.plan.logical.grouping import LogicalAggregate
from rowkind.service.plan.logical.node import LogicalInput, LogicalNode
from rowkind.service.plan.scalar.scalars import compile_condition, resolved
from rowkind.service.plan.scalar.types import BIGINT, family
from rowkind.service.plan.traits.missing_watermarks import missing_watermarks
from rowkind.service.plan.traits.time_bounds import time_bounds
from rowkind.service.plan.traits.unique_keys import keeps_key
from rowkind.service.plan.translate.nodes import (
    Nodes,
    carried,
    input_state,
    named,
    refreshes,
    salt,
    salts,
    shown,
    traits,
)

_TIMES = ("timestamp", "local", "date")


def join(nodes: Nodes, join: LogicalJoin, top: LogicalNode, edge: Edge, record: str) -> PhysicalJoin:
    """Translate a join to a physical node whose calc meets the requirements of `edge`."""
    left = _join_side(nodes, join, join.left, 0, edge)
    right = _join_side(nodes, join, join.right, 1, edge)
    both = left.calc.output.concat(right.calc.output)
    answer = {} if join.answer is None else {join.answer: columns(join)[join.answer]}
    schema = left.calc.output.concat(record_of("Row", answer)) if join.keeps_left else both
    return PhysicalJoin(
        node=nodes.name(JOIN_NAMES[join.kind], join),
        kind=join.kind,
        left=left,
        right=right,
        left_input=_kept(join.left, left, right),
        right_input=_kept(join.right, right, left),
        schema=schema,
        condition=compile_condition(join.condition, named(both)),
        calc=nodes.calc(top, edge, schema, named(schema), record),
        facts=_facts(nodes, join) if join.counts_right else (),
        on_error=nodes.on_error,
        near=_near(join),
        placed=join.placed,
        unmarked=missing_watermarks(join),
        traits=traits(
            top,
            (*shown(key.left if join.kind != "right" else key.right for key in join.keys), *salts(join)),
            edge.needs_before,
        ),
    )


def _kept(side: LogicalInput, node: PhysicalNode, other: PhysicalNode) -> PhysicalInput:
    """Return how an input is stored. Its rows are recomputed only if the join below runs in the same stage."""
    state, (below, *united) = input_state(side), without_unions(node)
    here = max(level(each) + (not fused(each)) for each in without_unions(node, other))
    return replace(state, remade=state.remade and not united and fused(below) and level(below) == here)


def _near(join: LogicalJoin) -> TimeBounds | None:
    """Return the condition's bounds between the left and the right time of a pair. Times in the key are ignored."""
    left, right = ({name for name, type_ in carried(side).items() if family(type_) in _TIMES} for side in join.sides)
    return next(iter(time_bounds(replace(join, keys=()), left, right)), None)


def _join_side(nodes: Nodes, join: LogicalJoin, side: LogicalInput, number: int, above: Edge) -> PhysicalNode:
    # No output of an anti join is derived from right rows.
    made_of_it = number == 0 or join.kind not in ("anti", "not in")
    edge = Edge(
        types=carried(side),
        key=tuple((key.left if number == 0 else key.right, key.type, key.null_safe) for key in join.keys),
        sub_key=tuple((name, False, True) for name in side.sub_key),
        drop_null=join.kind in ("inner", "semi", "right") if number == 0 else not join.pads_right,
        padded=join.pads_right if number == 0 else join.pads_left,
        side=number,
        needs_before=side.remade or not keeps_key(join, side),
        refreshes=refreshes(side, above) if made_of_it else side.ttl_ms is not None,
        salt=salt(side),
    )
    return nodes.input(side, edge)


def _facts(nodes: Nodes, join: LogicalJoin) -> tuple[PhysicalNode, ...]:
    """Return nodes for the facts that a NOT IN needs: whether the right side contains any rows, and any NULLs."""
    (key,) = join.keys
    null = exp.Is(this=key.right.copy(), expression=exp.Null())
    about = ((join.right.input, NOT_EMPTY), (LogicalFilter(join.right.input, (null,)), HAS_NULL))
    return tuple(_fact(nodes, node, fact) for node, fact in about)


def _fact(nodes: Nodes, node: LogicalNode, fact: bytes) -> PhysicalNode:
    at = exp.Count(this=exp.Star())
    count = LogicalAggregate(
        LogicalInput(node), (), {"rows": LogicalAggregateCall("count", (), BIGINT, at=at)}, is_global=True, at=at
    )
    some = exp.GT(this=resolved("rows"), expression=exp.Literal.number(0))
    return nodes.node(LogicalFilter(count, (some,)), Edge(types={}, side=2, constant=fact))
