"""Descriptions of window functions with ORDER BY for `explain`."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.job.duration import show as show_ms
from rowkind.service.physical.operators import PhysicalOver
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.state import rows, values
from rowkind.service.plan.explain.values import NamedCall, OverValues
from rowkind.service.plan.scalar.scalars import resolved, show


def over(node: PhysicalOver) -> NodeDescription:
    """Describe an Over: its window functions, the rows that a change affects, and the rows in its state."""
    calls = [NamedCall(call.name, call.text) for call in node.calls]
    return NodeDescription(
        "over",
        ", ".join(f"{call.text} AS {show(resolved(call.name))}" for call in node.calls),
        OverValues(node.partition, node.order, calls),
        facts=(Fact("a change", _concerned(node)),) if node.ahead is None else (),
        state=_state(node) if node.ahead is None else (_results(node),),
    )


def _concerned(node: PhysicalOver) -> str:
    """Return text that says which rows are emitted again when a row changes."""
    frames = [call.frame for call in node.calls]
    if any(each.end is None for each in frames):
        return "affects all rows of its partition, or all rows before it"
    if any(each.start is None for each in frames):
        return "affects the rows after it; a row that arrives last reads only the row before it"
    return "affects the rows whose frames contain it"


def _state(node: PhysicalOver) -> tuple[StepState, ...]:
    layout = "every row, in order" + (" in its partition" if node.partition else "")
    kept = rows(node, layout, "a row may be retracted", values(node.input, "every row"))
    reason = "the rows around a change are recomputed, and their old results are retracted"
    return kept, replace(kept, name="results", layout="the same rows with their results", reason=reason)


def _results(node: PhysicalOver) -> StepState:
    """Return the state of an Over whose rows arrive in time order."""
    layout = "the last rows" + (" of each partition" if node.partition else "") + " with their results"
    last = rows(node, layout, "rows arrive in order of time", values(node.input, "last rows"))
    kept = last.kept
    if node.passes:
        kept = f"each until rows arrive that are {show_ms(_reach(node) // 1000)} later, in any partition"
    elif node.state.ttl_ms is None:
        kept = "indefinitely, as many rows of each partition as later rows can read"
    return replace(last, name="results", kept=kept, endless=False)


def _reach(node: PhysicalOver) -> int:
    """Return how long after a row's time later rows may still need the row, in microseconds."""
    frames, ahead = [call.frame for call in node.calls], node.ahead or 0
    return ahead + max(-edge for each in frames for edge in (0, each.start, each.end) if edge is not None)
