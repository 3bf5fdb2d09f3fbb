"""Descriptions of sessions, temporal filters and processing-time stamps for `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rowkind.service.physical.clocks import ColumnTime
from rowkind.service.physical.operators import PhysicalJoin, PhysicalSession, PhysicalStamp, PhysicalTemporalFilter
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.state import by, called, moment, rows, values
from rowkind.service.plan.explain.values import ABSENT, Advice, SessionValues, TemporalFilterValues
from rowkind.service.plan.scalar.scalars import show
from rowkind.service.plan.scalar.time_windows import interval


def session(node: PhysicalSession) -> NodeDescription:
    """Describe a session window: its gap, its partition, and its state, which contains every row."""
    partition = f" PARTITION BY {', '.join(node.partition)}" if node.partition else ""
    gap = show(interval(node.gap))
    return NodeDescription(
        "session",
        f"SESSION of {node.order} with a gap of {gap}{partition}",
        SessionValues(node.order, gap, node.partition),
        state=(_session_state(node),),
    )


def _session_state(node: PhysicalSession) -> StepState:
    layout = "every row, in order of time" + (" in its partition" if node.partition else "")
    reason, closing = "a new row may merge two sessions", node.state.closing
    reason = "they are emitted again when the end of their session changes" if node.ends else reason
    if node.ends and closing is not None and closing.kept is None:
        closing = replace(closing, kept=ColumnTime(node.schema.names[-1], closing.late.later_us - node.gap))
    shown = values(node.input, "every row", closing if node.ends else None)
    return rows(node, layout, reason, shown, closing)


def temporal_filter(node: PhysicalTemporalFilter) -> NodeDescription:
    """Describe a temporal filter: when the result contains a row, and which rows are buffered."""
    begins, ends = (ABSENT if at is None else moment(at) for at in (node.begins, node.ends))
    return NodeDescription(
        "temporal_filter",
        _passing(node),
        TemporalFilterValues(node.clock.name, begins, ends, node.order or ABSENT),
        state=(_waiting(node),),
        advice=tuple(_advice(node)),
    )


def _passing(node: PhysicalTemporalFilter) -> str:
    """Return text that says when a row enters the result and when it leaves the result."""
    when = " in order of time, each when" if node.whole else " from when"
    when = f" in order of {', '.join(node.order)}, each when" if node.order else when
    begins = "" if node.begins is None else f"{when} {by(node.clock)} passes {moment(node.begins)}"
    if isinstance(node.input, PhysicalJoin) and node.input.kind != "anti" and node.begins is not None:
        begins = f" with a match, and rows without a match{begins}" if node.begins.null == "always" else begins
    return f"rows{begins}{'' if node.ends is None else f' until {by(node.clock)} passes {moment(node.ends)}'}"


def _waiting(node: PhysicalTemporalFilter) -> StepState:
    begins, ends = (None if each is None else moment(each) for each in (node.begins, node.ends))
    layout = "rows whose time has not been reached, in order of time"
    if ends is not None:
        layout = "rows whose end time has not been reached, in order of end time"
    kept = f"each until {by(node.clock)} passes {ends or begins}"
    return StepState("agenda", values(node.input, "timed"), called(node.input), layout, None, None, kept)


def _advice(node: PhysicalTemporalFilter) -> Iterator[Advice]:
    if node.order:
        text = (
            f"{node.node} puts all rows into one order, so all rows are in one shard: one task processes them, and "
            "one task writes them. In a topic with several partitions, each partition is in order."
        )
        yield Advice(node.node, "one shard", text)


def stamp(_node: PhysicalStamp) -> NodeDescription:
    """Describe a stamp, which adds to each row the time of the row's batch."""
    once = Fact("a batch", "has one time, even if it is repeated")
    return NodeDescription("stamp", "rows with their processing time", facts=(once,))
