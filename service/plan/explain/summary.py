"""Renders descriptions as a summary of at most ten lines: what the job reads, writes, keeps and moves, and advice."""

from __future__ import annotations

from collections.abc import Sequence

from rowkind.quantities import counted
from rowkind.service.plan.explain.description import QueryDescription, Step, StepState
from rowkind.service.plan.explain.records import TIED

_WIDTH = 110
_SINKS, _STATES, _ADVICE = 3, 2, 1
_LABEL = 8


def summary(job: str, queries: Sequence[QueryDescription]) -> str:
    """Return the plans of all queries in at most ten lines. A line that does not fit in the width is cut."""
    sinks = [sink.root for query in queries for sink in query.sinks]
    steps = [step for sink in sinks for step in sink.walk() if step.same_as is None]
    scans = [step for step in steps if step.kind == "scan" and step.way is not None]
    tables = {step.value("table"): step.way.mode for step in scans if step.way is not None}
    # State without a limit comes first, because it may fill the disk.
    states = sorted(((step, each) for step in steps for each in step.state), key=lambda kept: not kept[1].endless)
    shuffles = sum(step.way is not None and step.way.how in ("shuffled", "every shard") for step in steps)
    advice = [each.text for query in queries for sink in query.sinks for each in sink.advice]
    count = f"{counted(len(sinks), 'sink')} over {counted(len(tables), 'table')}"
    moved = f"rows are shuffled in {counted(shuffles, 'place')}"
    lines = [
        f"job {job}: {count} in {'one query' if len(queries) == 1 else f'{len(queries)} queries'}",
        _line("reads", ", ".join(f"{name} ({mode})" for name, mode in tables.items())),
        *_first("writes", [f"{each.name}: {each.title}" for each in sinks], _SINKS),
        *_first("keeps", [_state(*each) for each in states] or ["no state"], _STATES),
        _line("moves", f"{moved}; stages one after the other: {max(query.stages for query in queries)}"),
        *_first("advice", advice or ["none"], _ADVICE),
        "--full shows every step, why it keeps its rows, and all advice",
    ]
    return "\n".join(lines)


def _state(step: Step, state: StepState) -> str:
    return f"{step.name}: {state.of}, {state.layout}; {state.kept}"


def _first(label: str, texts: Sequence[str], most: int) -> list[str]:
    """Return the first texts as lines. The last line says how many are left out."""
    lines = [_line(label if number == 0 else "", text) for number, text in enumerate(texts[:most])]
    if (more := len(texts) - most) > 0:
        left_out = f" … and {more} more"
        lines[-1] = f"{_cut(lines[-1], _WIDTH - len(left_out))}{left_out}"
    return lines


def _line(label: str, text: str) -> str:
    return _cut(f"  {label:<{_LABEL}}{text}".replace(TIED, " "), _WIDTH)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"
