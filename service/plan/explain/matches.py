"""What a plan says of row patterns."""

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
    """Its pattern, variables and measures, and which rows wait in it."""
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
            Fact("gives", ", ".join(calls) or "no measure"),
            Fact("goes on", f"SKIP {sought.skip_text} behind a match"),
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
    """In what time a match must be, as an interval; nothing for any time."""
    within = node.matching.sought.within
    return "" if within is None else show(interval(within))


def _state(node: PhysicalMatch) -> Iterator[StepState]:
    of, passes = called(node.input), f"{by(node.closing.clock)} passes {moment(node.closing.late)}"
    layout = "the rows that are not in their place yet, in the order of their time"
    yield StepState("waiting", values(node.input, "timed"), of, layout, None, None, f"each until {passes}")
    within = node.matching.sought.within
    kept = (
        "for ever, where a match that has begun neither ends nor fails: there is no WITHIN"
        if within is None
        else f"each for {show_ms(within // 1000)} of time: that is how long a match may take (WITHIN)"
    )
    layout = f"{'of each partition ' if node.partition else ''}the rows from the first on that may begin a match"
    yield StepState("begun", values(node.input, "begun"), of, layout, "how it goes on is not known", None, kept)
    if any(isinstance(each.call, MatchNumber) for each in node.matching.calls):
        layout = f"how many matches {'each partition' if node.partition else 'there'} had"
        shown = values(node.input, "one row per key")
        yield StepState("numbers", shown, of, layout, "MATCH_NUMBER() counts on", None, "for ever")


def _advice(node: PhysicalMatch) -> Iterator[Advice]:
    if not node.partition:
        text = f"{node.node} has no PARTITION BY: all its rows are in one shard, which one task has to deal with."
        yield Advice(node.node, "one shard", text)
    if node.matching.sought.within is None:
        text = (
            f"{node.node} has no WITHIN: a match that has begun, and neither ends nor fails, keeps its rows for ever, "
            f"and lets no other begin behind it. Say behind PATTERN in what time it must be, as in "
            f"WITHIN INTERVAL '1' HOUR."
        )
        yield Advice(node.node, "no within", text)
