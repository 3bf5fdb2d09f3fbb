"""What a plan says of row patterns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowkind.service.physical import PhysicalMatch
from rowkind.service.plan.explain.description import Fact
from rowkind.service.plan.scalar.scalars import show
from rowkind.service.plan.scalar.time_windows import interval


def match_title(node: PhysicalMatch) -> str:
    """The line behind the node's name."""
    sought = node.matching.sought
    partition = f" PARTITION BY {', '.join(node.partition)}" if node.partition else ""
    within = "" if sought.within is None else f" WITHIN {_within(node)}"
    rows = "ALL ROWS" if sought.all_rows else "ONE ROW"
    return f"{rows} PER MATCH of ({sought.text}){within}{partition} ORDER BY {', '.join(node.order)}"


def match_values(node: PhysicalMatch) -> dict[str, Any]:
    """What the title says, for programs."""
    sought = node.matching.sought
    within = {} if sought.within is None else {"within": _within(node)}
    by = {"partition_by": list(node.partition), "order_by": list(node.order)}
    return {"pattern": sought.text, "all_rows": sought.all_rows, **within, **by}


def match_facts(node: PhysicalMatch) -> Iterator[Fact]:
    """What its variables are, what it gives, and where it goes on."""
    sought = node.matching.sought
    defined = tuple(zip(sought.names, node.matching.conditions, strict=True))
    for name, each in defined:
        yield Fact(f"{name} is", "any row" if each is None else each.text)
    calls = [call.text for call in node.matching.calls]
    define = {name: None if each is None else each.text for name, each in defined}
    yield Fact("gives", ", ".join(calls) or "no measure", {"measures": calls, "define": define})
    yield Fact("goes on", f"SKIP {sought.skip_text} behind a match", {"skip": sought.skip_text})


def _within(node: PhysicalMatch) -> str:
    return show(interval(node.matching.sought.within or 0))
