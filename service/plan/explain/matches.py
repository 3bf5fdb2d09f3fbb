"""Descriptions of row patterns (MATCH_RECOGNIZE) for `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from rowkind.operators.match.calls import MatchNumber
from rowkind.service.job.duration import show as show_ms
from rowkind.service.physical.operators import PhysicalMatch
from rowkind.service.plan.explain.description import Fact, NodeDescription, StepState
from rowkind.service.plan.explain.state import by, called, moment, values
from rowkind.service.plan.explain.values import ABSENT, Advice, MatchDetails, MatchValues
from rowkind.service.plan.scalar.scalars import show
from rowkind.service.plan.scalar.time_windows import interval


def match(node: PhysicalMatch) -> NodeDescription:
    """Describe a MATCH_RECOGNIZE: its pattern, variables and measures, and the rows in its state."""
    sought, within = node.matching.sought, _within(node)
    defined = {
        name: None if each is None else each.text
        for name, each in zip(sought.names, node.matching.conditions, strict=True)
    }
    calls = [call.text for call in node.matching.calls]
    return NodeDescription(
        "match",
        _title(node),
        MatchValues(sought.text, sought.all_rows, within or ABSENT, node.partition, node.order),
        MatchDetails(calls, defined, sought.skip_text),
        (
            *(Fact(f"{name} is", text or "any row") for name, text in defined.items()),
            Fact("measures", ", ".join(calls) or "none"),
            Fact("after match", f"SKIP {sought.skip_text}"),
        ),
        tuple(_state(node)),
        tuple(_advice(node)),
    )


def _title(node: PhysicalMatch) -> str:
    sought = node.matching.sought
    partition = f" PARTITION BY {', '.join(node.partition)}" if node.partition else ""
    within = f" WITHIN {_within(node)}" if _within(node) else ""
    rows = "ALL ROWS" if sought.all_rows else "ONE ROW"
    return f"{rows} PER MATCH of ({sought.text}){within}{partition} ORDER BY {', '.join(node.order)}"


def _within(node: PhysicalMatch) -> str:
    """Return the maximum duration of a match as an INTERVAL, or an empty string if there is no limit."""
    within = node.matching.sought.within
    return "" if within is None else show(interval(within))


def _state(node: PhysicalMatch) -> Iterator[StepState]:
    of, passes = called(node.input), f"{by(node.closing.clock)} passes {moment(node.closing.late)}"
    layout = "rows that the watermark has not reached, in order of time"
    yield StepState("waiting", values(node.input, "timed"), of, layout, None, None, f"each until {passes}")
    within = node.matching.sought.within
    kept = (
        "until the match ends or fails, which may be never, because there is no WITHIN"
        if within is None
        else f"each for {show_ms(within // 1000)} of event time, the maximum length of a match (WITHIN)"
    )
    layout = (
        f"{'in each partition, ' if node.partition else ''}all rows since the first one that may still begin a match"
    )
    yield StepState("begun", values(node.input, "begun"), of, layout, "the match is not complete", None, kept)
    if any(isinstance(each.call, MatchNumber) for each in node.matching.calls):
        layout = f"the number of matches {'of each partition' if node.partition else 'so far'}"
        shown = values(node.input, "one row per key")
        yield StepState("numbers", shown, of, layout, "MATCH_NUMBER() continues from it", None, "indefinitely")


def _advice(node: PhysicalMatch) -> Iterator[Advice]:
    if not node.partition:
        text = f"{node.node} has no PARTITION BY: all its rows are in one shard, and one task processes them."
        yield Advice(node.node, "one shard", text)
    if node.matching.sought.within is None:
        text = (
            f"{node.node} has no WITHIN: a match that has begun but neither ends nor fails keeps its rows "
            "indefinitely and prevents later matches. Limit the length of a match after PATTERN, as in WITHIN "
            "INTERVAL '1' HOUR."
        )
        yield Advice(node.node, "no within", text)
