"""Renders descriptions as text: for each sink, a tree from the sink down to the topics, followed by the advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rowkind.service.plan.explain.description import Description, QueryDescription, Step
from rowkind.service.plan.explain.records import TIED

_WIDTH = 100
_LABEL = 15


def text(queries: Sequence[QueryDescription]) -> str:
    """Return the plans of all sinks as text. If there are several sinks, a line about each query comes first."""
    parts: list[str] = []
    for query in queries:
        if len(query.sinks) > 1 or len(queries) > 1:
            parts.append(f"query {query.name}: {query.title}")
        parts += map(_plan, query.sinks)
    return "\n\n".join(parts)


def _plan(description: Description) -> str:
    """Return the plan of one sink as text."""
    root = description.root
    lines = [f"sink {root.name}: {root.title}", *_facts("│ ", root)]
    lines += _tree(root.inputs[0], "└─ ", "   ")
    if description.advice:
        lines += ["", "advice"]
        for each in description.advice:
            lines += _wrapped("- ", "  ", each.text)
    return "\n".join(lines)


def _tree(step: Step, first: str, rest: str) -> list[str]:
    margin = rest + ("│ " if step.inputs else "  ")
    lines = _wrapped(first, f"{margin}      ", f"{step.name}: {step.title}")
    lines += _facts(margin, step)
    for number, below in enumerate(step.inputs):
        last = number == len(step.inputs) - 1
        lines += _tree(below, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))
    return lines


def _facts(margin: str, step: Step) -> Iterator[str]:
    facts = [(fact.label, fact.text) for fact in step.facts]
    facts[_before_outcome(step) : _before_outcome(step)] = [
        (f"keeps {each.name}" if len(step.state) > 1 else "keeps", each.sentence) for each in step.state
    ]
    for label, words in facts:
        yield from _wrapped(f"{margin}  {label:<{_LABEL}}", f"{margin}  {'':<{_LABEL}}", words)


def _before_outcome(step: Step) -> int:
    own = ("same as", "reads", "table", "condition", "strategy", "ties", "needed")
    return sum(fact.label in own for fact in step.facts)


def _wrapped(first: str, rest: str, words: str) -> list[str]:
    """Break text into lines of a readable width. Spaces inside names and types do not break a line."""
    lines, line = [], first
    for number, word in enumerate(words.split(" ")):
        if len(line) + len(word) + 1 > _WIDTH and number and line.strip("│ ") and line != rest:
            lines.append(line.rstrip())
            line = rest
        line += word if line in (first, rest) else f" {word}"
    return [each.replace(TIED, " ") for each in (*lines, line.rstrip())]
