"""Calls whose results may not fit their types: SUM and AVG of an aggregate, a window or a pattern.

State is exact, so a sum that does not fit is one of the result alone: the row fails, as a row does on which an
expression fails (`service.execute.failures`), and is back when the sum fits again. TRY_SUM is NULL there, as is any
with `on_error: null`.
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
    """What is wrong with a row that failed in the operator of a node."""
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
    """The numbers of calls that fail a row where their results do not fit their types."""
    return () if calc.on_error == "null" else tuple(number for number, call in enumerate(calls) if call.fallible)
