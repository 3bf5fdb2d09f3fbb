"""Calls whose results may not fit their types: SUM and AVG in an aggregate, a window or a pattern.

State is exact, so an overflow affects only the result. The result row fails like a row on which an expression fails
(`service.execute.failures`), and is emitted again when the sum fits. TRY_SUM is NULL instead, and so is every call with
`on_error: null`.
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
    """Return the reason why a row failed in the operator of a node."""
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
    """Return the numbers of the calls that fail a row if their results do not fit their types."""
    return () if calc.on_error == "null" else tuple(number for number, call in enumerate(calls) if call.fallible)
