"""Descriptions of two nodes for `explain`: Normalize, which makes an input exact, and SingleRow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.operators import PhysicalNormalize, PhysicalSingleRow
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.state import called, equal_ones, for_long, rows, values
from rowkind.service.plan.explain.values import NO_VALUES, Advice, NormalizeDetails

_BACK = ", then it expires and is retracted with everything derived from it"


def normalize(node: PhysicalNormalize) -> NodeDescription:
    """Describe a Normalize: its state, and why it is needed, for example because expired rows are retracted."""
    return NodeDescription(
        "expiry" if node.takes_back else "normalize",
        f"{'unexpired rows' if node.takes_back else 'exact changes'} of {called(node.input)}",
        details=NO_VALUES if node.takes_back else NormalizeDetails(node.reason),
        facts=() if node.takes_back else (Fact("needed", _needed(node)),),
        state=(_state(node),),
        advice=() if node.takes_back else tuple(_advice(node)),
    )


def _needed(node: PhysicalNormalize) -> str:
    if isinstance(node.input, PhysicalScan) and node.input.source.exact:
        return f"for {called(node.input)}, because {node.reason}"
    replaces = node.state.layout == "one row per key"
    flaw = "may omit old rows" if replaces else "may retract rows that it has not sent"
    return f"{called(node.input)} {flaw}, and {node.reason}"


def _state(node: PhysicalNormalize) -> StepState:
    if node.only_comes:
        layout, ttl = "all rows, in order of arrival", node.state.ttl_ms
        kept = f"{for_long(ttl, node.input)}{_BACK}"
        return StepState("agenda", values(node.input, "timed"), called(node.input), layout, None, ttl, kept)
    if node.state.layout == "one row per key":
        layout = f"the last row of each ({', '.join(part.text for part in node.input.calc.key.parts)})"
    else:
        layout = f"all rows, equal rows {equal_ones(node.state)}"
    shown = values(node.input, node.state.layout)
    if not node.takes_back:
        return rows(node, layout, "old rows are looked up here", shown)
    state = rows(node, f"{layout}, each with its last write time", "writing a row again extends its TTL", shown)
    return replace(state, kept=f"{state.kept}{_BACK}")


def _advice(node: PhysicalNormalize) -> Iterator[Advice]:
    scan = node.input
    if not isinstance(scan, PhysicalScan):
        return
    source = scan.source
    text = f"{node.node} keeps a copy of every row of {source.table}, because {node.reason}."
    if source.debezium and not source.exact:
        text += " This cannot be avoided, because a Debezium snapshot may contain rows that are already present."
    elif source.mode == "retract" and not source.exact:
        text += (
            " If its producer sends -U with every update and retracts only rows that it has sent, add `exact: "
            f"true` to {source.table}: then no copy is needed."
        )
    elif not source.exact:
        text += (
            f" If its producer can send -U with every update, declare {source.table} as a retract table with "
            "`exact: true`: then no copy is needed."
        )
    yield Advice(node.node, "old rows kept", text)


def single_row(node: PhysicalSingleRow) -> NodeDescription:
    """Describe a SingleRow: the subquery that must have at most one row, and its state."""
    kept = rows(node, "its rows", "the subquery must have at most one row", values(node.input, node.state.layout))
    return NodeDescription("single_row", f"at most one row of {node.query}", NO_VALUES, state=(kept,))
