"""Descriptions of the rows that a step keeps: their origin, the order of changes, and how long each row is kept."""

from __future__ import annotations

from typing import Any, Protocol

from rowkind.service.job.duration import show
from rowkind.service.physical.clocks import Clock, Closing, ColumnTime
from rowkind.service.physical.node import PhysicalInput, PhysicalNode, PhysicalScan
from rowkind.service.physical.operators import (
    PhysicalLookup,
    PhysicalNormalize,
)
from rowkind.service.physical.tree import inputs
from rowkind.service.plan.explain.description import StepState
from rowkind.service.plan.explain.values import ABSENT, Closes, StateLayout, StateValues


def called(node: PhysicalNode) -> str:
    """Return the name of an operator's input, for use in a sentence."""
    below = _origin(node)
    return below.source.table if isinstance(below, PhysicalScan) else f"the result of {below.node}"


def alias(node: PhysicalNode) -> str:
    """Return the alias by which a hint refers to an operator's input, or an empty string if it is not a table."""
    below = _origin(node)
    return below.alias.rpartition(".")[2] if isinstance(below, PhysicalScan) else ""


def _origin(node: PhysicalNode) -> PhysicalNode:
    """Return the node that corresponds to the input in the SQL: for a Normalize, the node below the Normalize."""
    return _origin(node.input) if isinstance(node, PhysicalNormalize) else node


def values(
    node: PhysicalNode, layout: StateLayout, closing: Closing | None = None, sub_key: Any = ABSENT, calls: Any = ABSENT
) -> StateValues:
    """Return a machine-readable description of the rows that are kept, and of their layout."""
    below = _origin(node)
    of = below.source.table if isinstance(below, PhysicalScan) else below.node
    closes = ABSENT
    if closing is not None and closing.kept is not None:
        closes = Closes(closing.clock.name, moment(closing.kept))
    return StateValues(of, layout, closes, sub_key, calls)


class _WithState(Protocol):
    """An operator that stores the rows of its only input."""

    @property
    def input(self) -> PhysicalNode: ...
    @property
    def state(self) -> PhysicalInput: ...


def rows(
    node: _WithState,
    layout: str,
    reason: str,
    shown: StateValues,
    closing: Closing | None = None,
) -> StepState:
    """Describe the rows that an operator with one input keeps.

    If `closing` is given, it replaces the input's own rule for evicting rows.
    """
    state = node.state
    ttl, endless = state.ttl_ms, state.ttl_ms is None and state.closing is None and not comes_alive(node.input)
    kept = for_long(ttl, node.input, closing or state.closing)
    return StepState("rows", shown, called(node.input), layout, reason, ttl, kept, order(state), endless)


def equal_ones(chosen: PhysicalInput) -> str:
    """Return how equal rows are kept. With a TTL, they are kept individually, because each row expires separately."""
    return "counted" if chosen.ttl_ms is None else "kept individually"


def by(clock: Clock) -> str:
    """Return a phrase for a clock: `the clock`, or the watermark of the clock's tables."""
    tables = [table for table, _ in clock.tables]
    which = {0: "the clock", 1: "the watermark of ", 2: "the lesser watermark of "}.get(
        len(tables), "the least watermark of "
    )
    return which + " and ".join(tables)


def moment(time: ColumnTime) -> str:
    """Return a phrase for the time of a row, such as `placed + 1h`."""
    # The difference between reaching a time and passing it is 1 microsecond, and is not shown.
    later = (time.later_us + 500) // 1000
    return time.column.rpartition(".")[2] + (f" + {show(later)}" if later > 0 else f" - {show(-later)}" * (later < -1))


def until(clock: Clock, time: ColumnTime) -> str:
    """Return a phrase for how long a row is kept if a time in the row determines this."""
    return f"each until {by(clock)} passes {moment(time)}"


def is_evicted(closing: Closing | None) -> bool:
    """Return whether a watermark evicts rows instead of only deciding which rows are late."""
    return closing is not None and closing.kept is not None


def comes_alive(node: PhysicalNode) -> bool:
    """Return whether all source rows of an input are retracted when they expire."""
    if isinstance(node, PhysicalNormalize) and node.takes_back:
        return True
    if isinstance(node, PhysicalLookup) and node.match is not None and node.match.versions:
        return comes_alive(node.left)
    return not isinstance(node, PhysicalScan) and all(map(comes_alive, inputs(node)))


def for_long(ttl_ms: int | None, below: PhysicalNode, closing: Closing | None = None) -> str:
    """Return a phrase for how long an input's rows are kept."""
    if closing is not None and closing.kept is None:
        late = f"late once {by(closing.clock)} passes {moment(closing.late)}"
        return f"indefinitely, because no condition limits how much later a match may be; {late}"
    if closing is not None and closing.kept is not None:
        late = f", late once it passes {moment(closing.late)}" if closing.late != closing.kept else ""
        return until(closing.clock, closing.kept) + late
    if ttl_ms is None and comes_alive(below):
        return "until they are retracted, at the latest when their source rows expire"
    return (
        "indefinitely, because there is no ttl" if ttl_ms is None else f"each for {show(ttl_ms)} after its last change"
    )


def order(chosen: PhysicalInput) -> str:
    """Return text saying that changes count in order of arrival, or an empty string if their order does not matter."""
    if not chosen.by_seq:
        return ""
    keyed = chosen.layout != "multiset"
    return "the latest change of a key counts" if keyed else "changes are applied in order of arrival"
