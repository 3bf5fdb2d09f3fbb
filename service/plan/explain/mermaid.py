"""Renders descriptions as one Mermaid flowchart.

Steps are nodes, stages are subgraphs, and each edge is labeled with its mode and key. A cylinder is a step with state,
a slanted box is a topic that is read, and a framed box is a topic that is written. A solid edge is a shuffle or comes
from a topic. A dotted edge connects steps of the same stage. If there are several sinks, each sink has a subgraph, and
a shared step is in the subgraph of the first sink that uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rowkind.service.plan.explain.description import Description, QueryDescription, Step
from rowkind.service.plan.explain.display_names import display_text

_STYLES = (
    "classDef state fill:#dbeafe,stroke:#2563eb,color:#172554",
    "classDef scan fill:#f1f5f9,stroke:#64748b,color:#0f172a",
    "classDef sink fill:#dcfce7,stroke:#16a34a,color:#052e16",
    "classDef union fill:#fef9c3,stroke:#ca8a04,color:#422006",
)


def flowchart(queries: Sequence[QueryDescription]) -> str:
    """Return the flowchart as Mermaid text."""
    lines = ["flowchart LR"]
    plans = [each for query in queries for each in query.sinks]
    known: dict[tuple[str, str], str] = {}
    for number, each in enumerate(plans, 1):
        if len(plans) == 1:
            lines += _plan(each, "", "  ", known)
        else:
            lines.append(f'  subgraph plan_{number}["{_text(each.root.name)}"]')
            lines += _plan(each, f"p{number}_", "    ", known)
            lines.append("  end")
    return "\n".join([*lines, *(f"  {style}" for style in _STYLES)])


def _plan(description: Description, prefix: str, margin: str, known: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield the lines of one sink's plan. `known` maps the steps drawn so far to node IDs; no step is drawn twice."""
    steps = [step for step in description.root.walk() if step.same_as is None]
    sink = description.root.name
    ids = {id(step): prefix + name for step, name in zip(steps, _ids(steps), strict=True)}
    known |= {(sink, step.name): ids[id(step)] for step in steps}
    stages: dict[int | None, list[Step]] = {}
    for step in reversed(steps):
        stages.setdefault(step.stage, []).append(step)
    for stage, members in stages.items():
        if stage is None:
            yield from (f"{margin}{ids[id(step)]}{_shape(step)}" for step in members)
            continue
        yield f'{margin}subgraph {prefix}stage_{stage}["stage {stage}"]'
        yield from (f"{margin}  {ids[id(step)]}{_shape(step)}" for step in members)
        yield f"{margin}end"
    for step in steps:
        for below in step.inputs:
            arrow = "-.->" if below.way is not None and below.way.how == "same stage" else "-->"
            whence = known[below.same_as] if below.same_as is not None else ids[id(below)]
            yield f'{margin}{whence} {arrow}|"{_text(_edge(below, step))}"| {ids[id(step)]}'


def _ids(steps: Sequence[Step]) -> Iterator[str]:
    taken: set[str] = set()
    for step in steps:
        name = base = f"sink_{_plain(step.name)}" if step.kind == "sink" else _plain(step.name)
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        yield name


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _shape(step: Step) -> str:
    """Return a step's node in Mermaid syntax: its shape, its text and its class."""
    kept = [f"keeps {each.of}: {each.layout}" for each in step.state]
    text = "<br/>".join(map(_text, [step.name, step.title, *kept]))
    match step.kind:
        case "sink":
            return f'[["{text}"]]:::sink'
        case "scan":
            return f'[/"{text}"/]:::scan'
        case "union":
            return f'(["{text}"]):::union'
        case _:
            return f'[("{text}")]:::state'


def _edge(below: Step, step: Step) -> str:
    """Return an edge's label: how rows move. For an edge out of a union, return only the rows' role and mode."""
    way = below.way
    assert way is not None, "every step except the sink has a next step"
    role = f"{way.role}: " if way.role != "input" and step.kind != "union" else ""
    if below.kind == "union":
        return role + way.mode
    match way.how:
        case "same stage":
            where = "same stage"
        case "every shard":
            where = "to every shard"
        case "unmoved":
            where = "not shuffled"
        case "shuffled":
            where = f"by {display_text(', '.join(way.by))}" if way.by else "into one shard"
            where += f" and {way.salted}" if way.salted else ""
    return f"{role}{way.mode}, {f'{way.first_step}, ' if way.first_step else ''}{where}"


def _text(words: str) -> str:
    """Return words for use in a quoted Mermaid text, with special characters escaped."""
    codes = {"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}
    return "".join(codes.get(each, each) for each in " ".join(words.split()))
