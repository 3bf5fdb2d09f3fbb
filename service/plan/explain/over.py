"""What a plan says of window functions with an order."""

from __future__ import annotations

from dataclasses import replace

from rowkind.service.job.duration import show as show_ms
from rowkind.service.physical.operators import PhysicalOver
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.state import rows, values
from rowkind.service.plan.explain.values import NamedCall, OverValues
from rowkind.service.plan.scalar.scalars import resolved, show


def over(node: PhysicalOver) -> NodeDescription:
    """Its calls, which rows a change concerns, and what it keeps."""
    calls = [NamedCall(call.name, call.text) for call in node.calls]
    return NodeDescription(
        "over",
        ", ".join(f"{call.text} AS {show(resolved(call.name))}" for call in node.calls),
        OverValues(node.partition, node.order, calls),
        facts=(Fact("a change", _concerned(node)),) if node.ahead is None else (),
        state=_state(node) if node.ahead is None else (_results(node),),
    )


def _concerned(node: PhysicalOver) -> str:
    """Which rows are sent again with a change, in a sentence."""
    frames = [call.frame for call in node.calls]
    if any(each.end is None for each in frames):
        return "concerns all rows of its partition, or all before it"
    if any(each.start is None for each in frames):
        return "concerns the rows behind it; a row that comes last reads the one before it only"
    return "concerns the rows in whose frames it is"


def _state(node: PhysicalOver) -> tuple[StepState, ...]:
    layout = "every row, in order" + (" in its partition" if node.partition else "")
    kept = rows(node, layout, "a row may be taken back", values(node.input, "every row"))
    reason = "what is around a change is read, and what was sent is taken back"
    return kept, replace(kept, name="results", layout="the same with its results", reason=reason)


def _results(node: PhysicalOver) -> StepState:
    """What is kept where rows come in the order of their time."""
    layout = "the last rows" + (" of each partition" if node.partition else "") + " with their results"
    last = rows(node, layout, "rows come in the order of their time", values(node.input, "last rows"))
    kept = last.kept
    if node.passes:
        kept = f"each until rows come that are {show_ms(_reach(node) // 1000)} later, in whatever partition"
    elif node.state.ttl_ms is None:
        kept = "for ever, as many of each partition as rows that follow may see"
    return replace(last, name="results", kept=kept, endless=False)


def _reach(node: PhysicalOver) -> int:
    """How far apart rows are that see each other by their frames' lengths of time, in microseconds."""
    frames, ahead = [call.frame for call in node.calls], node.ahead or 0
    return ahead + max(-edge for each in frames for edge in (0, each.start, each.end) if edge is not None)
