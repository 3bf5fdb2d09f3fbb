"""What a plan says of inputs that are made exact, and of scalar subqueries whose rows are counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rowkind.service.physical.node import PhysicalScan
from rowkind.service.physical.operators import PhysicalNormalize, PhysicalSingleRow
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.state import called, equal_ones, for_long, rows, values
from rowkind.service.plan.explain.values import NO_VALUES, Advice, NormalizeDetails

_BACK = ", then it expires and is taken back with all that was made of it"


def normalize(node: PhysicalNormalize) -> NodeDescription:
    """Why an input is made exact, or that it expires, and what is kept of it."""
    return NodeDescription(
        "expiry" if node.takes_back else "normalize",
        f"{'rows alive' if node.takes_back else 'exact changes'} of {called(node.input)}",
        details=NO_VALUES if node.takes_back else NormalizeDetails(node.reason),
        facts=() if node.takes_back else (Fact("needed", _needed(node)),),
        state=(_state(node),),
        advice=() if node.takes_back else tuple(_advice(node)),
    )


def _needed(node: PhysicalNormalize) -> str:
    if isinstance(node.input, PhysicalScan) and node.input.source.exact:
        return f"of {called(node.input)}, {node.reason}"
    replaces = node.state.layout == "one row per key"
    flaw = "may leave out old rows" if replaces else "may take back rows that it has not sent"
    return f"{called(node.input)} {flaw}, and {node.reason}"


def _state(node: PhysicalNormalize) -> StepState:
    if node.only_comes:
        layout, ttl = "all rows, in the order in which they came", node.state.ttl_ms
        kept = f"{for_long(ttl, node.input)}{_BACK}"
        return StepState("agenda", values(node.input, "timed"), called(node.input), layout, None, ttl, kept)
    if node.state.layout == "one row per key":
        layout = f"the last row of each ({', '.join(part.text for part in node.input.calc.key.parts)})"
    else:
        layout = f"all rows, equal ones {equal_ones(node.state)}"
    shown = values(node.input, node.state.layout)
    if not node.takes_back:
        return rows(node, layout, "that is where old rows are found", shown)
    state = rows(node, f"{layout}, and when each was written", "a row that is written again lives longer", shown)
    return replace(state, kept=f"{state.kept}{_BACK}")


def _advice(node: PhysicalNormalize) -> Iterator[Advice]:
    scan = node.input
    if not isinstance(scan, PhysicalScan):
        return
    source = scan.source
    text = f"{node.node} keeps every row of {source.table} besides, because {node.reason}."
    if source.debezium and not source.exact:
        text += " That cannot be avoided: a snapshot of Debezium's may bring rows that are there already."
    elif source.mode == "retract" and not source.exact:
        text += (
            f" If its producer sends -U with every update, and takes back only what it has sent, say `exact: true` of "
            f"{source.table}: then this is not needed."
        )
    elif not source.exact:
        text += (
            f" If its producer can send -U with every update, make {source.table} a retract table with "
            f"`exact: true`: then this is not needed."
        )
    yield Advice(node.node, "old rows kept", text)


def single_row(node: PhysicalSingleRow) -> NodeDescription:
    """Which subquery must have one row, and that its rows are stored."""
    kept = rows(node, "its rows", "they are counted", values(node.input, node.state.layout))
    return NodeDescription("single_row", f"at most one row of {node.query}", NO_VALUES, state=(kept,))
