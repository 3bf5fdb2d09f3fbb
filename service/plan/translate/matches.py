"""Translation of a row pattern to a physical node."""

from __future__ import annotations

from dataclasses import replace

from rowkind.avro.schema import Type
from rowkind.service.physical.matching import DefinedVariable, Matching
from rowkind.service.physical.operators import PhysicalMatch
from rowkind.service.plan.calcs import Edge, record_of
from rowkind.service.plan.calls import LogicalDefine
from rowkind.service.plan.columns import columns
from rowkind.service.plan.logical.grouping import LogicalMatch
from rowkind.service.plan.logical.node import LogicalNode
from rowkind.service.plan.scalar.scalars import compile_condition, resolved
from rowkind.service.plan.translate.nodes import Nodes, carried, named, ordered, shown, traits


def match(nodes: Nodes, match: LogicalMatch, top: LogicalNode, edge: Edge, record: str) -> PhysicalMatch:
    """Translate a row pattern to a physical node whose calc meets the requirements of `edge`."""
    side, below, out = match.input, columns(match.input.input), columns(match)
    assert side.closing is not None, "passes have given the pattern a watermark"
    given = Edge(
        types=carried(side),
        key=tuple((resolved(name), below[name], True) for name in match.partition),
        sub_key=tuple((each.column, each.descending, each.nulls_first) for each in match.order if each.column),
    )
    schema = record_of("Row", out)
    return PhysicalMatch(
        node=nodes.name("match", match),
        input=nodes.input(side, given),
        matching=Matching(
            match.sought, tuple(_defined(each, below) for each in match.defines), match.carried, match.calls
        ),
        closing=side.closing,
        partition=shown(map(resolved, match.partition)),
        order=tuple(map(ordered, match.order)),
        schema=schema,
        calc=nodes.calc(top, edge, schema, named(schema), record),
        traits=traits(top, shown(map(resolved, match.partition)), edge.needs_before),
    )


def _defined(define: LogicalDefine | None, below: dict[str, Type]) -> DefinedVariable | None:
    if define is None:
        return None
    types = below | {each.name: each.type for each in define.calls}
    condition = compile_condition(define.conjuncts, {name: (name, type_) for name, type_ in types.items()})
    assert condition is not None, "a variable without a condition is always true"
    # A condition that fails is NULL, and therefore not true.
    return DefinedVariable(define.text, replace(condition, type=condition.type.as_nullable()), define.calls)
