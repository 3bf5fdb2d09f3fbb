"""Calls whose results may be too large for their types: SUM and AVG in an aggregate, a window or a pattern.

State is exact, so an overflow affects only the result. The result row fails like a row on which an expression fails
(`service.execute.failures`). It is emitted again once the sum fits. The result of TRY_SUM, and of every call with
`on_error: null`, is NULL instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowkind.service.physical.aggregation import PhysicalAggregateCall
from rowkind.service.physical.calc import Calc
from rowkind.service.physical.matching import CalledColumn
from rowkind.service.physical.node import PhysicalOperator
from rowkind.service.physical.operators import PhysicalAggregate, PhysicalMatch, PhysicalOver
from rowkind.service.physical.over_call import PhysicalWindowCall

FallibleCall = PhysicalAggregateCall | PhysicalWindowCall | CalledColumn


def misfit(node: PhysicalOperator) -> str:
    """Return the reason that is reported for rows that fail in a node's operator."""
    fallible = [call for call in _calls(node) if call.fallible]
    if len(fallible) == 1:
        return f"{fallible[0].text} does not fit {fallible[0].type.required.sql}"
    return f"one of {', '.join(call.text for call in fallible)} does not fit its type"


def _calls(node: PhysicalOperator) -> Sequence[FallibleCall]:
    if isinstance(node, PhysicalAggregate):
        return node.aggregation.calls
    if isinstance(node, PhysicalMatch):
        return node.matching.calls
    return node.calls if isinstance(node, PhysicalOver) else ()


def fallible_calls(calls: Sequence[FallibleCall], calc: Calc) -> tuple[int, ...]:
    """Return the positions of the calls that make a row fail if the result does not fit the result's type."""
    return () if calc.on_error == "null" else tuple(number for number, call in enumerate(calls) if call.fallible)
